"""`sottovoce simulate`: a whole study on this machine, from settings to report."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.planning.plan import worth_calibrating, write_plan
from bench.simulation.elsewhere import check_launcher
from bench.simulation.inprocess import run_inprocess
from bench.simulation.launch import run_processes
from bench.simulation.memory import MemoryWatch
from config.errors import UserError
from config.load import load
from config.settings import Settings
from coordinator import rundir
from coordinator.process import FAILED, INTERRUPTED, RoundFailed
from crypto.identity.keys import KeyFileError
from methods import describe
from methods.tasks.words import data_lines, full_size_line, training_line
from models.device import check_device_untouched
from privacy.second_opinion import Disagreement
from report.files import read_run
from report.pages.words import why_infinite
from report.progress import Follower
from report.units import human_bytes
from report.write import write_report
from study.machine import one_thread
from study.papers import write_run_papers
from study.prepare import Study, prepare, warm, write_partition
from study.public_start import made_public_start, public_words

__all__ = ["resume", "simulate"]


def simulate(settings: Settings, console: Console, run: Path | None = None) -> int:
    """Run, or go on with `run`. Returns the exit status."""
    check_launcher(settings)
    check_device_untouched(settings.device)
    one_thread()
    reference = describe(settings.method).reference
    if reference:
        console.print(f"[bold]{reference}[/bold]")
    elif not settings.secagg:
        console.print(
            "[bold red]NOTHING IS MASKED: SECAGG=off lets the coordinator read every silo's update.[/bold red]"
        )
    console.print(f"preparing {settings.method_name} …", highlight=False)
    study = prepare(settings)
    settings = study.settings
    # before a folder is made: a public text that cannot be used ends here
    public = public_words(settings, study.task) if settings.public else ""
    if run is None:
        run = _new_run(study)
    note = f" ({study.partition.note})" if study.partition.note else ""
    console.print(
        f"{settings.method_name} on {study.task.corpus_name}, {settings.silos} silos, {settings.rounds} rounds, "
        f"partition {settings.partition}{note}, seed {settings.seed}, {settings.runner}: {run}",
        highlight=False,
        soft_wrap=True,
    )
    _say_data(study, console)
    if public:
        console.print(public, highlight=False, soft_wrap=True, markup=False)
        made_public_start(run, settings, study.task)
    follower = Follower(run, console, settings.rounds, study.task.metric)
    warm(study)
    if not (run / "plan.json").exists():  # a resumed run keeps the plan it was begun with
        for warning in write_plan(run, study, worth_calibrating(study)):
            console.print(f"plan: {warning}", style="bold", highlight=False, soft_wrap=True)
    sentence, wrong, cpu = "", "", _cpu_seconds()
    try:
        if settings.runner == "processes":
            outcome = run_processes(run, study, follower)
            status, peak, sentence = outcome.status, outcome.peak_mb, outcome.sentence
        else:
            try:
                status, peak, wrong = _inprocess(run, study, follower)
            except RoundFailed as e:
                status, peak, sentence = FAILED, 0.0, str(e)
    except OSError as e:
        raise UserError(
            f'OUT: writing to "{run}" failed ({e.strerror or e}); what was finished is kept.'
        ) from None
    finally:
        follower.stop()
    if status != 0:
        again = f"sottovoce simulate --resume {run}"
        if status == INTERRUPTED:
            console.print(
                f"Interrupted; finished rounds are kept. Go on with: {again}", soft_wrap=True
            )
        else:
            console.print(
                f"{sentence} Finished rounds are kept. Go on with: {again}",
                soft_wrap=True,
                highlight=False,
            )
        return status if status > 0 else 1
    _forget_features(run)
    measured = {"peak_rss_mb": peak, "cpu_seconds": round(_cpu_seconds() - cpu, 2)}
    if wrong := _close(run, measured, wrong, console):
        raise Disagreement(wrong)
    return 0


def _say_data(study: Study, console: Console) -> None:
    """Which file became what, what was set aside, cut or repaired, and what is left to train on."""
    sizes = study.partition.sizes
    for line in data_lines(study.task):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    among = f", divided among {len(sizes)} silos" * (len(sizes) > 1)
    line = f"trained on: {sum(sizes):,} {study.task.record_unit}s{among}"
    how = [f"trained by: {training_line(study.settings, study.task)}"]
    for text in (line, *how, *filter(None, [full_size_line(study.settings, study.task)])):
        console.print(text, highlight=False, soft_wrap=True)


def _new_run(study: Study) -> Path:
    settings = study.settings
    run = rundir.create(settings, rundir.this_command())
    try:
        write_partition(run, study)
        if settings.runner == "processes":
            secret = rundir.shared_secret(settings)
            rundir.make_keys(rundir.coordinator_home(run), run / "silos", settings.silos, secret)
    except (OSError, KeyFileError) as e:
        raise UserError(
            f'OUT: writing to "{run}" failed ({getattr(e, "strerror", e)}); give another OUT.'
        ) from None
    return run


def resume(run: Path, console: Console) -> int:
    """Go on from the last finished round of a run that was cut short."""
    if not (run / "config.toml").is_file():
        raise UserError(f'"{run}" is not a run folder: it has no config.toml.')
    if (run / "summary.json").is_file():
        raise UserError(
            f'The run in "{run}" is already finished; its report is {run / "report.html"}.'
        )
    run = run.resolve()
    settings = load(run / "config.toml", {})
    return simulate(replace(settings, out=str(run.parent)), console, run)


def _inprocess(run: Path, study: Study, follower: Follower) -> tuple[int, float, str]:
    """Status, memory, and in which words two accountants disagree at the end of a whole run."""
    asked = {"stop": False}

    def stop(*_: object) -> None:
        asked["stop"] = True

    memory = MemoryWatch()

    def should_stop() -> bool:
        follower.catch_up()
        memory.sample()
        return asked["stop"]

    previous = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        follower.started()
        with follower.ticking():
            return run_inprocess(run, study, should_stop=should_stop), memory.peak_mb, ""
    except Disagreement as e:
        return 0, memory.peak_mb, str(e)
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)


def _forget_features(run: Path) -> None:
    """Of silos that were lost on the way; whoever was there at the end has removed its own."""
    for left in (run / "features", *(run / "silos").glob("*/features")):
        shutil.rmtree(left, ignore_errors=True)


def _cpu_seconds() -> float:
    """Of this process and of all its children that have ended."""
    return sum(os.times()[:4])


def _close(run: Path, measured: dict[str, float], wrong: str, console: Console) -> str:
    """What only the launcher could measure goes into the summary; then the report, and the closing
    lines. Returns in which words two accountants disagree, if they do.
    """
    path = run / "summary.json"
    summary = json.loads(path.read_text("utf-8")) | measured
    summary["disagreement"] = summary["disagreement"] or wrong or None
    path.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", "utf-8")
    report = write_report(run)
    write_run_papers(run, read_run(run))
    s = summary
    if not s["masked"] and not s["reference"]:
        console.print("[bold red]NOTHING WAS MASKED in this run (SECAGG=off).[/bold red]")
    for silo, rounds in s["missed"].items():
        missed = ", ".join(str(r + 1) for r in rounds)
        console.print(
            f"{silo} was lost; it missed round{'s' if len(rounds) > 1 else ''} {missed}",
            highlight=False,
        )
    if s["warning"]:
        console.print(f"warning: {s['warning']}", style="bold", highlight=False, soft_wrap=True)
    epsilon = f"infinite ({why_infinite(s)})" if s["epsilon"] == "inf" else f"{s['epsilon']:.4g}"
    console.print(
        f"test {s['metric']} {s['value']:.4f}  |  {human_bytes(s['bytes_up_per_silo_round'])} up per silo and round"
        f"  |  epsilon {epsilon}  |  {s['wall_seconds']:.1f} s  |  {s['peak_rss_mb']:.0f} MB",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"report: {report}", highlight=False, soft_wrap=True)
    return str(summary["disagreement"] or "")
