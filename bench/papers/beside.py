"""What stands beside a table's page: every run as a line of a CSV file, and what a guess gives."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.papers.results import Results
from config.load import load
from config.settings import Settings
from methods import default_corpus
from methods.tasks.base import Task
from methods.tasks.load import is_built_in, load_task

__all__ = ["majorities", "settings_of", "write_csv"]

_COLUMNS = ("method", "metric", "value", "before_value", "dev_value", "epsilon", "delta")


def write_csv(path: Path, results: Results) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("row", "column", "seed", *_COLUMNS))
        for (row, column, seed), done in sorted(results.runs.items()):
            table.writerow((row, column, seed, *(done.summary.get(k, "") for k in _COLUMNS)))


def settings_of(words: tuple[str, ...]) -> Settings:
    """Of a run, from the words that a user would type."""
    given: dict[str, str] = {}
    for name, _, value in (w.partition("=") for w in words):
        knobs = (v.partition("=") for v in value.split()) if name == "SET" else ()
        given |= (
            {f"options.{k}": v for k, _, v in knobs} if name == "SET" else {name.lower(): value}
        )
    return load(None, given)


def majorities(
    rows: Mapping[str, tuple[str, ...]], seeds: Mapping[str, Iterable[int]], folder: Path
) -> dict[str, dict[int, float]]:
    """By row and seed, the test metric of a guess that knows nothing but how often each class is; of
    documents, of predicting every pair. Made once: a corpus has to be read for it. A built-in corpus
    is another one for every seed.
    """
    path = folder / "majority.json"
    made: dict[str, float] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    found: dict[str, dict[int, float]] = {}
    for row, words in rows.items():
        found[row] = {}
        for seed in seeds[row]:
            settings = settings_of((*words, f"SEED={seed}"))
            drawn = is_built_in(settings.corpus or default_corpus(settings.method))
            name = f"{row}, seed {seed}" if drawn else row
            if name not in made:
                made[name] = _guess(load_task(settings))
            found[row][seed] = made[name]
    path.write_text(json.dumps(made, indent=1), "utf-8")
    return found


def _guess(task: Task) -> float:
    found = task.majority("test")
    if found is not None:
        return float(found.value)
    if task.name != "document":
        return 0.0  # to say nothing
    held = task.held_out("test")
    share = held["relations to find"] / held["entity pairs"]
    return 2 * share / (1 + share)
