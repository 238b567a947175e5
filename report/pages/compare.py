"""The comparison page: methods beside each other over the same seeds, from the files of their
runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from report.files import RunFiles, rounds_to
from report.pages.bytes import round_bytes
from report.pages.charts import Chart, Series, draw
from report.pages.elements import NONE, Html, data, node, page, section, table
from report.pages.words import up_per_silo_round
from report.units import duration, human_bytes

__all__ = ["MODELS", "Group", "compare_page", "grouped", "paired"]

#: What FedAvg would send of the two usual encoders, float32: parameters of bert-base-uncased and
#: bert-large-uncased.
MODELS = {"BERT-base, float32": 4 * 109_482_240, "BERT-large, float32": 4 * 335_141_888}


@dataclass(frozen=True)
class Group:
    """The runs of one method, by seed."""

    name: str
    runs: Mapping[int, RunFiles]

    @property
    def values(self) -> dict[int, float]:
        return {seed: float(r.summary["value"]) for seed, r in self.runs.items()}

    def up(self, run: RunFiles) -> float:
        """Bytes up per silo and round: on the wire where there was one, else the arrays as
        coded.
        """
        return up_per_silo_round(run)

    @property
    def mean_up(self) -> float:
        return statistics.fmean(self.up(r) for r in self.runs.values())


def grouped(runs: Sequence[RunFiles]) -> list[Group]:
    """By method and, where one method comes with several settings, by what tells them apart."""
    by: dict[str, dict[int, RunFiles]] = {}
    for run in runs:
        s = run.summary
        name = str(s["method"])
        while s["seed"] in by.get(name, {}):
            # a second run of the same method and seed is another row, not another sample
            name += "′"
        by.setdefault(name, {})[int(s["seed"])] = run
    return [Group(name, dict(sorted(found.items()))) for name, found in by.items()]


def paired(
    a: Mapping[int, float], b: Mapping[int, float]
) -> tuple[float, int, int, float | None] | None:
    """Mean of a - b over the common seeds, in how many a is above, of how many, and the p-value of
    a paired t-test.

    The p-value is None where it has no meaning: below two pairs, or where all differences are
    alike.
    """
    from scipy import stats

    seeds = sorted(set(a) & set(b))
    if not seeds:
        return None
    d = [a[s] - b[s] for s in seeds]
    p = None
    if len(d) > 1 and statistics.stdev(d) > 0:
        p = float(stats.ttest_1samp(d, 0.0).pvalue)
    return statistics.fmean(d), sum(x > 0 for x in d), len(d), p


def compare_page(groups: Sequence[Group], target: float, bandwidth: float) -> str:
    first = next(iter(groups[0].runs.values())).summary
    runs = [r for g in groups for r in g.runs.values()]
    seeds = sorted({s for g in groups for s in g.runs})
    metric = str(first["metric"])
    corpora = sorted({str(r.summary["corpus"]) for r in runs})
    lead = (
        f"{len(groups)} methods, {len(runs)} runs on {', '.join(corpora)}; seeds {', '.join(map(str, seeds))}. Figures "
        f"are test {metric} of the model chosen on dev, mean and standard deviation over seeds."
    )
    notes = [node("p", w, class_="warning", role="note") for w in _warnings(runs)]
    parts = [
        node(
            "header", node("h1", f"Comparison by {metric}"), node("p", lead, class_="lead"), *notes
        ),
        _table(groups, metric),
        _against(groups, metric),
        _fronts(groups, metric),
        _target(groups, metric, target),
        _upload(groups, bandwidth),
        _runs(groups),
    ]
    return page(f"Comparison by {metric}", *parts)


def _warnings(runs: Sequence[RunFiles]) -> list[str]:
    """What makes a comparison unfair, where something does."""
    found = []
    for key, word in (
        ("corpus_sha256", "data"),
        ("partition", "partition"),
        ("silos", "number of silos"),
        ("rounds", "number of rounds"),
    ):
        by_seed: dict[int, set[object]] = {}
        for r in runs:
            by_seed.setdefault(r.summary["seed"], set()).add(r.summary[key])
        if any(len(v) > 1 for v in by_seed.values()):
            found.append(
                f"The runs of one seed do not have the same {word}: differences between rows may come from it."
            )
    for name in sorted({str(r.summary["method"]) for r in runs if r.summary["reference"]}):
        found.append(f"{name} is no federation and stands here as a reference.")
    if any(not r.on_the_wire for r in runs):
        found.append(
            "Some runs had no wire (RUNNER=inprocess): their bytes are the arrays as coded, without framing and keys."
        )
    return found


def _before(summaries: Sequence[Mapping[str, Any]]) -> str:
    values = [s["before_value"] for s in summaries if "before_value" in s]
    mean = f"{statistics.fmean(values):.4f}" if values else NONE
    return mean + ", public text alone" * any(s.get("public") for s in summaries)


def _table(groups: Sequence[Group], metric: str) -> Html:
    def row(g: Group) -> tuple[str | Html, ...]:
        values = list(g.values.values())
        spread = f"{statistics.stdev(values):.4f}" if len(values) > 1 else NONE
        summaries = [r.summary for r in g.runs.values()]
        epsilon = {str(s["epsilon"]) for s in summaries}
        return (
            g.name,
            data(statistics.fmean(values), f"{statistics.fmean(values):.4f}"),
            spread,
            str(len(values)),
            data(g.mean_up, human_bytes(g.mean_up)),
            ", ".join(sorted("infinite" if e == "inf" else e for e in epsilon)),
            _before(summaries),
            duration(statistics.fmean(s["wall_seconds"] for s in summaries)),
        )

    best = sorted(groups, key=lambda g: -statistics.fmean(g.values.values()))
    head = (
        "method",
        f"mean {metric}",
        "deviation",
        "seeds",
        "up per silo and round",
        "epsilon",
        "before the first round",
        "wall time",
    )
    return section(
        "answer", "The answer", table(head, map(row, best), "Best first", id_="answer-table")
    )


def _against(groups: Sequence[Group], metric: str) -> Html:
    own, *others = groups
    rows = []
    for g in others:
        found = paired(own.values, g.values)
        if found is None:
            rows.append((g.name, "no seed in common", NONE, NONE))
            continue
        mean, above, of, p = found
        rows.append(
            (
                g.name,
                data(mean, f"{mean:+.4f}"),
                f"{above} of {of}",
                NONE if p is None else f"{p:.3f}",
            )
        )
    note = (
        f"{own.name} minus each other, seed by seed, so that what a seed does to both falls out. p is of a two-sided "
        "paired t-test; with few seeds it can hardly be small, and it is not corrected for the number of rows."
    )
    head = (f"{own.name} minus", f"mean difference in {metric}", "above in seeds", "p")
    return section(
        "paired",
        "Difference and significance",
        node("p", note),
        table(head, rows, "Paired by seed", id_="paired-table"),
    )


def _fronts(groups: Sequence[Group], metric: str) -> Html:
    byte_points = [
        Series(
            g.name,
            [(g.up(r), float(r.summary["value"])) for r in g.runs.values()],
            kind="scatter",
            labels=[f"{g.name}, seed {seed}" for seed in g.runs],
        )
        for g in groups
    ]
    curves = []
    for g in groups:
        seed, r = next(iter(g.runs.items()))
        sent = accumulate(round_bytes(r, "up"))
        told = [(b, x) for b, x in zip(sent, r.rounds) if x["dev"] is not None]
        points = [(float(b), float(x["dev"])) for b, x in told]
        curves.append(
            Series(
                g.name,
                points,
                labels=[f"{g.name}, seed {seed}, round {x['round'] + 1}" for _, x in told],
            )
        )
    parts = [
        draw(
            Chart(
                "front-bytes",
                f"test {metric} against bytes up per silo and round",
                "Up and to the left is better. One point a run; the axis of bytes is logarithmic.",
                "bytes up per silo and round",
                f"test {metric}",
                byte_points,
                x_unit="bytes",
                x_log=True,
            )
        ),
        draw(
            Chart(
                "convergence",
                f"dev {metric} against the bytes that all silos uploaded so far",
                "One line a method, its first seed.",
                "bytes uploaded",
                f"dev {metric}",
                curves,
                x_unit="bytes",
            )
        ),
    ]
    private = [g for g in groups if all(r.summary["epsilon"] != "inf" for r in g.runs.values())]
    if private:
        budgets = [
            Series(
                g.name,
                [(float(r.summary["epsilon"]), float(r.summary["value"])) for r in g.runs.values()],
                kind="scatter",
                labels=[f"{g.name}, seed {seed}" for seed in g.runs],
            )
            for g in private
        ]
        parts.append(
            draw(
                Chart(
                    "front-epsilon",
                    f"test {metric} against epsilon",
                    "Runs without noise have no finite epsilon and are not shown.",
                    "epsilon",
                    f"test {metric}",
                    budgets,
                    x_unit="epsilon",
                )
            )
        )
    else:
        parts.append(
            node(
                "p",
                "No run here added noise: epsilon is infinite for all, and there is no front to draw.",
            )
        )
    return section("fronts", "What quality costs", *parts)


def _target(groups: Sequence[Group], metric: str, target: float) -> Html:
    """Rounds and bytes per silo until dev reaches the target, a figure a seed."""
    if not target:
        note = "TARGET=… (a value of the dev metric) adds the rounds and bytes until each method reaches it."
        return section("target", "Rounds and bytes to a target", node("p", note))
    rows = []
    for g in groups:
        rounds, sent = [], []
        for r in g.runs.values():
            reached = rounds_to(target, [x["dev"] for x in r.rounds])
            rounds.append(str(reached) if reached else NONE)
            sent.append(human_bytes(sum(round_bytes(r, "up")[:reached])) if reached else NONE)
        rows.append((g.name, ", ".join(rounds), ", ".join(sent)))
    head = ("method", "rounds, one figure a seed", "bytes uploaded by all silos until then")
    note = f"Until dev {metric} is {target:g}; {NONE}: not reached."
    return section(
        "target",
        "Rounds and bytes to a target",
        node("p", note),
        table(head, rows, "To the target", id_="target-table"),
    )


def _upload(groups: Sequence[Group], bandwidth: float) -> Html:
    rows = [
        (g.name, data(g.mean_up, human_bytes(g.mean_up)), duration(g.mean_up / bandwidth))
        for g in groups
    ]
    fedavg = next(iter(groups[0].runs.values())).summary.get("model_float32_bytes", 0)
    if fedavg:
        rows.append(
            (
                "this model, FedAvg, float32",
                data(fedavg, human_bytes(fedavg)),
                duration(fedavg / bandwidth),
            )
        )
    rows += [(name, data(n, human_bytes(n)), duration(n / bandwidth)) for name, n in MODELS.items()]
    note = (
        f"How long one silo uploads in one round at {human_bytes(bandwidth)}/s. The last rows are computed from the "
        "number of parameters, not measured."
    )
    head = ("", "up per silo and round", "upload time")
    return section(
        "upload",
        "Time on the wire",
        node("p", note),
        table(head, rows, "Upload time", id_="upload-table"),
    )


def _runs(groups: Sequence[Group]) -> Html:
    rows = [
        (
            g.name,
            str(seed),
            f"{r.summary['value']:.4f}",
            r.path.name,
            str(r.config.get("run", {}).get("command", "")),
        )
        for g in groups
        for seed, r in g.runs.items()
    ]
    head = ("method", "seed", "value", "folder", "command")
    return section(
        "runs", "The runs", table(head, rows, "Every run", numbers=False, id_="runs-table")
    )
