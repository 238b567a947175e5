"""What a study leaves: study.md for people, study.csv with every run, rounds.svg for a paper."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.papers.jobs import Done
from bench.papers.page import spread, table_lines
from bench.papers.plots import draw_rounds
from bench.studies.base import Budget, Row, Spec, Words
from bench.studies.paired import Verdict, judged, verdict
from report.files import rounds_to
from report.units import human_bytes

__all__ = ["Chosen", "Outcome", "write_pages"]

Cell = tuple[str, str]  #: row, column (empty for a reference)
_NO = "–"


@dataclass(frozen=True)
class Chosen:
    trial: int
    words: Words
    dev: float


@dataclass(frozen=True)
class Outcome:
    spec: Spec
    corpus: str
    budget: Budget
    rows: Mapping[str, Row]
    chosen: Mapping[Cell, Chosen]
    trials: Mapping[Cell, Sequence[float]]
    seeds: Mapping[Cell, Sequence[Done]]
    command: str

    def values(self, cell: Cell, key: str) -> list[float]:
        group, _, name = key.rpartition(".")
        found = [d.summary[group] if group else d.summary for d in self.seeds[cell]]
        return [float(s[name]) for s in found if name in s]

    def cell(self, row: str, column: str) -> Cell:
        return (row, "" if self.rows[row].reference else column)

    def verdicts(self) -> dict[str, list[Verdict]]:
        """By column; claims about rows that were left out are not judged."""
        key = next(iter(self.spec.metrics.values()))
        return {
            column: [
                judged(
                    claim,
                    self.values(self.cell(claim.better, column), key),
                    self.values(self.cell(claim.than, column), key),
                )
                for claim in self.spec.claims
                if {claim.better, claim.than} <= set(self.rows)
            ]
            for column in self.spec.columns
        }


def write_pages(folder: Path, outcome: Outcome) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / "study.csv", outcome)
    dev = {
        column: {
            row: _mean_by_round(outcome.seeds[row, column])
            for row, of in outcome.rows.items()
            if not of.reference
        }
        for column in outcome.spec.columns
    }
    metric = str(_any(outcome)["metric"])
    draw_rounds(folder / "rounds.svg", dev, f"dev {metric}")
    path = folder / "study.md"
    path.write_text("\n".join(_page(outcome)) + "\n", "utf-8")
    return path


def _any(outcome: Outcome) -> Mapping[str, Any]:
    return next(iter(outcome.seeds.values()))[0].summary


def _mean_by_round(runs: Sequence[Done]) -> list[float]:
    return [statistics.fmean(values) for values in zip(*(d.dev for d in runs))]


def _write_csv(path: Path, outcome: Outcome) -> None:
    """One line for every reported run: what a reader needs to compute all of the page again."""
    with path.open("w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        figures = sorted(_any(outcome)["figures"])
        head = ["row", "column", "seed", "trial", "settings", "metric", "value", "dev", "round"]
        out.writerow([*head, "up_per_silo_round", "before", *figures])
        for cell, runs in outcome.seeds.items():
            for k, done in enumerate(runs):
                s, own = done.summary, outcome.chosen[cell]
                up = s["arrays_up_per_silo_round"]
                start = [*cell, k, own.trial, " ".join(own.words), s["metric"], s["value"]]
                end = [s["dev_value"], s["selected_round"], up, s["before_value"]]
                out.writerow([*start, *end, *(s["figures"].get(f, "") for f in figures)])


def _page(o: Outcome) -> list[str]:
    spec, some, found = o.spec, _any(o), o.verdicts()
    return [
        f"# {spec.title}: {o.corpus}",
        "",
        f"**{verdict([v for vs in found.values() for v in vs])}.** {spec.claim}",
        "",
        f"Made by `{o.command}`. Corpus: {some['corpus']} ({some['corpus_note']}). Network: {some['network']}.",
        "",
        *_claims(found),
        *_metrics(o),
        *_late(o),
        *_bytes(o),
        "![dev metric by round, mean over seeds](rounds.svg)",
        "",
        *_how(o),
    ]


def _claims(found: Mapping[str, Sequence[Verdict]]) -> list[str]:
    rows = [
        [column, v.claim.says, f"{v.claim.by:+.2f}", str(v.difference), v.word]
        for column, verdicts in found.items()
        for v in verdicts
    ]
    return [
        "## What was claimed, and what came out",
        "",
        *table_lines(["", "claim", "by more than", "difference [95 % interval]", ""], rows),
        "",
        "Differences are paired by seed, on test; intervals are bootstrapped over seeds, and with so few seeds "
        "rather too narrow than too wide. *open*: the mean is above what is claimed, and the interval is not.",
        "",
    ]


def _metrics(o: Outcome) -> list[str]:
    text, columns = [], list(o.spec.columns)
    for label, key in o.spec.metrics.items():
        rows = []
        for row, of in o.rows.items():
            cells = [o.values(o.cell(row, c), key) for c in columns]
            shown = [spread(v) if v else _NO for v in cells]
            if of.reference:
                shown = [shown[0], *[""] * (len(columns) - 1)]
            rows.append([f"{row} (reference)" if of.reference else row, *shown])
        text += [f"## {label}, test", "", *table_lines(["", *columns], rows), ""]
    return text


def _late(o: Outcome) -> list[str]:
    """A round chosen on dev flatters a model that jumps about; the mean over late rounds does not."""
    n, columns = o.spec.steady, list(o.spec.columns)
    rows = [
        [row, *(spread([statistics.fmean(d.dev[-n:]) for d in o.seeds[row, c]]) for c in columns)]
        for row, of in o.rows.items()
        if not of.reference
    ]
    head = f"## dev, mean over the last {n} rounds (no round chosen)"
    return [head, "", *table_lines(["", *columns], rows), ""]


def _bytes(o: Outcome) -> list[str]:
    """Rounds and bytes until dev reaches the target, and what one message weighs."""
    column = next(iter(o.spec.columns))
    rows = []
    for row, of in o.rows.items():
        if of.reference:
            continue
        runs = o.seeds[row, column]
        up = float(runs[0].summary["arrays_up_per_silo_round"])
        reached = [rounds_to(o.spec.target, d.dev) for d in runs] if o.spec.target else []
        took = ", ".join(str(r) if r else _NO for r in reached) or _NO
        met = [r for r in reached if r]
        total = human_bytes(up * statistics.median(met)) if len(met) == len(reached) > 0 else _NO
        rows.append([row, human_bytes(up), took, total])
    head = ["", "up per silo and round", f"rounds to dev {o.spec.target:g}", "bytes to it, median"]
    return [f"## Bytes ({column})", "", *table_lines(head, rows), ""]


def _how(o: Outcome) -> list[str]:
    spec, budget = o.spec, o.budget
    searched = "; or ".join(
        ", ".join(f"{name}={span}" for name, span in one.items()) for one in spec.space
    )
    own = [
        f"- {row}: `{name}` {span}" for row, of in o.rows.items() for name, span in of.own.items()
    ]
    rows = [
        [*cell, f"{c.trial} of {budget.trials}", f"`{' '.join(c.words)}`", f"{c.dev:.4f}"]
        for cell, c in o.chosen.items()
    ]
    return [
        "## How",
        "",
        f"Every row had {budget.trials} trials in every column, judged on dev alone, with seeds that are not reported. "
        f"Searched by all, the same points: {searched}. Of their own:",
        "",
        *(own or ["- nothing"]),
        "",
        f"Then {budget.seeds} seeds with what was chosen. Seed k cuts the data by PARTITION_SEED=k and starts the "
        "network from SEED=100+k. The round is chosen on dev. Nothing was chosen by looking at test.",
        "",
        *(f"- Not as in the paper: {d}" for d in spec.departs),
        "",
        *table_lines(["", "", "trial", "settings", "its dev"], rows),
    ]
