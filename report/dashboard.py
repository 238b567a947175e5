"""`sottovoce watch RUN --dashboard`: the same in a browser on this machine, read-only.

It has one page and one table, and no way to change anything (report.local_server says who is
answered). The page asks for the table every second until the run has ended.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from report.live import LiveRun
from report.local_server import LocalServer
from report.pages.elements import Html, node, page
from report.watch import closing

__all__ = ["Dashboard", "run_dashboard"]

_COLUMNS = ("round", "dev", "survivors", "up", "down", "seconds")


class Dashboard:
    """Serves from a thread of its own until `close`."""

    def __init__(self, run: Path, port: int = 0) -> None:
        self.live = LiveRun(run)
        self.live.catch_up()
        self._lock = threading.Lock()
        self._page = _page(self.live.snapshot()).encode()
        self._server = LocalServer(self._found, port=port)

    @property
    def address(self) -> str:
        return self._server.address

    def _found(self, rest: str) -> tuple[str, bytes] | None:
        if rest == "":
            return "text/html; charset=utf-8", self._page
        if rest == "state.json":
            return "application/json", json.dumps(self.state()).encode()
        return None

    def state(self) -> dict[str, Any]:
        with self._lock:
            self.live.catch_up()
            return self.live.snapshot()

    def close(self) -> None:
        self._server.close()


def _page(s: dict[str, Any]) -> str:
    empty = Html("")
    body = (
        node(
            "header",
            node("h1", s["title"] or f"{s['method']} on {s['corpus']}"),
            node(
                "p",
                "waiting for the first word of the run …",
                id="status",
                class_="lead",
                role="status",
            ),
            node("p", "", id="missing", class_="warning", role="alert", hidden=True),
        ),
        node(
            "section",
            node(
                "dl",
                *(
                    node(
                        "div", node("dt", name), node("dd", node("span", "–", class_="big", id=id_))
                    )
                    for name, id_ in (
                        ("rounds done", "done"),
                        ("dev metric", "dev"),
                        ("uploaded", "up"),
                        ("downloaded", "down"),
                        ("time left, about", "left"),
                    )
                ),
                class_="tiles",
            ),
            aria_label="Where it stands",
        ),
        node(
            "section",
            node("h2", "Rounds"),
            node(
                "div",
                class_="plot",
                id="metric",
                style="height:240px",
                role="img",
                aria_label="Metric by round",
            ),
            node(
                "div",
                class_="plot",
                id="bytes",
                style="height:200px",
                role="img",
                aria_label="Bytes by round",
            ),
            node(
                "div",
                node(
                    "table",
                    node("thead", node("tr", *(node("th", h, scope="col") for h in _COLUMNS))),
                    node("tbody", empty, id="rounds"),
                    class_="numbers",
                ),
                class_="scroll",
                tabindex="0",
            ),
            aria_label="Rounds",
        ),
        node(
            "section",
            node("h2", "Silos"),
            node("ul", empty, id="silos", class_="silos"),
            aria_label="Silos",
        ),
        node(
            "section",
            node("h2", "What happened"),
            node("ul", empty, id="notes"),
            aria_label="What happened",
        ),
    )
    return page(f"live: {s['run']}", *body, script="live.js", connect="'self'")


def run_dashboard(run: Path, port: int, console: Console) -> int:
    """Until Ctrl-C. After the end of the run the page can still be opened."""
    dashboard = Dashboard(run, port)
    console.print(f"dashboard: {dashboard.address}", highlight=False, soft_wrap=True)
    console.print(
        "on this machine only; whoever has the address can read, nobody can write; Ctrl-C ends it"
    )
    told = False
    try:
        while True:
            state = dashboard.state()
            if state["ended"] and not told:
                told = True
                console.print(closing(state), highlight=False, soft_wrap=True, markup=False)
            time.sleep(1.0)
    except KeyboardInterrupt:
        return 0
    finally:
        dashboard.close()
