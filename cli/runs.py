"""Runs: make one, say what it would cost, follow it, write its report again, export it, compare
several.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from config.describe import described
from config.errors import UserError
from config.load import load
from config.settings import Settings
from methods import METHODS, find

__all__ = ["Set", "settle", "simulate", "plan", "watch", "report", "export", "compare"]

console = Console()

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME=VALUE]...", help="Settings as make takes them: SILOS=10", show_default=False
    ),
]
Config = Annotated[
    str | None, typer.Option(help="A TOML file with settings; flags and NAME=VALUE win over it.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A knob of the method, as NAME=VALUE. Repeatable.")
]


def simulate(
    words: Words = None,
    set_: Set = None,
    config: Config = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with this unfinished run folder.")
    ] = None,
    **flags: str | None,
) -> None:
    """Run a whole federation on this machine: real processes, real secure sums, and a report at the
    end.

    Every setting is a flag and a word: --silos 10 is SILOS=10.
    """
    given = {name: text for name, text in flags.items() if text is not None}
    overrides, config = settle(words, given, set_, config)
    # a mistake is told before torch takes its seconds to load
    settings = _settings(config, overrides)
    from bench.simulation import run as program

    if resume is not None:
        if overrides or config:
            raise UserError("A resumed run keeps its own settings; give --resume alone.")
        raise typer.Exit(program.resume(Path(resume), console))
    raise typer.Exit(program.simulate(settings, console))


def _with_a_flag_for_every_setting(command: Callable[..., None]) -> None:
    """Typer reads a function's signature; this one gets its flags from the record of settings."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    first, *rest = [p for p in own if p.kind is not inspect.Parameter.VAR_KEYWORD]
    flags = [
        inspect.Parameter(
            s.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(help=f"{s.why} [default: {s.default}]", show_default=False),
            ],
        )
        for s in described()
    ]
    command.__dict__["__signature__"] = inspect.Signature([first, *flags, *rest])


_with_a_flag_for_every_setting(simulate)


def plan(
    words: Words = None,
    set_: Set = None,
    config: Config = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of a table.")
    ] = False,
) -> None:
    """What a run would cost: bytes, memory, epsilon, time. Settings as for simulate, and
    BANDWIDTH=bytes per second.
    """
    overrides, config = settle(words, {}, set_, config)
    line = overrides.pop("bandwidth", "0")
    try:
        bandwidth = float(line)
    except ValueError:
        raise UserError(f'BANDWIDTH must be a number of bytes per second, not "{line}".') from None
    settings = _settings(config, overrides)
    from bench.planning.plan import run_plan

    raise typer.Exit(run_plan(settings, bandwidth, json, console))


def watch(
    run: Annotated[str, typer.Argument(help="A run folder.")] = "runs/latest",
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="As a page on this machine, for a browser.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The dashboard's port; 0: any free one.")
    ] = 0,
) -> None:
    """Follow a run as it goes: rounds, silos and what they do, bytes, metric. Changes nothing."""
    if dashboard:
        from report.dashboard import run_dashboard

        raise typer.Exit(run_dashboard(Path(run), port, console))
    from report.watch import run_watch

    raise typer.Exit(run_watch(Path(run), console))


def report(run: Annotated[str, typer.Argument(help="A run folder.")] = "runs/latest") -> None:
    """Write a finished run's report again from its files."""
    from report.write import write_report

    if not (Path(run) / "summary.json").is_file():
        raise UserError(f'"{run}" has no summary.json: it is not a finished run.')
    console.print(f"report: {write_report(Path(run))}", highlight=False, soft_wrap=True)


def export(
    run: Annotated[str, typer.Argument(help="A finished run's folder.")] = "runs/latest",
    csv: Annotated[str, typer.Option(help="Write a CSV table per log into this folder.")] = "",
    parquet: Annotated[str, typer.Option(help="The same as Parquet.")] = "",
    tensorboard: Annotated[
        str, typer.Option(help="Write a TensorBoard log into this folder (optional extra).")
    ] = "",
    mlflow: Annotated[
        str, typer.Option(help="Add a run to this MLflow store: a URI (optional extra).")
    ] = "",
) -> None:
    """Hand a run's logs to other tools."""
    from report.export import run_export

    raise typer.Exit(run_export(Path(run), csv, parquet, tensorboard, mlflow, console))


def compare(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders; those of one method are its seeds.")
    ],
    output: Annotated[str, typer.Option(help="The page to write.")] = "compare.html",
    target: Annotated[
        float, typer.Option(help="A dev metric: rounds and bytes until it is reached.")
    ] = 0.0,
    bandwidth: Annotated[float, typer.Option(help="Bytes per second of a silo's upload.")] = 1e6,
) -> None:
    """Put finished runs beside each other on one page. `make compare METHODS="…" SEEDS=3` also runs
    what is missing.
    """
    from bench.compare import compare_runs

    page = compare_runs([Path(r) for r in runs], Path(output), target, bandwidth)
    console.print(f"comparison: {page}", highlight=False, soft_wrap=True)


def _settings(config: str | None, overrides: dict[str, str]) -> Settings:
    settings = load(config, overrides)
    if settings.method not in METHODS:
        find(
            settings.method
        )  # a method from outside is there and keeps the contract, or a sentence
    return settings


def settle(
    words: list[str] | None, flags: dict[str, str], knobs: list[str] | None, config: str | None
) -> tuple[dict[str, str], str | None]:
    """NAME=VALUE words, flags and --set into one table of overrides; flags win over words."""
    out: dict[str, str] = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(
                f'"{word}" is not NAME=VALUE; settings are given as SILOS=10 or --silos 10.'
            )
        if name.lower() == "config":
            config = config or value
        elif name.lower() == "set":
            knobs = [*value.split(), *(knobs or [])]
        elif value:
            out[name.lower()] = value
    out |= flags
    for knob in knobs or []:
        name, equals, value = knob.partition("=")
        if not equals:
            raise UserError(f'"--set {knob}" is not NAME=VALUE.')
        out[f"options.{name}"] = value
    return out, config
