"""Many runs of `sottovoce simulate`, each made once: every finished one is a line in a file, and a
command that is started again makes only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.papers.warm import Warm
from config.errors import UserError
from coordinator.runlog import RunLog
from methods import find
from report.files import read_lines
from silo.gate import DIVERGED

__all__ = [
    "Done",
    "Job",
    "at_once",
    "merged",
    "of_corpus",
    "run_key",
    "run_missing",
    "seed_list",
]


@dataclass(frozen=True)
class Done:
    """One finished run."""

    summary: Mapping[str, Any]
    dev: tuple[float, ...]  #: the dev metric by round

    @property
    def diverged(self) -> bool:
        """Numbers overflowed: there is no model, and its summary has nothing but its cost."""
        return bool(self.summary.get("diverged"))


@dataclass(frozen=True)
class Job:
    row: str
    column: str  #: empty for a reference, which no column varies
    seed: int
    words: tuple[str, ...]
    machine: tuple[str, ...] = ()  #: settings that decide nothing about the result

    @property
    def settings(self) -> tuple[str, ...]:
        return (*self.words, f"SEED={self.seed}")

    @property
    def key(self) -> str:
        return run_key(self.settings)

    @property
    def label(self) -> str:
        return " ".join(filter(None, (self.row, self.column, f"seed {self.seed}")))


def run_key(words: tuple[str, ...]) -> str:
    """What decides a run. A method's file from outside counts by what is in it, not by its place."""
    name, path = "METHOD=", next((w for w in words if re.match(r"METHOD=.*\.py$", w)), "")
    if path:
        digest = find(path.removeprefix(name)).digest
        words = (*(w for w in words if w != path), f"{name}{digest}")
    return " ".join(sorted(words))


def merged(*parts: tuple[str, ...]) -> tuple[str, ...]:
    """Later settings win; knobs (SET=…) add up."""
    table: dict[str, str] = {}
    for name, _, value in (w.partition("=") for part in parts for w in part):
        table[name] = f"{table[name]} {value}" if name == "SET" and name in table else value
    return tuple(f"{name}={value}" for name, value in table.items())


def of_corpus(words: tuple[str, ...], corpus: str) -> tuple[str, ...]:
    """What a comparison sets for one of its corpora; {folder} stands for the user's. A user who names
    the format as well means it so.
    """
    plain = ":" not in corpus
    return tuple(w.format(folder=corpus) for w in words if plain or not w.startswith("CORPUS="))


def seed_list(text: str) -> tuple[int, ...]:
    """ "3" is 0, 1, 2; "10-12" is 10, 11, 12: seeds to tune on, so that the reported ones stay
    unseen.
    """
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (
        (0, int(text) - 1) if text.isdigit() else map(int, found.groups()) if found else (0, -1)
    )
    if last < first:
        raise UserError(
            f'SEEDS must be a whole number from 1, or a range as in 10-12, not "{text}".'
        )
    return tuple(range(first, last + 1))


def at_once(words: Iterable[str]) -> int:
    """Runs in one process take a core each; a run of real processes takes them all."""
    return 1 if "RUNNER=processes" in words else os.cpu_count() or 1


def run_missing(
    jobs: Iterable[Job],
    folder: Path,
    say: Console,
    *,
    workers: int,
    spread: Callable[[list[str]], tuple[int, str]] | None = None,
    machine: tuple[str, ...] = (),
    may_diverge: bool = False,
) -> dict[str, Done]:
    """Every job's result, by its key. `spread` runs a command elsewhere (on a cluster), and returns
    its status and what it printed; without it, runs are children of this process. `machine`:
    settings that decide nothing about a result. `may_diverge`: where the settings were drawn, a run
    whose numbers overflow is a result too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = RunLog(folder)
    done = {
        line["key"]: Done(line["summary"], tuple(line.get("dev", ())))
        for line in read_lines(folder / "runs.jsonl")
    }
    missing = list({job.key: job for job in jobs if job.key not in done}.values())
    with _Here() as here, ThreadPoolExecutor(workers) as pool:
        futures = {
            pool.submit(_run, job, folder, spread or here, machine, may_diverge): job
            for job in missing
        }
        try:
            for k, future in enumerate(as_completed(futures), 1):
                job, result = futures[future], future.result()
                done[job.key] = result
                line = {"key": job.key, "summary": result.summary, "dev": result.dev}
                log.append("runs.jsonl", line)
                s = result.summary
                say.print(
                    f"{k}/{len(missing)} {job.label}: "
                    + ("diverged" if result.diverged else f"{s['metric']} dev {s['dev_value']:.4f}")
                    + f", {s['wall_seconds']:.0f} s",
                    highlight=False,
                    soft_wrap=True,
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done


def _run(
    job: Job,
    folder: Path,
    run: Callable[[list[str]], tuple[int, str]],
    machine: tuple[str, ...],
    may_diverge: bool,
) -> Done:
    out = folder / "work" / hashlib.sha256(job.key.encode()).hexdigest()[:16]
    shutil.rmtree(out, ignore_errors=True)  # of one that was cut off
    words = (*job.settings, *machine, *job.machine, f"OUT={out.resolve()}")
    began = time.monotonic()
    status, said = run([sys.executable, "-m", "cli.main", "simulate", *words])
    # what ended it stands last; silos log the word too where they go on with zeros
    if status and may_diverge and DIVERGED in (said.strip().splitlines() or [""])[-1]:
        took = time.monotonic() - began
        shutil.rmtree(out)
        # a run in one process has one thread: its time is that of a core, at most
        cost = {"wall_seconds": took, "cpu_seconds": took}
        return Done({"diverged": True, "dev_value": 0.0, **cost}, ())
    if status:
        raise UserError(f"A run failed: simulate {' '.join(words)}: {said.strip()[-500:]}")
    latest = out / "latest"
    summary: dict[str, Any] = json.loads((latest / "summary.json").read_text("utf-8"))
    lines = read_lines(latest / "rounds.jsonl")
    if any(line["dev"] is None for line in lines):
        raise UserError("A comparison needs the score of every round: leave EVALUATE out.")
    dev = tuple(float(line["dev"]) for line in lines)
    shutil.rmtree(out)
    return Done(summary, dev)


class _Here:
    """On this machine. Runs in one process are forked from warmed ones, one for each thread that
    asks; a run of real processes warms its own.
    """

    def __init__(self) -> None:
        self._mine, self._all = threading.local(), list[Warm]()

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_: object) -> None:
        for warm in self._all:
            warm.close()

    def __call__(self, command: list[str]) -> tuple[int, str]:
        if "RUNNER=inprocess" in command:
            if not hasattr(self._mine, "warm"):
                self._mine.warm = Warm()
                self._all.append(self._mine.warm)
            return self._mine.warm(command)
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stderr or done.stdout
