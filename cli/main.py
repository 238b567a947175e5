"""The `sottovoce` command. Parses words, starts programs, turns a user's mistake into one sentence
and status 2.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

# One thread per process, decided before torch is imported: silos share the machine by slots, not by
# threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# nothing is fetched from a hub unless the user names one
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer
from rich.console import Console

from cli.keys import keys_app, roster_app
from config.errors import UserError, nearest
from config.load import load
from config.settings import Settings
from methods import METHODS

__all__ = ["main"]

app = typer.Typer(
    name="sottovoce",
    help="Train information-extraction models across hospitals without moving a single sentence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # with "rich", every "[default: …]" would be taken for a style and vanish
    rich_markup_mode="markdown",
)
console = Console()

app.add_typer(keys_app, name="keys")
app.add_typer(roster_app, name="roster")

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


def _flag(help: str) -> object:
    return typer.Option(help=help, show_default=False)


@app.command()
def simulate(
    words: Words = None,
    method: Annotated[
        str | None, _flag("Which method; `sottovoce methods` lists them. [default: lazymil]")
    ] = None,
    corpus: Annotated[
        str | None, _flag("Built-in corpus, or a folder. [default: what fits the method]")
    ] = None,
    partition: Annotated[
        str | None, _flag("iid, pair, dirichlet:ALPHA, entropy. [default: iid]")
    ] = None,
    silos: Annotated[str | None, _flag("How many silos. [default: 10]")] = None,
    rounds: Annotated[str | None, _flag("How many rounds. [default: the task's]")] = None,
    fraction: Annotated[str | None, _flag("Share of the silos in a round. [default: 1.0]")] = None,
    epochs: Annotated[str | None, _flag("Local epochs per round. [default: the task's]")] = None,
    batch: Annotated[str | None, _flag("Local batch size. [default: the task's]")] = None,
    lr: Annotated[str | None, _flag("Learning rate. [default: the task's]")] = None,
    seed: Annotated[str | None, _flag("Decides the whole run. [default: 0]")] = None,
    runner: Annotated[str | None, _flag("processes or inprocess. [default: processes]")] = None,
    secagg: Annotated[
        str | None, _flag("on or off; off masks nothing and says so. [default: on]")
    ] = None,
    bits: Annotated[
        str | None, _flag("Bits per number in the secure sum: 32, 21, 16. [default: 32]")
    ] = None,
    out: Annotated[str | None, _flag("Where run folders are made. [default: runs]")] = None,
    set_: Set = None,
    config: Config = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with this unfinished run folder.")
    ] = None,
) -> None:
    """Run a whole federation on this machine: real processes, real secure sums, and a report at the
    end.
    """
    flags = {
        k: v
        for k, v in locals().items()
        if v is not None and k not in ("words", "set_", "config", "resume")
    }
    overrides, config = _settle(words, flags, set_, config)
    # a mistake is told before torch takes its seconds to load
    settings = _settings(config, overrides)
    from bench.simulation import run as program

    if resume is not None:
        if overrides or config:
            raise UserError("A resumed run keeps its own settings; give --resume alone.")
        raise typer.Exit(program.resume(Path(resume), console))
    raise typer.Exit(program.simulate(settings, console))


Own = Annotated[str, typer.Option(help="The party's own folder, made by `sottovoce keys new`.")]
OwnCorpus = Annotated[
    str, typer.Option(help="The folder to score on; nothing: the study's built-in corpus.")
]
Checkpoint = Annotated[str, typer.Option(help="This machine's copy, where the study uses one.")]


@app.command()
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
    overrides, config = _settle(words, {}, set_, config)
    line = overrides.pop("bandwidth", "0")
    try:
        bandwidth = float(line)
    except ValueError:
        raise UserError(f'BANDWIDTH must be a number of bytes per second, not "{line}".') from None
    settings = _settings(config, overrides)
    from bench.planning.plan import run_plan

    raise typer.Exit(run_plan(settings, bandwidth, json, console))


@app.command()
def coordinator(
    config: Annotated[str, typer.Option(help="The study file, as the consortium agreed on it.")],
    home: Own,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on.")] = "127.0.0.1:5555",
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
    out: Annotated[str, typer.Option(help="Where run folders are made.")] = "runs",
    wait: Annotated[float, typer.Option(help="Seconds to wait for all silos to enrol.")] = 600.0,
    metrics: Annotated[
        str, typer.Option(help="PORT or HOST:PORT for Prometheus; nothing: off.")
    ] = "",
) -> None:
    """Run the coordinator of a study whose silos run elsewhere. Started again, it goes on with the
    same run.
    """
    from coordinator.program import run_coordinator
    from study.machine import Machine

    own = {"corpus": corpus, "encoder": encoder, "seq2seq": seq2seq, "vectors": vectors, "out": out}
    machine = Machine(Path(home), **own, metrics=metrics)
    raise typer.Exit(run_coordinator(Path(config), machine, listen, wait, console))


@app.command()
def silo(
    config: Annotated[str, typer.Option(help="This silo's own file: study, folders, limits.")],
    accept: Annotated[
        str, typer.Option(metavar="HASH", help="Agree to the study with this hash, unasked.")
    ] = "",
) -> None:
    """Run one silo of a study: it shows what would leave, asks, then dials out to the coordinator;
    it opens no port.
    """
    from silo.program import run_silo

    raise typer.Exit(run_silo(Path(config), accept, console))


@app.command()
def study(
    config: Annotated[str, typer.Option(help="The study file.")],
    home: Own,
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
) -> None:
    """Show what a study discloses, its hash, and the [hashes] that its file may name."""
    from coordinator.program import show_study
    from study.machine import Machine

    machine = Machine(Path(home), corpus=corpus, encoder=encoder, seq2seq=seq2seq, vectors=vectors)
    show_study(Path(config), machine, console)


@app.command()
def doctor(
    config: Annotated[
        str, typer.Option(help="A silo's own file, or, for a coordinator, the study file.")
    ],
    home: Annotated[
        str, typer.Option(help="The coordinator's folder; a silo's file names its own.")
    ] = "",
    listen: Annotated[
        str, typer.Option(help="Where the coordinator will listen.")
    ] = "127.0.0.1:5555",
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
    out: Annotated[str, typer.Option(help="Where a coordinator's run folders are made.")] = "runs",
) -> None:
    """Check this machine: version, keys, roster, clock, reachability, corpus, checkpoint, disk,
    memory.
    """
    from cli.doctor import examine
    from study.machine import Machine

    machine = Machine(
        Path(home), corpus=corpus, encoder=encoder, seq2seq=seq2seq, vectors=vectors, out=out
    )
    raise typer.Exit(examine(Path(config), machine, listen, console))


@app.command()
def methods() -> None:
    """List the methods, what each is for and where it was published."""
    from rich.table import Table

    import methods as registry

    table = Table("method", "tasks", "what it is", "published in", show_lines=True)
    for name in registry.names():
        about = registry.describe(name)
        table.add_row(name, ", ".join(about.tasks), about.summary, about.citation)
    console.print(table)


@app.command()
def report(run: Annotated[str, typer.Argument(help="A run folder.")] = "runs/latest") -> None:
    """Write a finished run's report again from its files."""
    from report.write import write_report

    if not (Path(run) / "summary.json").is_file():
        raise UserError(f'"{run}" has no summary.json: it is not a finished run.')
    console.print(f"report: {write_report(Path(run))}", highlight=False, soft_wrap=True)


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
def extract(
    model: Annotated[str, typer.Argument(help="A run folder, or the model/ in one.")],
    sources: Annotated[
        list[str] | None, typer.Argument(help="Files or folders; - or nothing: standard input.")
    ] = None,
    output: Annotated[
        str, typer.Option(help="Write JSON lines to this file, or BRAT into this folder.")
    ] = "",
    format: Annotated[
        str, typer.Option(help="jsonl, brat or terminal; auto: terminal where there is one.")
    ] = "auto",
    least: Annotated[float, typer.Option(help="Leave out what scores below this.")] = 0.0,
    none: Annotated[
        bool, typer.Option("--none", help="Also pairs that the model says have no relation.")
    ] = False,
) -> None:
    """Find relations or entities in new text with a trained model.

    Sentences: a line each, `<e1:drug>A</e1> treats <e2:illness>B</e2>`. Documents: PubTator, BRAT
    or JSON lines, their entities given. Named entities: plain text.
    """
    from extract.command import run_extract

    raise typer.Exit(run_extract(Path(model), sources or ["-"], output, format, least, none))


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A run folder, or the model/ in one.")],
    corpus: Annotated[
        str, typer.Argument(help="A built-in corpus or a folder; nothing: the run's own.")
    ] = "",
    split: Annotated[str, typer.Option(help="dev or test.")] = "test",
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of a table.")
    ] = False,
) -> None:
    """Score a trained model on a corpus with the same classes."""
    from extract.evaluate import run_evaluate

    raise typer.Exit(run_evaluate(Path(model), corpus, split, json, console))


def _settings(config: str | None, overrides: dict[str, str]) -> Settings:
    settings = load(config, overrides)
    if settings.method not in METHODS:
        raise UserError(f'Unknown method "{settings.method}".{nearest(settings.method, METHODS)}')
    return settings


@app.command()
def pretrain(
    kind: Annotated[
        str, typer.Argument(help="Which: bert (for sentences), document or bart.")
    ] = "bert",
    check: Annotated[
        bool, typer.Option("--check", help="Make it again elsewhere and compare hashes.")
    ] = False,
) -> None:
    """Make the small built-in encoder again, from nothing but the generators' text. Takes
    minutes.
    """
    from bench.pretrain.make import run

    raise typer.Exit(
        run(kind, check, lambda line: console.print(line, highlight=False, soft_wrap=True))
    )


def _settle(
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


def main(arguments: list[str] | None = None) -> None:
    command = typer.main.get_command(app)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        known = getattr(command, "commands", {})
        if words and not words[0].startswith("-") and words[0] not in known:
            raise UserError(f'Unknown command "{words[0]}".{nearest(words[0], known)}')
        command(words, prog_name="sottovoce")
    except UserError as e:
        Console(stderr=True).print(str(e), highlight=False, soft_wrap=True, markup=False)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
