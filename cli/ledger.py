"""`sottovoce ledger`: what a silo's privacy budget holds, whether its file is whole, and what a study
would cost it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cli.keys import say
from study.commands import Own, named, own_folder

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    help="A silo's privacy ledger: what was charged, and what a study would cost.",
    no_args_is_help=True,
)
Delta = Annotated[float, typer.Option(help="At which delta to state epsilon.")]


def _lines(ledger: Path) -> list[bytes]:
    return ledger.read_bytes().splitlines() if ledger.exists() else []


@ledger_app.command("show")
def show(home: Own, delta: Delta = 1e-5) -> None:
    """Everything that was ever charged, and epsilon over all of it."""
    from privacy.accountant import total
    from silo.cost import epsilon_words, read_ledger

    events = read_ledger(own_folder(home) / "ledger.jsonl")
    for words, times in Counter(e.words for e in events).items():
        say(f"{times:>5} x {words}")
    for unit in ("record", "silo"):
        spent = total(events, delta, unit)
        say(
            f"epsilon {epsilon_words(spent.epsilon)} at delta {delta:g}, for a {unit} ({len(events)} events)"
        )


@ledger_app.command("check")
def check(home: Own) -> None:
    """Whether every line can be read. Status 0 if so."""
    from silo.cost import read_ledger

    path = own_folder(home) / "ledger.jsonl"
    say(f"{path}: {len(read_ledger(path))} events, every line is whole")


@ledger_app.command("forecast")
def forecast_(
    config: Annotated[str, typer.Option(help="The silo's own file.")],
    study: Annotated[
        str,
        typer.Option(help="The study, as `study list` names it; nothing: the one the file names."),
    ] = "",
) -> None:
    """What the study would cost this silo, and what would be left. Nothing is charged."""
    from config.site import read_site
    from silo.cost import cost_of
    from silo.forecast import planned_for
    from silo.home import Home
    from silo.program import rules_of, silo_study
    from silo.studies import Studies
    from study.machine import one_thread
    from wire.passphrase import passphrase_for

    one_thread()
    site = read_site(named(config, "ledger forecast"))
    if study:
        file = Studies(site.home).proposal(study)
        site = replace(site, study=file)
    home = Home(site.home, passphrase_for(site.home))
    of = silo_study(site, home, rules_of(site.limits))
    planned = planned_for(of, home.index, site.limits.maximum_epsilon)
    cost = cost_of(planned, Path(site.home) / "ledger.jsonl", of.hash.hex())
    s = of.prepared.settings
    say(f"{of.study.title}: DP={s.dp}, {s.rounds} rounds, at delta {s.delta:g}")
    for line in cost.lines:
        say(f"  {line}")
    ledger = Path(site.home) / "ledger.jsonl"
    if done := sum(of.hash.hex().encode() in line for line in _lines(ledger)):
        say(f"  {done} lines of this study are in the ledger already; a study is run once")
