"""How a study goes, in a few lines, at either end: from a silo's own records, or from the
coordinator's run folder.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from report.files import read_lines
from report.live import LiveRun
from report.units import clock, human_bytes
from study.presence import read_presence

if TYPE_CHECKING:
    from coordinator.board import Board
    from silo.studies import Known

__all__ = ["of_coordinator", "of_silo"]


def of_silo(home: Path, known: Known) -> list[str]:
    """From what this silo itself wrote down (silo.record)."""
    said = [f"{known.title}: {known.state or 'proposed'}"]
    folder = home / "records" / known.hash[:12]
    lines = read_lines(folder / "left.jsonl") if known.hash else []
    left = [line for line in lines if line["what"] == "left"]
    if refused := [line for line in lines if line["what"] == "declined"]:
        last = refused[-1]
        said.append(
            f"  this silo refused {len(refused)} times, the last time at {clock(last['time'])}: "
            f"{last['name']}: {last['detail']}"
        )
    if not left:
        return [*said, "  nothing has left this silo"]
    traffic = read_lines(folder / "traffic.jsonl")
    up, down = (
        sum(t["wire_bytes"] for t in traffic if t["direction"] == way) for way in ("up", "down")
    )
    rounds, at = len({line["round"] for line in left}), clock(left[-1]["time"])
    said.append(f"  something left in {rounds} rounds, the last time at {at}")
    said.append(
        f"  {human_bytes(up)} went out, {human_bytes(down)} came in, up to the last whole round"
    )
    charged = read_lines(home / "ledger.jsonl")
    if charged:
        epsilon = charged[-1]["epsilon_after"]
        words = "infinite" if epsilon == "inf" else f"{epsilon:.4g}"
        said.append(f"  epsilon {words} over all that was ever charged")
    return said


def of_coordinator(board: Board, study: str) -> list[str]:
    posted, run = board[study], board.run(study)
    seen = read_presence(board.home)
    state = board.standing(posted, study in seen.running and seen.alive(time.time()))
    by = ", ".join(posted.said("accept")) or "nobody"
    said = [f"{posted.title}: {state}; accepted by {by}, {posted.enough} needed"]
    for silo in posted.said("decline"):
        why = posted.answers[silo].get("why") or "it gives no reason"
        said.append(f"  {silo} declined: {why}")
    if state.startswith("running") and len(posted.said("accept")) < posted.least:
        said.append("  too few have accepted for it to go on: stop it, unless one accepts again")
    if run is None:
        return said
    live = LiveRun(run)
    live.catch_up()
    now = live.snapshot()
    said.append(
        f"  {now['status']}: {len(now['done'])} of {now['rounds']} rounds are finished; {run}"
    )
    if (waits := now["waiting"]) is not None:
        until = f"until {waits['until']}" if waits["until"] else "until you stop it"
        why = f" ({waits['why']})" if waits["why"] else ""
        since = clock(waits["since"])
        said.append(f"  waits for {', '.join(waits['for'])} since {since}, {until}{why}")
    if not state.startswith("running"):
        return said
    return [*said, "  " + ", ".join(f"{s['name']}: {s['state']}" for s in now["silos"])]
