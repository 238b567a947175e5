"""Coordinator and silo as programs of their own, on one machine or on many: the same code that
`simulate` forks.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from config.errors import UserError
from config.load import check
from config.logs import log_to
from config.settings import Settings
from config.site import OwnLimits, Site, read_site
from config.study import StudyFile, read_study
from coordinator import process as coordinator_process
from coordinator import rundir
from crypto.identity.card import RosterRefused
from crypto.identity.keyfile import KeyFileError
from crypto.identity.roster import Roster
from methods.base import silo_name
from methods.tasks.load import BUILT_IN
from report.write import write_report
from silo import process as silo_process
from silo.home import Home
from silo.rules import Hours, Rules
from study.agreement import Agreed, agreed, page
from study.prepare import prepare
from wire.keyring import Keyring
from wire.passphrase import open_keys, passphrase_for

__all__ = [
    "Machine",
    "coordinator_study",
    "rules_of",
    "run_coordinator",
    "run_silo",
    "show_study",
    "silo_study",
]

log = logging.getLogger("silo")
_GRACE = 30.0  #: seconds for a silo whose connection ended to come back into the exchange it was in


class Machine:
    """What belongs to a coordinator's machine and to no study."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home, self.settings = home, settings


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # sums of floats depend on it


def _pinned(keys: Keyring) -> Roster:
    try:
        return keys.pinned()
    except (RosterRefused, KeyFileError) as e:
        raise UserError(f"The roster of {keys.path}: {e}.") from None


def _built_in(corpus: str) -> bool:
    return not corpus or corpus.partition(":")[0] in BUILT_IN


def _local(study: StudyFile, roster: Roster, own: dict[str, str]) -> tuple[Settings, bool]:
    """The study's settings with what is this machine's, and whether the corpus is one that all
    silos cut alike.
    """
    if not _built_in(study.settings.corpus):
        raise UserError(
            f"{study.path}: corpus may only be a built-in one, for a trial; folders are a machine's own."
        )
    given: dict[str, Any] = {k: v for k, v in own.items() if v}
    settings = replace(study.with_silos(len(roster.silos)), **given)
    check(settings)
    if given.get("corpus") and _built_in(given["corpus"]):
        raise UserError(
            "A machine's own corpus is a folder; a built-in one is named in the study file, for a trial."
        )
    return settings, "corpus" not in given


def coordinator_study(study: StudyFile, roster: Roster, machine: Machine) -> Agreed:
    settings, cut_alike = _local(study, roster, machine.settings)
    return agreed(study, roster, prepare(settings, None if cut_alike else -1))


def silo_study(site: Site, home: Home, rules: Rules) -> Agreed:
    """The study as this silo would run it; a sentence where one of its own rules forbids it."""
    study = read_study(site.study)
    own = {
        "corpus": site.corpus,
        "encoder": site.encoder,
        "seq2seq": site.seq2seq,
        "vectors": site.vectors,
    }
    own["metrics"] = site.metrics
    settings, cut_alike = _local(study, home.roster, own)
    rules.check(settings, len(home.roster.silos))  # before a corpus is read
    prepared = prepare(rules.applied(settings), None if cut_alike else home.index)
    # again: now what the study left open is known
    rules.check(prepared.settings, len(home.roster.silos))
    return agreed(study, home.roster, prepared)


def rules_of(limits: OwnLimits) -> Rules:
    hours = Hours.parse(limits.hours) if limits.hours else None
    values = {k: v for k, v in vars(limits).items() if k != "hours"}
    return Rules(**values, hours=hours)


def run_coordinator(
    study: Path, machine: Machine, listen: str, wait: float, console: Console
) -> int:
    _one_thread()
    log_to(sys.stderr)
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UserError(f'--listen must be HOST:PORT, not "{listen}".')
    keys = open_keys(machine.home)
    if keys.card.role != "coordinator":
        raise UserError(
            f"{machine.home} has the keys of a {keys.card.role}; a coordinator needs keys of its own."
        )
    of = coordinator_study(read_study(study), _pinned(keys), machine)
    # A study is run once, so its hash names its run: whoever starts the program again goes on with
    # that one.
    settings, name = replace(of.prepared.settings, port=int(port)), f"study-{of.hash.hex()[:12]}"
    run = Path(settings.out) / name
    if (run / "summary.json").is_file():
        console.print(
            f"this study is finished; its report: {run / 'report.html'}",
            soft_wrap=True,
            highlight=False,
        )
        return 0
    console.print(page(of), soft_wrap=True, highlight=False, markup=False)
    run = rundir.create(settings, rundir.this_command(), name)
    members = {silo_name(i): card.name for i, card in enumerate(of.roster.silos)}
    (run / "members.json").write_text(json.dumps(members, indent=1) + "\n", "utf-8")
    try:
        status = _guarded(coordinator_process.serve)(
            run,
            keys,
            settings,
            of.prepared.task,
            of.prepared.method,
            of.hash,
            settings.slots or settings.silos,
            host=host,
            bound=lambda port: console.print(f"listening on {host}:{port}", highlight=False),
            enrol_seconds=wait,
            agreed=of.content,
            grace=_GRACE,
        )
    except coordinator_process.RoundFailed as e:
        text = f"{e} Finished rounds are kept; start the program again to go on."
        console.print(text, soft_wrap=True, highlight=False, markup=False)
        return coordinator_process.FAILED
    if status == 0:
        console.print(f"report: {write_report(run)}", soft_wrap=True, highlight=False)
    return status


def show_study(study: Path, machine: Machine, console: Console) -> None:
    _one_thread()
    of = coordinator_study(read_study(study), _pinned(open_keys(machine.home)), machine)
    console.print(page(of), soft_wrap=True, highlight=False, markup=False)
    pins = {**of.prepared.task.agreement(), **of.prepared.method.agreement}
    pins["model"] = of.content["model"]
    text = "\n".join(["", "[hashes]", *(f'"{name}" = "{value}"' for name, value in pins.items())])
    console.print(text, soft_wrap=True, highlight=False, markup=False)


def run_silo(config: Path, accept: str, console: Console) -> int:
    _one_thread()
    log_to(sys.stderr)
    site = read_site(config)
    rules = rules_of(site.limits)
    home = Home(site.home, passphrase_for(site.home))
    of = silo_study(site, home, rules)
    console.print(page(of), soft_wrap=True, highlight=False, markup=False)
    _consent(home, of, accept, console)
    _wait_for_hours(rules, console)
    study = of.prepared
    return _guarded(silo_process.serve)(
        home,
        home.index,
        home.name,
        ",".join(f"tcp://{place}" for place in site.addresses),
        study.settings,
        study.task,
        study.task.subset(study.partition.indices[home.index]),
        study.method,
        rules=rules,
        agreed=of.content,
    )


def _guarded(program: Callable[..., int]) -> Callable[..., int]:
    """An error of our own ends in the log without its message, which may have somebody's data in
    it.
    """

    @functools.wraps(program)
    def guarded(*arguments: Any, **named: Any) -> int:
        try:
            return program(*arguments, **named)
        except (UserError, coordinator_process.RoundFailed):
            raise
        except OSError as e:
            raise UserError(f"Reading or writing failed: {e}.") from None
        except Exception:
            log.exception("ended by an error of the program itself")
            return 1

    return guarded


def _consent(home: Home, of: Agreed, accept: str, console: Console) -> None:
    """Nothing is sent before the operator has agreed to this very study; what was agreed to is
    kept.
    """
    wanted = of.hash.hex()
    if accept and accept != wanted:
        raise UserError(
            f"--accept names another study than this one, whose hash is {wanted}; nothing was sent."
        )
    if home.agreed_to(wanted):
        console.print("this silo agreed to it before (consents.jsonl)", highlight=False)
    elif accept:
        home.agree(wanted, of.study.title, "--accept")
    elif not sys.stdin.isatty():
        raise UserError(f"This silo has not agreed to this study. To agree: --accept {wanted}")
    elif console.input('Take part? Type "yes" to agree: ').strip().lower() == "yes":
        home.agree(wanted, of.study.title, "asked")
    else:
        raise UserError("Not agreed; nothing was sent.")


def _wait_for_hours(rules: Rules, console: Console) -> None:
    if rules.hours is None or not (seconds := rules.hours.seconds_until(time.localtime())):
        return
    console.print(
        f"outside this silo's hours ({rules.hours}); it dials when they begin", highlight=False
    )
    log.info("waits %d s for its hours (%s)", seconds, rules.hours)
    while rules.hours.seconds_until(time.localtime()):
        time.sleep(min(30.0, rules.hours.seconds_until(time.localtime()) or 1.0))
