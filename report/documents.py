"""The three documents of a study: its report, what it cost in communication, and what it cost in
privacy. As tables of figures first (JSON); the pages are made from these (report.pages.documents).

The consortium's are made here, from a run folder. A silo's own are made from what the silo itself
wrote down (silo.papers), and have the same shape, so that each figure that both have can be compared.
Here figures are added up, and no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from config.names import with_names
from report.absences import absences, standstills
from report.events import Listening, Lost, RefusedBySilo, RoundSpent, StillConnected
from report.files import RunFiles
from report.pages.audit import audit_figures
from report.pages.protection import unprotected

__all__ = [
    "KINDS",
    "answers",
    "bytes_of",
    "consortium_documents",
    "disclosed_of",
    "header",
    "span",
    "spent_of",
]

KINDS = ("report", "communication-cost", "privacy-budget")
Line = Mapping[str, Any]
Document = dict[str, Any]


def consortium_documents(run: RunFiles) -> dict[str, Document]:
    """Of all silos of the study, from the run's files."""
    about = _about(run)
    # also one that agreed and was never heard: of it everything is nothing
    heard = {t["silo"] for t in run.traffic} | {p["silo"] for p in run.privacy}
    silos = sorted(heard | set(run.members))
    cost = _cost(run, about, silos)
    budget = _budget(run, about, silos)
    made = [_report(run, about, cost, budget), cost, budget]
    told = {
        "answers": answers(budget, cost["all_silos"]["bytes_up"]),
        "not_counted": _not_counted(run),
    }
    return {d["document"]: {**d, **told} for d in made}


def _not_counted(run: RunFiles) -> list[str]:
    """Where a silo's own documents may say more than these, in words."""
    lost: dict[str, int] = defaultdict(int)
    for e in run.events:
        if isinstance(e, Lost):
            lost[run.members.get(e.silo, e.silo)] += 1
    said = []
    if lost:
        times = ", ".join(f"{name} {n}" for name, n in sorted(lost.items()))
        said.append(
            f"Connections were lost (times: {times}). What a silo sent, or was charged for, and never arrived "
            "is in that silo's own documents and not in these."
        )
    left = {
        run.members.get(s, s) for e in run.events if isinstance(e, StillConnected) for s in e.silos
    }
    if left:
        said.append(
            f"Still connected when the coordinator ended: {', '.join(sorted(left))}. What they sent later is in "
            "their own documents and not in these."
        )
    if (starts := sum(isinstance(e, Listening) for e in run.events)) > 1:
        said.append(
            f"The coordinator was started {starts} times. Bytes of a round that it then began again are counted "
            "in the silos' own documents and not in these."
        )
    if spent := sorted({e.round + 1 for e in run.events if isinstance(e, RoundSpent)}):
        said.append(
            f"Round {', '.join(map(str, spent))} was given up, and no silo's answer is in the model. Its bytes "
            "and charges are counted; a silo that released shares for it does not know whether it counts."
        )
    return said


def _about(run: RunFiles) -> dict[str, Any]:
    s = run.summary
    began, ended = span(event.time for event in run.events)
    of = run.study or {
        "title": f"{s['method']} on {s['corpus']}",
        "consortium": "a simulation",
        "coordinator": "this simulation",
        "silos": [f"silo-{i:03d}" for i in range(s["silos"])],
        "roster_version": None,
        "roster_fingerprint": None,
        "study_hash": None,
        "program": run.config.get("run", {}).get("sottovoce", ""),
    }
    return {
        "party": of["coordinator"],
        "role": "coordinator",
        **of,
        "began": began,
        "ended": ended,
        "method": s["method"],
        "method_summary": s.get("method_summary", ""),
        "rounds": s["rounds"],
        "simulated": run.study is None,
        "reference": bool(s["reference"]),
    }


def _report(run: RunFiles, about: Line, cost: Line, budget: Line) -> Document:
    s, name = run.summary, run.members.get
    asked: dict[str, list[int]] = defaultdict(list)
    came: dict[str, list[int]] = defaultdict(list)
    for r in run.rounds:
        for silo in r["participants"]:
            asked[name(silo, silo)].append(r["round"])
        for silo in r["survivors"]:
            came[name(silo, silo)].append(r["round"])
    return {
        **header("report", about),
        "metric": s["metric"],
        "value": s["value"],
        "before_value": s.get("before_value"),
        "selected_round": s["selected_round"],
        "figures": s["figures"],
        "per_class": s["per_class"],
        "seed": s["seed"],
        "model_sha256": s["model_sha256"],
        "corpus": s["corpus"],
        "wall_seconds": s["wall_seconds"],
        "dp": budget["dp"],
        "unit": budget["unit"],
        "delta": budget["delta"],
        "budget": budget["budget"],
        "masked": budget["masked"],
        "masks_hold_if": budget["masks_hold_if"],
        "disclosed": budget["disclosed"],
        "not_protected": budget["not_protected"],
        "by_round": [
            {
                "round": r["round"],
                "asked": [name(silo, silo) for silo in r["participants"]],
                "answered": [name(silo, silo) for silo in r["survivors"]],
                "dev": r["dev"],
                "seconds": r["seconds"],
            }
            for r in run.rounds
        ],
        "silos": {
            silo: {
                "rounds": came[silo],
                "rounds_asked": asked[silo],
                **{k: cost["silos"][silo][k] for k in _TOTALS},
                "epsilon": budget["silos"][silo]["epsilon"],
            }
            for silo in cost["silos"]
        },
        "absences": [
            {"silo": name(a.silo, a.silo), "round": a.round, "lost": a.lost, "back": a.back}
            for a in absences(run.events)
        ],
        "standstills": [
            {
                "round": w.round,
                "waited_for": [name(silo, silo) for silo in w.silos],
                "began": w.began,
                "ended": w.ended,
            }
            for w in standstills(run.events)
        ],
    }


def _cost(run: RunFiles, about: Line, silos: Sequence[str]) -> Document:
    s = run.summary
    return {
        **header("communication-cost", about),
        "all_silos": bytes_of(run.traffic),
        "silos": {
            run.members.get(silo, silo): bytes_of([t for t in run.traffic if t["silo"] == silo])
            for silo in silos
        },
        "arrays_up_per_silo_round": s["arrays_up_per_silo_round"],
        "arrays_down_per_silo_round": s["arrays_down_per_silo_round"],
        "model_float32_bytes": s.get("model_float32_bytes"),
    }


def _budget(run: RunFiles, about: Line, silos: Sequence[str]) -> Document:
    s, d = run.summary, run.disclosures
    disclosed = [disclosed_of(x) for x in d["each_silo_sends"]]
    spent = {
        run.members.get(silo, silo): spent_of([p for p in run.privacy if p["silo"] == silo])
        for silo in silos
    }
    return {
        **header("privacy-budget", about),
        "dp": s.get("dp", "off"),
        "unit": s.get("privacy_unit") or "record",
        "delta": s["delta"],
        "budget": s.get("epsilon_budget"),
        "masked": s["masked"],
        "masks_hold_if": d["masks_hold_if"],
        "disclosed": disclosed,
        "silos": spent,
        **audit_figures(run),
        "declined": [
            {
                "silo": run.members.get(e.silo, e.silo),
                "time": e.time,
                "name": e.attack,
                "detail": with_names(e.detail, run.members),
            }
            for e in run.events
            if isinstance(e, RefusedBySilo)
        ],
        "not_protected": [
            *filter(None, [s.get("disagreement")]),
            *unprotected(
                dp=s.get("dp", "off"),
                unit=s.get("privacy_unit") or "record",
                infinite=s["epsilon"] == "inf",
                masked=bool(s["masked"]) and not s["reference"],
                simulated=about["simulated"],
            ),
        ],
    }


def answers(budget: Line, bytes_up: int, left: Collection[str] | None = None) -> dict[str, Any]:
    """An officer's four questions: what left, who could read it, what does the budget say, what is
    not protected. On the first screen of every document. `left`: what did leave, where that is
    known; otherwise all that was declared.
    """
    spent = [s["epsilon"] for s in budget["silos"].values()]
    known = [e for e in spent if e is not None]  # None: nothing of it was charged
    if not known and "ledger" in budget:
        known = [budget["ledger"]["epsilon"]]
    infinite = not spent or "inf" in known
    most = 0.0 if infinite else max(known, default=0.0)
    remains = budget["ledger"]["remains"] if "ledger" in budget else None
    if remains is None and budget["budget"] and not infinite:
        remains = max(0.0, budget["budget"] - most)
    gone = [d for d in budget["disclosed"] if left is None or d["name"] in left]
    masked = budget["masked"] and any(d["channel"] == "masked" for d in gone)
    return {
        "left": [{k: d[k] for k in ("name", "channel", "shape", "readable_by")} for d in gone],
        "masks_hold_if": budget["masks_hold_if"] if masked else "",
        "bytes_up": bytes_up,
        "dp": budget["dp"],
        "unit": budget["unit"],
        "epsilon": "inf" if infinite else most,
        "delta": budget["delta"],
        "budget": budget["budget"],
        "remains": remains,
        "not_protected": budget["not_protected"],
    }


def header(kind: str, about: Line) -> Document:
    return {"document": kind, "format": 1, "about": dict(about)}


def span(times: Iterable[float]) -> tuple[float | None, float | None]:
    known = [t for t in times if t]
    return (min(known), max(known)) if known else (None, None)


_TOTALS = ("bytes_up", "bytes_down", "messages_up", "messages_down")


def bytes_of(lines: Sequence[Line]) -> dict[str, Any]:
    """Messages and bytes on the wire: in all, by channel, by kind; and by round what was masked,
    sealed or broadcast. Keys, signatures and acknowledgements belong to no round: one that is sent in
    a round may arrive in the next.
    """
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
        if t["channel"] != "control":
            rounds[t["round"]][t["direction"]] += t["wire_bytes"]
    return {
        **{n: total[n] for n in _TOTALS},
        "by_channel": dict(sorted(channel.items())),
        "by_kind": dict(sorted(kind.items())),
        "by_round": [{"round": r, **sums} for r, sums in sorted(rounds.items())],
    }


def spent_of(lines: Sequence[Line]) -> dict[str, Any]:
    """What a ledger was charged: epsilon after each round by both accountants, and each kind of
    event. `event`: in words.
    """
    after: dict[int, tuple[Any, Any]] = {}
    events: dict[tuple[str, str], int] = defaultdict(int)
    for line in lines:
        after[line["round"]] = (line["epsilon_after"], line.get("rdp_epsilon_after"))
        events[line["disclosure"], line["event"]] += 1
    last = after[max(after)] if after else (None, None)
    return {
        "epsilon": last[0],
        "epsilon_rdp": last[1],
        "by_round": [
            {"round": r, "epsilon": e, "epsilon_rdp": rdp} for r, (e, rdp) in sorted(after.items())
        ],
        "charged": [
            {"what": what, "event": event, "times": n}
            for (what, event), n in sorted(events.items())
        ],
    }


def disclosed_of(d: Line) -> dict[str, Any]:
    keys = ("exchange", "name", "channel", "shape", "readable_by", "reveals", "privacy", "unless")
    return {k: d.get(k, "") for k in keys}
