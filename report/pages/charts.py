"""A chart and the table behind it, from one record, so that the two cannot disagree.

The chart's numbers travel as JSON inside the page; assets/page.js hands them to Apache ECharts.
Whoever cannot see the chart, or prints the page, or has no scripts, has the sentence and the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from report.pages.elements import NONE, Html, details, node, table
from report.units import exact, short

__all__ = ["Chart", "Series", "draw", "trend"]

_TABLE_ROWS = 200  #: of a longer series the table has every k-th row, and says so
_POINTS = 2000

Unit = Literal["score", "bytes", "seconds", "count", "epsilon"]


@dataclass(frozen=True)
class Series:
    name: str
    #: beside the chart's x, or points of its own
    values: Sequence[float | None] | Sequence[tuple[float, float]]
    kind: Literal["line", "bar", "scatter"] = "line"
    stack: bool = False
    dashed: bool = False  #: a reference, not a measurement of this run
    marks: bool = True
    labels: Sequence[str] = ()  #: what to call single points


@dataclass(frozen=True)
class Chart:
    id: str
    title: str
    says: str  #: what it shows, in a sentence: the text alternative
    x_name: str
    y_name: str
    series: Sequence[Series]
    x: Sequence[str] | None = None  #: categories; None: the series are points
    y_unit: Unit = "score"
    x_unit: Unit = "score"
    y_max: float | None = None
    x_max: float | None = None
    x_log: bool = False
    lying: bool = False  #: bars from left to right, for long names
    height: int = 300
    #: so that a series keeps its colour in a second chart without the first series
    first_colour: int = 0


def draw(chart: Chart) -> Html:
    spec = asdict(chart) | {"series": [asdict(_thinned(s)) for s in chart.series]}
    # "</" would end the script element early; a JSON string may write it with a backslash.
    content = Html(
        json.dumps(spec, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    )
    plot = node(
        "div",
        class_="plot",
        role="img",
        aria_label=f"{chart.title}. {chart.says}",
        style=f"height:{chart.height}px",
    )
    return node(
        "figure",
        node("figcaption", node("strong", chart.title), " ", chart.says),
        plot,
        node("script", content, type="application/json", class_="spec"),
        details("the figures as a table", _table(chart)),
        class_="chart",
        id=chart.id,
    )


def _thinned(s: Series) -> Series:
    step = -(-len(s.values) // _POINTS)
    return (
        s
        if step <= 1
        else Series(**(asdict(s) | {"values": [*s.values[::step], s.values[-1]], "labels": ()}))
    )


def _table(chart: Chart) -> Html:
    def cell(value: float | None) -> str:
        return NONE if value is None else exact(value, chart.y_unit)

    if chart.x is not None:
        rows = [(x, *(cell(s.values[i]) for s in chart.series)) for i, x in enumerate(chart.x)]  # type: ignore[arg-type]
        return table(
            (chart.x_name, *(f"{s.name}" for s in chart.series)), rows, chart.title, fits=4
        )
    long = max((len(s.values) for s in chart.series), default=0)
    step = max(1, -(-long // _TABLE_ROWS))
    note = f" (one point in {step})" if step > 1 else ""
    points = [
        (s.labels[i] if s.labels else s.name, exact(v[0], chart.x_unit), exact(v[1], chart.y_unit))  # type: ignore[index]
        for s in chart.series
        for i, v in list(enumerate(s.values))[::step]
    ]
    return table(("", chart.x_name, chart.y_name), points, chart.title + note)


def trend(what: str, by_round: Sequence[float | None], unit: Unit = "score") -> str:
    """A series in words: where it began, where it ended, where it was highest. None: a round that
    was not measured.
    """
    there = [(t, v) for t, v in enumerate(by_round, 1) if v is not None]
    if not there:
        return f"{what} unmeasured."
    rounds, values = [t for t, _ in there], [v for _, v in there]
    if len(by_round) == 1:
        return f"{what} {short(values[0], unit)} in the only round."
    shown = {short(v, unit) for v in values}
    if len(shown) == 1:
        every = "every round" if len(there) == len(by_round) else "every round that was measured"
        return f"{what} {shown.pop()} in {every}."
    top = max(range(len(values)), key=values.__getitem__)
    same = short(values[top], unit) == short(values[-1], unit)
    most = "the highest" if same else f"highest {short(values[top], unit)} in round {rounds[top]}"
    first, last = short(values[0], unit), short(values[-1], unit)
    return f"{what} from {first} in round {rounds[0]} to {last} in round {rounds[-1]}, {most}."
