"""What a study leaves: study.md for people, study.csv with every run, study.svg for a paper."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.papers.jobs import Done
from bench.papers.plots import draw_rounds
from bench.papers.results import spread, table_lines
from bench.studies.base import Budget, Claim, Row, Spec, Words
from bench.studies.paired import Verdict, judged, verdict
from config.errors import UserError
from report.files import rounds_to
from report.units import human_bytes

__all__ = ["Chosen", "Outcome", "placeless", "write_pages"]

Cell = tuple[str, str]  #: row, column (empty for a reference)
_NO = "–"
_WHOLE = "fedavg"  #: the row whose bytes others are compared with


def placeless(word: str) -> str:
    """A setting without the place of its folder, which is another one elsewhere."""
    name, _, value = word.partition("=")
    return f"{name}=…/{Path(value).name}" if value.startswith(("/", "~", "..")) else word


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
    trials: Mapping[Cell, Sequence[float | None]]  #: the dev metric; None: it diverged
    seeds: Mapping[Cell, Sequence[Done]]
    command: str
    #: what the most frequent answer scores; empty: nothing, because that answer is "nothing"
    majority: Mapping[str, float] = field(default_factory=dict)
    search_seconds: float = 0.0  #: of a core, for the trials
    common: Words = ()  #: what all runs have

    def values(self, cell: Cell, key: str) -> list[float]:
        """By seed. One that diverged has no model, and counts as zero."""
        group, _, name = key.rpartition(".")
        found = [
            {name: 0.0} if d.diverged else d.summary[group] if group else d.summary
            for d in self.seeds[cell]
        ]
        return [float(s[name]) for s in found if name in s]

    def finished(self, row: str, column: str) -> list[Done]:
        """The runs that did not diverge."""
        return [d for d in self.seeds[self.cell(row, column)] if not d.diverged]

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
                    self._share(claim, column),
                )
                for claim in self.spec.claims
                if {claim.better, claim.than} <= set(self.rows)
            ]
            for column in self.spec.columns
        }

    def up(self, row: str, column: str) -> float:
        """Bytes that a silo sends in a round."""
        sent = [float(d.summary["arrays_up_per_silo_round"]) for d in self.finished(row, column)]
        return statistics.fmean(sent) if sent else 0.0

    def _share(self, claim: Claim, column: str) -> float | None:
        if claim.bytes_at_most is None or claim.bytes_at_most[0] not in self.rows:
            return None
        whole = self.up(claim.bytes_at_most[0], column)
        return self.up(claim.better, column) / whole if whole else None


def write_pages(folder: Path, outcome: Outcome, name: str = "study") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / f"{name}.csv", outcome)
    dev = {
        column: {
            row: _mean_by_round(outcome.finished(row, column))
            for row, of in outcome.rows.items()
            if not of.reference
        }
        for column in outcome.spec.columns
    }
    metric = str(_any(outcome)["metric"])
    draw_rounds(folder / f"{name}.svg", dev, f"dev {metric}")
    path = folder / f"{name}.md"
    path.write_text("\n".join(_page(outcome, name)) + "\n", "utf-8")
    return path


def _any(outcome: Outcome) -> Mapping[str, Any]:
    for done in (d for runs in outcome.seeds.values() for d in runs if not d.diverged):
        return done.summary
    raise UserError("Training diverged in every run of this study: lower the rates it searches.")


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
                start = [*cell, k, own.trial, " ".join(map(placeless, own.words))]
                if done.diverged:
                    out.writerow([*start, "diverged", 0.0])
                    continue
                up = s["arrays_up_per_silo_round"]
                end = [s["metric"], s["value"], s["dev_value"], s["selected_round"], up]
                given = (s["figures"].get(f, "") for f in figures)
                out.writerow([*start, *end, s["before_value"], *given])


def _page(o: Outcome, name: str) -> list[str]:
    spec, some, found = o.spec, _any(o), o.verdicts()
    word = verdict([v for vs in found.values() for v in vs])
    return [
        f"# {spec.title}: {o.corpus}",
        "",
        f"**{word[0].upper()}{word[1:]}.** {spec.claim}",
        "",
        f"Made by `{o.command}`. Corpus: {some['corpus']} ({some['corpus_note']}). Network: {some['network']}, "
        f"{some['parameters_trained']:,} numbers. Every run's figures: [{name}.csv]({name}.csv).",
        "",
        *_claims(found),
        *(line for note in spec.notes for line in (note, "")),
        *_metrics(o),
        *_late(o),
        *_bytes(o),
        f"![dev metric by round, mean over seeds]({name}.svg)",
        "",
        *_how(o),
    ]


def _claims(found: Mapping[str, Sequence[Verdict]]) -> list[str]:
    rows = [
        [column, _said(v), f"{v.claim.by:+.2f}", str(v.difference), f"**{v.word}**"]
        for column, verdicts in found.items()
        for v in verdicts
    ]
    missed = {v.claim.otherwise: None for vs in found.values() for v in vs if v.word != "holds"}
    return [
        "## What was claimed, and what came out",
        "",
        *table_lines(["", "claim", "by more than", "difference [95 % interval]", ""], rows),
        "",
        "Differences are paired by seed, on test; intervals are bootstrapped over seeds, and with so few seeds "
        "rather too narrow than too wide. A claim *holds* if all of the interval is above what is claimed. It *fails* "
        "if the mean is not, or if too many bytes are sent. Else it is *open*. The verdict counts the paper's claims "
        'alone: "holds" if all hold, "holds in part" if some do, "does not hold here" if none does.',
        "",
        *(line for reason in missed if reason for line in (f"- Why not: {reason}", "")),
    ]


def _said(v: Verdict) -> str:
    """The claim, whose it is, and what share of the other row's bytes was sent."""
    text = v.claim.says + (" (ours, from trials)" if v.claim.ours else "")
    if v.bytes_share and v.claim.bytes_at_most:
        text += f"; its bytes are 1/{1 / v.bytes_share:,.0f} of those of {v.claim.bytes_at_most[0]}"
    return text


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
        always = o.majority.get(key.rpartition(".")[2])
        score = _NO if always is None and o.majority else f"{always or 0.0:.4f}"
        what = "always the most frequent answer (reference)"
        rows.append([what, score, *[""] * (len(columns) - 1)])
        text += [f"## {label}, test", "", *table_lines(["", *columns], rows), ""]
    return text


def _late(o: Outcome) -> list[str]:
    """A round chosen on dev flatters a model that jumps about; the mean over late rounds does not."""
    n, columns = o.spec.steady, list(o.spec.columns)
    rows = [
        [row, *(spread([_steady(d, n) for d in o.seeds[row, c]]) for c in columns)]
        for row, of in o.rows.items()
        if not of.reference
    ]
    head = f"## dev, mean over the last {n} rounds (no round chosen)"
    return [head, "", *table_lines(["", *columns], rows), ""]


def _steady(done: Done, last: int) -> float:
    return 0.0 if done.diverged else statistics.fmean(done.dev[-last:])


def _bytes(o: Outcome) -> list[str]:
    """Rounds and bytes until dev reaches the target, and what one message weighs."""
    column = next(iter(o.spec.columns))
    rows = []
    for row, of in o.rows.items():
        if of.reference:
            continue
        runs = o.seeds[row, column]
        up = o.up(row, column)
        reached = [rounds_to(o.spec.target, d.dev) for d in runs] if o.spec.target else []
        took = ", ".join(str(r) if r else _NO for r in reached) or _NO
        met = [r for r in reached if r]
        total = human_bytes(up * statistics.median(met)) if len(met) == len(reached) > 0 else _NO
        whole = o.up(_WHOLE, column) if _WHOLE in o.rows else 0.0
        share = f"1/{whole / up:,.0f}" if up and whole > 2 * up else _NO
        rows.append([row, human_bytes(up), share, took, total])
    head = ["", "up per silo and round", f"of {_WHOLE}'s", f"rounds to dev {o.spec.target:g}"]
    head.append("bytes to it, median")
    return [f"## Bytes ({column})", "", *table_lines(head, rows), ""]


def _searched(o: Outcome, row: str, chosen: Chosen) -> str:
    """Of a trial's settings the row's own and those that were searched; what all have is above."""
    names = {name.removeprefix("SET=").rstrip("=") for name in o.rows[row].own}
    names |= {name for one in o.spec.space for name in one}
    table = dict(w.partition("=")[::2] for w in chosen.words)
    given = [f"{k}={v}" for k, v in table.items() if k != "SET"] + table.get("SET", "").split()
    own = [placeless(w).removeprefix("SET=") for w in o.rows[row].words]
    return " ".join([*own, *(w for w in given if w.partition("=")[0] in names)])


def _minutes(o: Outcome) -> int:
    spent = sum(float(d.summary["cpu_seconds"]) for runs in o.seeds.values() for d in runs)
    return math.ceil((spent + o.search_seconds) / 60)


def _diverged(o: Outcome) -> list[str]:
    """Rates are drawn, and some are too high. That is a result of the row that drew them."""
    cells = {" ".join(filter(None, cell)): cell for cell in o.chosen}
    said = []
    for name, cell in cells.items():
        trials = sum(value is None for value in o.trials[cell])
        seeds = sum(d.diverged for d in o.seeds[cell])
        counts = (f"{trials} of its trials", f"{seeds} of its seeds")
        if some := " and ".join(w for n, w in zip((trials, seeds), counts) if n):
            said.append(f"{name}: {some}")
    if not said:
        return []
    line = f"Training diverged in {'; '.join(said)}. Such a run counts as zero in every metric."
    return [line, ""]


def _how(o: Outcome) -> list[str]:
    spec, budget = o.spec, o.budget
    searched = "; or ".join(
        ", ".join(f"{name}={span}" for name, span in one.items()) for one in spec.space
    )
    own = [
        f"- {row}: `{name}` {span}" for row, of in o.rows.items() for name, span in of.own.items()
    ]
    rows = [
        [*cell, f"{c.trial} of {budget.trials}", f"`{_searched(o, cell[0], c)}`", f"{c.dev:.4f}"]
        for cell, c in o.chosen.items()
    ]
    return [
        "## How",
        "",
        f"All runs: `{' '.join(map(placeless, o.common))}`.",
        "",
        f"Every row had {budget.trials} trials in every column, judged on dev alone, with seeds that are not reported. "
        f"Searched by all, the same points: {searched}. Of their own:",
        "",
        *(own or ["- nothing"]),
        "",
        f"Then {budget.seeds} seeds with what was chosen. Seed k cuts the data by PARTITION_SEED=k and starts the "
        "network from SEED=100+k. The round is chosen on dev. Nothing was chosen by looking at test. "
        f"All runs together took {_minutes(o)} CPU minutes.",
        "",
        *_diverged(o),
        *(f"- Not as in the paper: {d}" for d in spec.departs),
        "",
        *table_lines(["", "", "trial", "settings", "its dev"], rows),
    ]
