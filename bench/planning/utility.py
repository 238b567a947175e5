"""What a budget leaves of a model, for silos of the user's own sizes: read off runs that were
measured once on the built-in corpora.

`python -m bench.planning.utility` makes the table `utility.csv` beside this file: runs of small
silos of its own, and with `RUNS=tables/privacy-minutes/runs.jsonl` those of the privacy table, which
are larger. `sottovoce plan` reads it. With noise of a given epsilon, the mean over K silos of n
records each has an error that falls as n √K ε grows; so runs of other sizes and budgets lie on one
curve per task, which is read between its points and never beyond them. It is a guess for other
text, and the plan says so.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from rich.console import Console

from bench.papers.jobs import Done, Job, at_once, run_missing, seed_list
from bench.papers.privacy import TAGS
from config.program import as_program
from report.files import read_lines

__all__ = ["EPSILONS", "TABLE", "Measured", "Utility", "measured", "of_table", "utility_of"]

TABLE = Path(__file__).with_name("utility.csv")
EPSILONS = (1.0, 3.0, 8.0)
_WORTH = 0.05  #: by which a model must beat what there is without silos
_COMMAND = "python -m bench.planning.utility"
#: task -> method, silos, settings with a place for the number of records in all, and these numbers
_GRID: dict[str, tuple[str, int, tuple[str, ...], tuple[int, ...]]] = {
    "sentence": ("fedavg", 5, ("CORPUS=sentence:sentences={}",), (250, 1000, 5000)),
    "distant": ("lazymil", 4, ("CORPUS=distant:sentences={}",), (1200, 6000)),
    "document": ("fedlcc", 3, ("CORPUS=document:documents={},wordings=1",), (120, 900)),
    "ner": ("fedner", 3, ("CORPUS=ner:sentences={}", f"SET=tags={TAGS}"), (120, 900)),
}
_SIZE = re.compile(r"CORPUS=\w+:(?:sentences|documents)=(\d+)")


@dataclass(frozen=True)
class Measured:
    """One run: so many records at each of so many silos, under a budget."""

    task: str
    method: str
    silos: int
    records: int
    epsilon: float
    metric: str
    value: float
    floor: float  #: what there is without the silos: the model before the first round, or a guess

    @property
    def strength(self) -> float:
        return strength(self.records, self.silos, self.epsilon)


@dataclass(frozen=True)
class Utility:
    """What to expect of a study."""

    metric: str
    floor: float
    by_epsilon: dict[float, float]  #: epsilon -> the metric
    hopeless_below: int  #: records a silo, at the study's own epsilon; 0: no run was hopeless
    method: str  #: with which it was measured
    never_useful: bool = False  #: even so many added nothing, and no more were measured


def strength(records: float, silos: int, epsilon: float) -> float:
    return records * math.sqrt(silos) * epsilon


def measured(path: Path = TABLE) -> list[Measured]:
    """The table's rows; none while the table is being made for the first time."""
    if not path.is_file():
        return []
    kinds = {f.name: {"int": int, "float": float}.get(str(f.type), str) for f in fields(Measured)}
    with path.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [Measured(**{k: kinds[k](v) for k, v in row.items()}) for row in rows]


def utility_of(
    task: str, records: int, silos: int, epsilon: float, rows: Sequence[Measured] | None = None
) -> Utility | None:
    """Of silos with so many records each; None: nothing was measured for this task."""
    own = [r for r in (measured() if rows is None else rows) if r.task == task]
    if not own or not records:
        return None
    curve = _curve(own)
    wanted = sorted({*EPSILONS, epsilon} - {0.0})
    floor = sum(r.floor for r in own) / len(own)
    useful = [x for x, value in curve if value >= floor + _WORTH]
    least = min(useful, default=curve[-1][0])  # as far as it was measured
    each = strength(1, silos, epsilon or 1.0)
    below = 0 if useful and least == curve[0][0] else math.ceil(least / each)
    return Utility(
        own[0].metric,
        floor,
        {e: _at(curve, strength(records, silos, e)) for e in wanted},
        below,
        own[0].method,
        never_useful=not useful,
    )


def _curve(rows: Sequence[Measured]) -> list[tuple[float, float]]:
    """(strength, value), each strength once; more of it never gives less, so dips, which are
    chance, are filled with the mean of what they stand between (isotonic regression).
    """
    by: dict[float, list[float]] = {}
    for r in rows:
        by.setdefault(r.strength, []).append(r.value)
    blocks: list[tuple[float, list[float]]] = []  # mean, the strengths that have it
    for x in sorted(by):
        mean, xs = sum(by[x]) / len(by[x]), [x]
        while blocks and blocks[-1][0] > mean:
            before, more = blocks.pop()
            mean = (before * len(more) + mean * len(xs)) / (len(more) + len(xs))
            xs = more + xs
        blocks.append((mean, xs))
    return [(x, mean) for mean, xs in blocks for x in xs]


def _at(curve: Sequence[tuple[float, float]], x: float) -> float:
    """Between two points by the logarithm of their strengths; beyond the ends, the end."""
    if x <= curve[0][0]:
        return curve[0][1]
    for (a, low), (b, high) in zip(curve, curve[1:]):
        if x <= b:
            share = (math.log(x) - math.log(a)) / (math.log(b) - math.log(a))
            return low + share * (high - low)
    return curve[-1][1]


# How the table is made


def _jobs(tasks: Sequence[str], seeds: tuple[int, ...]) -> Iterator[tuple[Job, int]]:
    for task in tasks:
        method, silos, words, sizes = _GRID[task]
        for size in sizes:
            for epsilon in EPSILONS:
                more = (f"METHOD={method}", f"SILOS={silos}", "DP=record", f"EPSILON={epsilon:g}")
                common = (*(w.format(size) for w in words), *more, "RUNNER=inprocess")
                for seed in seeds:
                    yield Job(task, f"{size} at {epsilon:g}", seed, common), size // silos


def of_table(path: Path, tasks: Sequence[str]) -> list[Measured]:
    """The runs of the privacy table that a plan can use: with a budget, of the method that stands for
    its task, without public text, and of tag sets that overlap.
    """
    found = []
    for line in read_lines(path):
        words, s = tuple(line["key"].split()), line["summary"]
        task = str(s["task"])
        size = _SIZE.search(line["key"])
        if task not in tasks or size is None or "DP=record" not in words:
            continue
        wanted = {f"METHOD={_GRID[task][0]}", *(("SET=tags=" + TAGS,) if task == "ner" else ())}
        if wanted <= set(words) and not any(w.startswith("PUBLIC=") for w in words):
            seed = int(s["seed"])
            job = Job(task, "", seed, tuple(w for w in words if not w.startswith("SEED=")))
            found.append(_row(job, int(size[1]) // int(s["silos"]), Done(s, ())))
    return found


def _row(job: Job, records: int, done: Done) -> Measured:
    s = done.summary
    guess = 0.0
    if s["task"] == "document":  # to predict every pair
        share = s["test_size"]["relations to find"] / s["test_size"]["entity pairs"]
        guess = 2 * share / (1 + share)
    epsilon = float(next(w for w in job.words if w.startswith("EPSILON=")).partition("=")[2])
    floor = round(max(guess, float(s["before_value"])), 4)
    value = round(float(s["value"]), 4)
    own = {k: s[k] for k in ("task", "method", "silos", "metric")}
    return Measured(**own, records=records, epsilon=epsilon, value=value, floor=floor)


def main(words: list[str]) -> None:
    given = {"TASKS": " ".join(_GRID), "SEEDS": "1", "FOLDER": "tables/utility", "RUNS": ""}
    given |= dict(w.split("=", 1) for w in words)
    say = Console()
    with as_program():
        wanted = list(_jobs(given["TASKS"].split(), seed_list(given["SEEDS"])))
        done = run_missing(
            [job for job, _ in wanted], Path(given["FOLDER"]), say, workers=at_once(())
        )
        tasks = given["TASKS"].split()
        rows = [r for r in measured() if r.task not in tasks]
        rows += of_table(Path(given["RUNS"]), tasks) if given["RUNS"] else []
        rows += [_row(job, records, done[job.key]) for job, records in wanted]
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            runs = f" RUNS={given['RUNS']}" if given["RUNS"] else ""
            file.write(
                f"# {_COMMAND} SEEDS={given['SEEDS']}{runs} (TASKS= makes some tasks anew)\n"
            )
            table = csv.writer(file, lineterminator="\n")
            table.writerow([f.name for f in fields(Measured)])
            table.writerows(
                [getattr(r, f.name) for f in fields(Measured)] for r in sorted(rows, key=str)
            )
    say.print(f"table: {TABLE}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main(sys.argv[1:])
