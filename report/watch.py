"""`sottovoce watch RUN`: follow a run in the terminal; elsewhere than on a terminal, a plain line
for what happens.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from report.live import LiveRun
from report.units import duration, human_bytes, score

__all__ = ["closing", "run_watch"]

_PAUSE = 0.5
_ROUNDS = 8  #: the last rounds shown
_SINGLE = 24  #: up to so many silos stand by name
_STYLES = {
    "computing": "bold cyan",
    "answered": "green",
    "lost": "bold red",
    "out": "red",
    "absent": "red",
    "waited for": "bold red",
}


def run_watch(run: Path, console: Console) -> int:
    """Until the run ends, however it ends, or Ctrl-C. Returns 0: what became of the run is said,
    not ours to judge.
    """
    live = LiveRun(run)
    try:
        if console.is_terminal:
            with Live(console=console, auto_refresh=False) as shown:
                while True:
                    live.catch_up()
                    shown.update(_picture(live.snapshot()), refresh=True)
                    if live.ended:
                        break
                    time.sleep(_PAUSE)
        else:
            while True:
                for line in live.catch_up():
                    console.print(line, highlight=False, soft_wrap=True, markup=False)
                if live.ended:
                    break
                time.sleep(_PAUSE)
    except KeyboardInterrupt:
        console.print("no longer watched; the run itself goes on", highlight=False)
        return 0
    console.print(closing(live.snapshot()), highlight=False, soft_wrap=True, markup=False)
    return 0


def closing(s: dict[str, Any]) -> str:
    said = {
        "finished": "The run ended: it is finished.",
        "interrupted": f"The run ended: it was interrupted after {len(s['done'])} of {s['rounds']} rounds.",
        "failed": f"The run ended: it failed. {s['why']}",
        "gone": f"The run ended: {s['why']}.",
    }.get(s["status"], "The run goes on.")
    if s["test"]:
        said += (
            f" Test {s['metric']} {s['test']['value']:.4f}, {duration(s['test']['wall_seconds'])}."
        )
    return said


def _picture(s: dict[str, Any]) -> Group:
    done = len(s["done"])
    what = f" on {s['corpus']}" if not s["title"] else f" ({s['method']})"
    head = Text.assemble(
        (s["title"] or s["method"], "bold"), f"{what}, {len(s['silos'])} silos, {s['run']}"
    )
    if not s["masked"]:
        head.append("  NOTHING IS MASKED", "bold red")
    left = f", about {duration(s['seconds_left'])} left" if s["seconds_left"] is not None else ""
    dev = [r["dev"] for r in s["done"] if r["dev"] is not None]
    value = f"dev {s['metric']} {dev[-1]:.4f}, " if dev else ""
    line = f"{s['status']}: round {done} of {s['rounds']} done, {value}"
    line += f"{human_bytes(s['up'])} up, {human_bytes(s['down'])} down{left}"
    if (w := s["waiting"]) is not None:
        until = w["until"] or "its operator ends it"
        line = f"waiting for {', '.join(w['for'])}, until {until}: {w['here']} silos are here, {w['needed']} are needed"
        line += f" ({w['why']})" if w["why"] else ""
    return Group(
        head,
        ProgressBar(total=max(1, s["rounds"]), completed=done),
        Text(line),
        _silos(s),
        _rounds(s),
    )


def _silos(s: dict[str, Any]) -> Text:
    if len(s["silos"]) <= _SINGLE:
        parts = [
            (f"{x['name']} {x['state']}  ", _STYLES.get(x["state"], "dim")) for x in s["silos"]
        ]
        return Text.assemble(*parts)
    counts = Counter(x["state"] for x in s["silos"])
    return Text.assemble(
        *((f"{n} {state}  ", _STYLES.get(state, "dim")) for state, n in counts.most_common())
    )


def _rounds(s: dict[str, Any]) -> Table:
    table = Table("round", f"dev {s['metric']}", "survivors", "up", "down", "seconds", box=None)
    for r in s["done"][-_ROUNDS:]:
        table.add_row(
            str(r["round"]),
            score(r["dev"]),
            f"{r['survivors']} of {r['asked']}",
            human_bytes(r["up"]),
            human_bytes(r["down"]),
            f"{r['seconds']:.1f}",
        )
    return table
