"""The sections of a run's page on bytes, on time, and on what was planned."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import Any

from bench.pages.charts import Chart, Series, draw, trend
from bench.pages.elements import NONE, Html, details, exact, node, section, table
from bench.progress import human_bytes
from bench.runfiles import RunFiles

__all__ = ["plan", "plan_rows", "seconds", "traffic"]

#: (message kind, channel) in the words of the report; what is not here keeps its own name.
_KINDS = {
    ("chunk", "masked"): "masked update",
    ("upload", "masked"): "shares beside it",
    ("chunk", "sealed"): "sealed values",
    ("sealed", "sealed"): "announcements of arrays",
    ("sum", "control"): "keys, signatures, released shares",
    ("chunk", "broadcast"): "model and other broadcast arrays",
    ("broadcast", "control"): "announcements of arrays",
    ("handshake", "control"): "connection",
}


def _kind(line: dict[str, Any], masked: bool) -> str:
    name = _KINDS.get((line["kind"], line["channel"]), line["kind"])
    return "update, not masked" if name == "masked update" and not masked else name


def traffic(run: RunFiles) -> Html:
    s = run.summary
    if not run.rounds:
        return section("bytes", "Bytes", node("p", "There was no round."))
    parts = [_direction(run, "up"), _cumulative(run), _direction(run, "down")]
    if run.on_the_wire:
        parts.append(details("every kind of message", _every(run)))
        before = sum(t["wire_bytes"] for t in run.traffic if t["round"] < 0)
        note = (
            f"In all {human_bytes(s['bytes_up_total'])} went up and {human_bytes(s['bytes_down_total'])} down, "
            f"{human_bytes(before)} of it before the first round (connections, keys). Counted are the bytes that the "
            "programs put on the wire, encryption and framing included; TCP and IP headers are not."
        )
    else:
        note = "Nothing crossed a wire in this run. Shown are the arrays as they were coded, without framing and keys."
    return section("bytes", "What it cost in bytes", node("p", note), *parts)


def _direction(run: RunFiles, direction: str) -> Html:
    s, rounds = run.summary, run.rounds
    x = [str(r["round"] + 1) for r in rounds]
    verb = "uploaded" if direction == "up" else "downloaded"
    if run.on_the_wire:
        at = {r["round"]: i for i, r in enumerate(rounds)}
        sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(rounds))
        for t in run.traffic:
            if t["direction"] == direction and t["round"] in at:
                sums[_kind(t, s["masked"])][at[t["round"]]] += t["wire_bytes"]
        stacks = sorted(sums.items(), key=lambda item: -sum(item[1]))
        series = [Series(name, values, kind="bar", stack=True) for name, values in stacks]
        total = [sum(values) for values in zip(*sums.values())]
    else:
        total = [r[f"arrays_{direction}"] for r in rounds]
        series = [Series("arrays as coded", total, kind="bar", stack=True)]
    says = trend(f"All silos together {verb}", total, "bytes")
    fedavg = s.get("model_float32_bytes", 0)
    if fedavg:
        line = [fedavg * len(r["participants"]) for r in rounds]
        series.append(Series("plain FedAvg, float32", line, dashed=True, marks=False))
        says += f" Plain FedAvg in float32 would send {human_bytes(fedavg)} per silo and round."
    return draw(
        Chart(
            f"bytes-{direction}",
            f"Bytes {verb} by all silos, by round and kind of message",
            says,
            "round",
            f"bytes {direction}",
            series,
            x=x,
            y_unit="bytes",
        )
    )


def _cumulative(run: RunFiles) -> Html:
    s, key = run.summary, "bytes_up" if run.on_the_wire else "arrays_up"
    sent = list(accumulate(r[key] for r in run.rounds))
    points = [(float(b), r["dev"]) for b, r in zip(sent, run.rounds)]
    return draw(
        Chart(
            "metric-by-bytes",
            f"dev {s['metric']} against all bytes uploaded so far",
            f"After {human_bytes(sent[-1])} it was {run.rounds[-1]['dev']:.4f}.",
            "bytes uploaded",
            f"dev {s['metric']}",
            [Series(s["method"], points, labels=[f"round {r['round'] + 1}" for r in run.rounds])],
            x_unit="bytes",
        )
    )


def _every(run: RunFiles) -> Html:
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for t in run.traffic:
        entry = sums[t["direction"], t["kind"], t["channel"]]
        entry[0] += t["messages"]
        entry[1] += t["payload_bytes"]
        entry[2] += t["wire_bytes"]
    rows = [
        (f"{direction}: {kind}, {channel}", f"{n:,}", f"{p:,}", f"{w:,}")
        for (direction, kind, channel), (n, p, w) in sorted(sums.items(), key=lambda i: -i[1][2])
    ]
    head = ("direction: message, channel", "messages", "payload bytes", "bytes on the wire")
    return table(head, rows, "All rounds and what came before and after them", id_="traffic")


#: The coordinator's phases and the silos' stages, in the order in which they happen and in words.
_PHASES = {
    "telling": "telling (broadcast)",
    "collecting": "waiting for silos and collecting",
    "unmasking": "unmasking",
    "evaluating": "evaluating",
}
_STAGES = {
    "waiting": "waiting for a core",
    "computing": "training",
    "ready": "waiting to send",
    "uploading": "masking and sending",
}


def _stacked(run: RunFiles, key: str, names: dict[str, str]) -> list[Series]:
    found = list(dict.fromkeys([*names, *(k for r in run.rounds for k in r.get(key, {}))]))
    series = [Series(names.get(k, k), [r.get(key, {}).get(k, 0.0) for r in run.rounds], "bar", True) for k in found]
    return [x for x in series if any(x.values)]


def seconds(run: RunFiles) -> Html:
    if not run.rounds:
        return Html("")
    x, total = [str(r["round"] + 1) for r in run.rounds], [r["seconds"] for r in run.rounds]
    parts = [
        draw(
            Chart(
                "seconds",
                "Seconds of a round, by what the coordinator did",
                trend("A round took", total, "seconds"),
                "round",
                "seconds",
                _stacked(run, "phases", _PHASES),
                x=x,
                y_unit="seconds",
            )
        )
    ]
    silos = _stacked(run, "silo_seconds", _STAGES)
    if silos:
        spent = {s.name: sum(v for v in s.values if isinstance(v, float)) for s in silos}
        most = max(spent, key=spent.__getitem__)
        parts.append(
            draw(
                Chart(
                    "silo-seconds",
                    "Seconds of all silos added up, by what they did",
                    f"Most went into {most}. A silo encodes, masks and sends in one stream, so these are one figure. "
                    "Where silos share a machine they wait for a core.",
                    "round",
                    "silo seconds",
                    silos,
                    x=x,
                    y_unit="seconds",
                )
            )
        )
    return section("time", "Where the time went", *parts)


def plan_rows(run: RunFiles) -> list[tuple[str, str, str, str]]:
    """(what, planned, measured, difference); where the run has no such figure, it says so."""
    s, p, rows = run.summary, run.plan or {}, []
    for name, (words, unit) in _PLANNED.items():
        planned, fact = p.get(name), s.get(name)
        if planned is None or (name.startswith("bytes") and not run.on_the_wire):
            continue
        off = NONE
        if isinstance(fact, int | float) and isinstance(planned, int | float) and planned:
            off = f"{round(100 * (fact - planned) / planned, 1) + 0.0:+.1f} %"  # + 0.0: no minus before nothing
        rows.append((words, _planned(planned, unit), _planned(fact, unit), off))
    return rows


def plan(run: RunFiles) -> Html:
    """What was planned beside what was measured."""
    assert run.plan is not None
    said = "Before the first round, this is what the run was expected to cost; silos that drop out make it cheaper."
    if "wall_seconds" not in run.plan:
        said += " The run was too short for a calibration of its time and memory."
    return section(
        "plan",
        "Plan and fact",
        node("p", said),
        table(("", "planned", "measured", "difference"), plan_rows(run), "Plan and fact", id_="planned"),
        *(node("p", w, class_="dim") for w in run.plan.get("warnings", [])),
    )


def _planned(value: Any, unit: str) -> str:
    if value is None:
        return "not measured"
    return "infinite" if value == "inf" else exact(value, unit)


_PLANNED = {
    "bytes_up_per_silo_round": ("bytes up per silo and round", "bytes"),
    "bytes_down_per_silo_round": ("bytes down per silo and round", "bytes"),
    "bytes_up_total": ("bytes up in all", "bytes"),
    "bytes_down_total": ("bytes down in all", "bytes"),
    "arrays_up_per_silo_round": ("of them arrays up, as coded", "bytes"),
    "arrays_down_per_silo_round": ("of them arrays down, as coded", "bytes"),
    "epsilon": ("epsilon", "epsilon"),
    "wall_seconds": ("seconds of the whole run", "seconds"),
    "peak_rss_mb": ("MB of memory, all processes", "count"),
}
