"""The two documents of a study beside its report: what it cost in communication, and what it cost in
privacy. As tables of figures first (JSON); the pages are made from these (report.pages.documents).

The consortium's are made from a run folder. A silo's own are made from what the silo itself wrote
down (silo.record), and have the same shape, so that each figure that both have can be compared. Here
figures are added up, and no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from config.errors import UserError
from report.files import RunFiles, read_lines, read_table

__all__ = ["KINDS", "consortium_documents", "silo_documents"]

KINDS = ("communication-cost", "privacy-budget")
_ABOUT = (
    *("title", "consortium", "coordinator", "silos", "roster_version", "roster_fingerprint"),
    *("study_hash", "program", "method", "rounds"),
)
Line = Mapping[str, Any]
Document = dict[str, Any]


def consortium_documents(run: RunFiles) -> dict[str, Document]:
    """Of all silos, from the run's files."""
    s = run.summary
    about = {
        "party": (run.study or {}).get("coordinator", "this simulation"),
        "role": "coordinator",
        **_which(run),
        "method": s["method"],
        "rounds": s["rounds"],
        "metric": s["metric"],
        "value": s["value"],
        "simulated": run.study is None,
    }
    name = run.members.get
    silos = sorted({t["silo"] for t in run.traffic} | {p["silo"] for p in run.privacy})
    cost = {
        **_header("communication-cost", about),
        "all_silos": _bytes(run.traffic),
        "silos": {
            name(silo, silo): _bytes([t for t in run.traffic if t["silo"] == silo])
            for silo in silos
        },
        "arrays_up_per_silo_round": s["arrays_up_per_silo_round"],
        "model_float32_bytes": s.get("model_float32_bytes"),
    }
    sent = run.disclosures["each_silo_sends"]
    budget = {
        **_header("privacy-budget", about),
        "dp": s.get("dp", "off"),
        "unit": s.get("privacy_unit") or "record",
        "delta": s["delta"],
        "budget": s.get("epsilon_budget"),
        "masked": s["masked"],
        "masks_hold_if": run.disclosures["masks_hold_if"],
        "disclosed": [_disclosed(d) for d in sent],
        "silos": {
            name(silo, silo): _spent([p for p in run.privacy if p["silo"] == silo])
            for silo in silos
        },
        "declined": [],
    }
    return {d["document"]: d for d in (cost, budget)}


def silo_documents(record: Path, ledger: Path) -> dict[str, Document]:
    """Of one silo, from its own records and its ledger."""
    about_, left = read_table(record / "about.json"), read_lines(record / "left.jsonl")
    traffic = read_lines(record / "traffic.jsonl")
    if about_ is None:
        raise UserError(f"{record} has no about.json: this silo took no part in such a study.")
    about = {"party": about_["silo"], "role": "silo", **{k: about_[k] for k in _ABOUT}}
    about["began"], about["ended"] = _span(x["time"] for x in left)
    gone = [x for x in left if x["what"] == "left"]
    cost = {
        **_header("communication-cost", about),
        "silos": {about_["silo"]: _bytes(traffic)},
        "times_left": [
            {k: x[k] for k in ("time", "round", "exchange", "name", "channel")} for x in gone
        ],
    }
    charged = [{**x, "disclosure": x["name"]} for x in gone if x["epsilon_after"] is not None]
    whole = read_lines(ledger)
    budget = {
        **_header("privacy-budget", about),
        "dp": about_["dp"],
        "delta": about_["delta"] if about_["dp"] != "off" else 0.0,
        "budget": about_["epsilon_budget"],
        "masked": True,
        "masks_hold_if": about_["masks_hold_if"],
        "disclosed": [_disclosed(d) for d in about_["each_silo_sends"]],
        "silos": {about_["silo"]: _spent(charged)},
        "declined": [
            {k: x[k] for k in ("time", "round", "name", "detail")}
            for x in left
            if x["what"] == "declined"
        ],
        "ledger_lines": len(whole),
        "ledger_epsilon": whole[-1]["epsilon_after"] if whole else 0.0,
    }
    return {d["document"]: d for d in (cost, budget)}


def _header(kind: str, about: Mapping[str, Any]) -> Document:
    return {"document": kind, "format": 1, "about": dict(about)}


def _which(run: RunFiles) -> dict[str, Any]:
    began, ended = _span(event.time for event in run.events)
    of = run.study or {
        "title": f"{run.summary['method']} on {run.summary['corpus']}",
        "consortium": "a simulation",
        "coordinator": "this simulation",
        "silos": [f"silo-{i:03d}" for i in range(run.summary["silos"])],
        "roster_version": None,
        "roster_fingerprint": None,
        "study_hash": None,
        "program": run.config.get("run", {}).get("sottovoce", ""),
    }
    return {**of, "began": began, "ended": ended}


def _span(times: Iterable[float]) -> tuple[float | None, float | None]:
    known = [t for t in times if t]
    return (min(known), max(known)) if known else (None, None)


def _bytes(lines: Sequence[Line]) -> dict[str, Any]:
    """Messages and bytes on the wire: in all, by channel, by kind, by round."""
    total: dict[str, int] = defaultdict(int)
    channel: dict[str, int] = defaultdict(int)
    kind: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    rounds: dict[int, dict[str, int]] = defaultdict(lambda: {"up": 0, "down": 0})
    for t in lines:
        total[f"bytes_{t['direction']}"] += t["wire_bytes"]
        total[f"messages_{t['direction']}"] += t["messages"]
        channel[f"{t['direction']}, {t['channel']}"] += t["wire_bytes"]
        sums = kind[f"{t['direction']}, {t['kind']}, {t['channel']}"]
        for at, figure in enumerate(("messages", "payload_bytes", "wire_bytes")):
            sums[at] += t[figure]
        rounds[t["round"]][t["direction"]] += t["wire_bytes"]
    names = ("bytes_up", "bytes_down", "messages_up", "messages_down")
    return {
        **{n: total[n] for n in names},
        "by_channel": dict(sorted(channel.items())),
        "by_kind": dict(sorted(kind.items())),
        "by_round": [{"round": r, **sums} for r, sums in sorted(rounds.items())],
    }


def _spent(lines: Sequence[Line]) -> dict[str, Any]:
    """What a ledger was charged in this study: epsilon after each round, and each kind of event."""
    after: dict[int, Any] = {}
    events: dict[tuple[str, str], int] = defaultdict(int)
    for line in lines:
        after[line["round"]] = line["epsilon_after"]
        events[line["disclosure"], line["event"]] += 1
    return {
        "epsilon": after[max(after)] if after else None,
        "by_round": [{"round": r, "epsilon": e} for r, e in sorted(after.items())],
        "charged": [
            {"what": what, "event": event, "times": n}
            for (what, event), n in sorted(events.items())
        ],
    }


def _disclosed(d: Line) -> dict[str, Any]:
    keys = ("exchange", "name", "channel", "shape", "readable_by", "reveals", "privacy", "unless")
    return {k: d.get(k, "") for k in keys}
