"""The page that `make table` writes: figures with their spread over seeds, and a paper's own, apart
and labelled.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from bench.papers import Comparison
from bench.papers.gains import Guesses, gains, guessed
from bench.papers.jobs import Done
from bench.papers.readings import readings
from bench.papers.results import Results, spread, table_lines
from report.files import rounds_to
from report.units import human_bytes

__all__ = ["CONVERGENCE", "first_metric", "page", "panels"]

NOT_REACHED = "–"
CONVERGENCE = "rounds.svg"  #: the picture beside the page
NOTHING: Guesses = {}
_BEFORE = "before_value"


def page(
    comparison: Comparison,
    common: tuple[str, ...],
    results: Results,
    corpus: str,
    guesses: Guesses = NOTHING,
) -> str:
    first = next(iter(results.runs.values())).summary
    used = {str(d.summary["corpus"]): None for d in results.runs.values()}
    metrics = " or ".join({str(d.summary["metric"]): None for d in results.runs.values()})
    seeds = ", ".join(map(str, results.seeds))
    parts = [
        f"# {comparison.title}",
        "",
        f"Our runs on {', '.join(used)}, `{' '.join(common)}`; mean ± standard deviation over "
        f"{len(results.seeds)} seeds ({seeds}), test split, model chosen on dev ({metrics}).",
        "",
        *_metrics(comparison, results),
        *(guessed(guesses) if guesses else ()),
        *(gains(comparison, results, guesses) if comparison.gains else ()),
        *_compared(comparison, results),
    ]
    if comparison.convergence:
        parts += [f"![dev metric by round, mean over seeds]({CONVERGENCE})", ""]
    if comparison.target:
        parts += _rounds(comparison, results, str(first["metric"]))
    if comparison.steady:
        parts += _steady(comparison, results, str(first["metric"]))
    if comparison.messages:
        parts += _messages(comparison, results)
    if comparison.per_class:
        parts += _per_class(comparison, results)
    for table in comparison.published:
        if corpus and table.corpus in Path(corpus).name.lower():
            head = f"## Printed in the paper, not run by us: {table.source}"
            parts += [head, "", *table_lines(list(table.head), [list(r) for r in table.rows]), ""]
    by_seed = [d.summary for _, d in sorted(results.runs.items(), key=lambda run: run[0][2])]
    parts += ["## How the corpora were read", "", *readings(by_seed), ""]
    return "\n".join(parts)


def first_metric(results: Results) -> str:
    return str(next(iter(results.runs.values())).summary["metric"])


def panels(comparison: Comparison, results: Results) -> dict[str, dict[str, list[float]]]:
    """What the picture shows: per column every method, and the paper's own method with its variants
    in the last.
    """

    def mean(row: str, column: str) -> list[float]:
        return [
            statistics.fmean(values) for values in zip(*(d.dev for d in results.of(row, column)))
        ]

    shown = {c: {m: mean(m, c) for m in comparison.methods} for c in comparison.columns}
    if comparison.variants:
        last, own = list(comparison.columns)[-1], comparison.methods[0]
        shown[f"variants, {last}"] = {r: mean(r, last) for r in (own, *comparison.variants)}
    return shown


def _names(comparison: Comparison) -> list[str]:
    return [*comparison.methods, *comparison.variants]


def _shown(comparison: Comparison, results: Results) -> dict[str, str]:
    """Where a budget was given, what there was without the silos stands beside every metric."""
    shown, runs = dict(comparison.metrics), [d.summary for d in results.runs.values()]
    budget = any(s.get("epsilon", "inf") != "inf" for s in runs)
    if budget and _BEFORE not in shown.values() and all(_BEFORE in s for s in runs):
        alone = " (with public text: of that text alone)" if any(s["public"] for s in runs) else ""
        shown[f"{runs[0]['metric']} before the first round{alone}"] = _BEFORE
    return shown


def _metrics(comparison: Comparison, results: Results) -> list[str]:
    text, columns = [], list(comparison.columns)
    some = next(iter(results.runs.values())).summary
    for label, key in _shown(comparison, results).items():
        group, _, name = key.rpartition(".")
        if group and name not in some[group]:
            # a figure of the built-in corpus (one of its domains) that this corpus does not have
            continue
        rows = [[r, *(_cell(results, r, c, key) for c in columns)] for r in _names(comparison)]
        text += [f"## {label}", "", *table_lines(["", *columns], rows), ""]
        references = [[r, _cell(results, r, "", key)] for r in comparison.references]
        if references:
            text += [*table_lines(["reference, not a federation", label], references), ""]
    return text


def _cell(results: Results, row: str, column: str, metric: str) -> str:
    """With the number of seeds where it is not the page's; nothing where nothing was run."""
    values = results.values(row, column, metric)
    other = f" ({len(values)} seed{'s' * (len(values) > 1)})" * (len(values) != len(results.seeds))
    return f"{spread(values)}{other}" if values else ""


def _paired(ours: list[float], theirs: list[float]) -> str:
    pairs = [a - b for a, b in zip(ours, theirs)]  # seeds that both have, from the first on
    if not pairs:
        return ""
    return f"{statistics.fmean(pairs):+.4f} ({sum(p > 0 for p in pairs)} of {len(pairs)})"


def _compared(comparison: Comparison, results: Results) -> list[str]:
    if comparison.against:
        return _against(comparison, results)
    # rows of several corpora are not compared with each other
    return [] if comparison.places else _first_row(comparison, results)


def _against(comparison: Comparison, results: Results) -> list[str]:
    base, metric = comparison.against, next(iter(comparison.metrics.values()))
    rest = [c for c in comparison.columns if c != base]
    # cut down by COLUMNS: nothing to compare with
    if len(rest) == len(comparison.columns) or not rest:
        return []
    rows = [
        [r, *(_paired(results.values(r, c, metric), results.values(r, base, metric)) for c in rest)]
        for r in _names(comparison)
    ]
    return [
        f"## each minus {base}, seed by seed (and in how many seeds it is above)",
        "",
        *table_lines(["", *rest], rows),
        "",
    ]


def _first_row(comparison: Comparison, results: Results) -> list[str]:
    (own, *others), columns = _names(comparison), list(comparison.columns)
    text = []
    for label, metric in list(comparison.metrics.items())[: 2 if comparison.per_class else 1]:
        rows = [
            [
                r,
                *(
                    _paired(results.values(own, c, metric), results.values(r, c, metric))
                    for c in columns
                ),
            ]
            for r in others
        ]
        title = f"## {own} minus each, {label}, seed by seed (and in how many seeds it is above)"
        text += [title, "", *table_lines(["", *columns], rows), ""]
    return text


def _rounds(comparison: Comparison, results: Results, metric: str) -> list[str]:
    def cell(row: str, column: str) -> str:
        reached = [
            rounds_to(comparison.target, d.dev) if d.dev else None for d in results.of(row, column)
        ]
        return ", ".join(str(r) if r else NOT_REACHED for r in reached)

    longest = max(len(d.dev) for d in results.runs.values())
    rows = [[r, *(cell(r, c) for c in comparison.columns)] for r in _names(comparison)]
    return [
        f"## Rounds until dev {metric} is {comparison.target:g} (one figure a seed)",
        "",
        *table_lines(["", *comparison.columns], rows),
        "",
        f"{NOT_REACHED}: not reached in {longest} rounds. TARGET=… asks for another value without new runs.",
        "",
    ]


def _steady(comparison: Comparison, results: Results, metric: str) -> list[str]:
    """A round chosen on dev flatters a model that jumps about; the mean over late rounds does
    not.
    """

    def cell(row: str, column: str) -> str:
        late = [d.dev[-comparison.steady :] for d in results.of(row, column)]
        return spread([statistics.fmean(x) for x in late]) if all(late) else ""

    rows = [[r, *(cell(r, c) for c in comparison.columns)] for r in _names(comparison)]
    title = f"## dev {metric}, mean over the last {comparison.steady} rounds (no round chosen)"
    return [title, "", *table_lines(["", *comparison.columns], rows), ""]


def _messages(comparison: Comparison, results: Results) -> list[str]:
    """FedED's Table 7, download included. In the setting of the first column; the size is the same
    for every seed.
    """
    column = next(iter(comparison.columns))
    runs = {r: results.of(r, column)[0].summary for r in _names(comparison)}
    base = runs.get("fedavg", {}).get("arrays_up_per_silo_round", 0.0)

    def row(name: str) -> list[str]:
        s = runs[name]
        up = s["arrays_up_per_silo_round"]
        ratio = (
            ""
            if not base or not up
            else f"1/{base / up:.0f}"
            if base >= 1.5 * up
            else f"{up / base:.2f}"
        )
        wire = (
            human_bytes(s["bytes_up_per_silo_round"])
            if s["bytes_up_per_silo_round"]
            else "not measured"
        )
        return [name, human_bytes(up), ratio, human_bytes(s["arrays_down_per_silo_round"]), wire]

    head = ["", "up", "of FedAvg's", "down", "up on the wire"]
    return [
        f"## Message size per silo and round ({column})",
        "",
        *table_lines(head, [row(name) for name in runs]),
        "",
        "Up and down are the arrays as these runs coded them. The wire adds framing and the secure sum's keys and "
        "shares; RUNNER=processes measures it.",
        "",
    ]


def _per_class(comparison: Comparison, results: Results) -> list[str]:
    column = next(iter(comparison.columns))
    rows = {
        **{r: results.of(r, column) for r in _names(comparison)},
        **{r: results.of(r, "") for r in comparison.references},
    }
    classes = list(
        dict.fromkeys(c for runs in rows.values() for d in runs for c in d.summary["per_class"])
    )

    def cell(runs: list[Done], name: str) -> str:
        found = [
            float(d.summary["per_class"][name]) for d in runs if name in d.summary["per_class"]
        ]
        return spread(found) if found else ""

    table = [[c, *(cell(runs, c) for runs in rows.values())] for c in classes]
    return [f"## F1 by class ({column})", "", *table_lines(["", *rows], table), ""]
