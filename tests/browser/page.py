"""Reading a page as somebody sees it: its tables, its charts, its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.browser.chromium import Tab


def opened(tab: Tab, page: Path) -> Tab:
    tab.open(page.as_uri())
    drawn = tab.until("document.documentElement.dataset.drawn")
    assert int(drawn) == tab.run("document.querySelectorAll('figure.chart svg').length") > 0
    return tab


def quiet(tab: Tab, page: Path) -> None:
    """Nothing but the file itself was asked for, and nobody complained."""
    assert set(tab.requests) == {page.as_uri()}
    assert tab.complaints == []


def table(tab: Tab, selector: str) -> list[list[str]]:
    """A table's rows as the reader sees them, without its head. A folded one is read too."""
    script = "[...document.querySelectorAll(%s)].map(r => [...r.cells].map(c => c.textContent))"
    found: list[list[str]] = tab.run(script % json.dumps(f"{selector} tbody tr"))
    return found


def column(tab: Tab, chart: str, name: str) -> list[float]:
    """One column of the table behind a chart."""
    head = tab.run(f"[...document.querySelectorAll('#{chart} thead th')].map(c => c.textContent)")
    return [float(row[head.index(name)].replace(",", "")) for row in table(tab, f"#{chart}")]


def plotted(tab: Tab, chart: str) -> dict[str, list[Any]]:
    """What the library was given to draw."""
    option = f"echarts.getInstanceByDom(document.querySelector('#{chart} .plot')).getOption()"
    return dict(tab.run(f"{option}.series.map(s => [s.name, s.data])"))


def colours(tab: Tab, chart: str) -> dict[str, str]:
    option = f"echarts.getInstanceByDom(document.querySelector('#{chart} .plot')).getOption()"
    return dict(tab.run(f"{option}.series.map(s => [s.name, s.color])"))


def tile(tab: Tab, name: str) -> tuple[str, str]:
    value, shown = tab.run(
        f"(e => [e.value, e.textContent])(document.querySelector('#answer-{name} data'))"
    )
    return value, shown
