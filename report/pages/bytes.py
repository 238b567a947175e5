"""The sections of a run's page on bytes, on time, and on what was planned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from report.files import RunFiles, by_message
from report.pages.charts import Chart, Series, draw, trend
from report.pages.elements import NONE, Html, details, node, section, table
from report.units import exact, human_bytes

__all__ = ["plan", "plan_rows", "round_bytes", "seconds", "total_words", "traffic"]

_FAR = 0.2  #: bars below this share of the reference line can hardly be seen beside it
#: share of the bytes from which on one kind hides the others, which then get a chart of their own
_MOST = 0.8
_CONTROL = "control messages"
#: (message kind, channel) in the words of the report; what is not here is a control message.
_KINDS = {
    ("chunk", "masked"): "masked update",
    ("upload", "masked"): "shares beside it",
    ("chunk", "sealed"): "sealed values",
    ("sum", "control"): "keys, signatures, released shares",
    ("chunk", "broadcast"): "model and other broadcast arrays",
}


def _kind(line: dict[str, Any], masked: bool) -> str:
    name = _KINDS.get((line["kind"], line["channel"]), _CONTROL)
    return "update, not masked" if name == "masked update" and not masked else name


def traffic(run: RunFiles) -> Html:
    if not run.rounds:
        return section("bytes", "Bytes", node("p", "There was no round."))
    parts = [*_direction(run, "up"), _cumulative(run), *_direction(run, "down")]
    if run.on_the_wire:
        parts.append(details("every kind of message", _every(run)))
    return section(
        "bytes", "What it cost in bytes", node("p", total_words(run), id="total-bytes"), *parts
    )


def total_words(run: RunFiles) -> str:
    s = run.summary
    if not run.on_the_wire:
        return "Nothing crossed a wire in this run. Shown are the arrays as they were coded, without framing and keys."
    before = sum(t["wire_bytes"] for t in run.traffic if t["round"] < 0)
    return (
        f"In a round a silo sent {human_bytes(s['bytes_up_per_silo_round'])} and received "
        f"{human_bytes(s['bytes_down_per_silo_round'])} on average. All silos in the whole run: "
        f"{human_bytes(s['bytes_up_total'])} up, {human_bytes(s['bytes_down_total'])} down, "
        f"{human_bytes(before)} of it before the first round (connections, keys). Counted are the bytes that the "
        "programs put on the wire, encryption and framing included; TCP and IP headers are not."
    )


def round_bytes(run: RunFiles, direction: str) -> list[int]:
    """Of all silos, round by round: on the wire where there was one, else the arrays as coded. What
    was sent before the first round is no round's.
    """
    if not run.on_the_wire:
        return [r[f"arrays_{direction}"] for r in run.rounds]
    sums: dict[int, int] = defaultdict(int)
    for t in run.traffic:
        if t["direction"] == direction:
            sums[t["round"]] += t["wire_bytes"]
    return [sums[r["round"]] for r in run.rounds]


def _stacks(run: RunFiles, direction: str) -> list[Series]:
    """By kind of message, the heaviest first."""
    if not run.on_the_wire:
        return [Series("arrays as coded", round_bytes(run, direction), kind="bar", stack=True)]
    at = {r["round"]: i for i, r in enumerate(run.rounds)}
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(run.rounds))
    for t in run.traffic:
        if t["direction"] == direction and t["round"] in at:
            sums[_kind(t, run.summary["masked"])][at[t["round"]]] += t["wire_bytes"]
    stacks = sorted(sums.items(), key=lambda item: -sum(item[1]))
    return [Series(name, values, kind="bar", stack=True) for name, values in stacks]


def _direction(run: RunFiles, direction: str) -> list[Html]:
    s, rounds, total = run.summary, run.rounds, round_bytes(run, direction)
    x = [str(r["round"] + 1) for r in rounds]
    verb, infinitive = ("uploaded", "upload") if direction == "up" else ("downloaded", "download")
    series = _stacks(run, direction)
    says = trend(f"All silos together {verb}", total, "bytes")
    line: list[int] = []
    fedavg, reference = s.get("model_float32_bytes", 0), []
    if fedavg:
        line = [fedavg * len(r["participants"]) for r in rounds]
        reference = [Series("plain FedAvg, float32", line, dashed=True, marks=False)]
        each = human_bytes(min(line)) + (
            "" if min(line) == max(line) else f" to {human_bytes(max(line))}"
        )
        says += f" With plain FedAvg in float32 they together would {infinitive} {each} a round."
    name = f"Bytes {verb} by all silos"
    title = f"{name}, by round and kind of message"
    found = [
        draw(
            _bars(
                f"bytes-{direction}",
                title,
                says=says,
                series=[*series, *reference],
                x=x,
                y_name=f"bytes {direction}",
            )
        )
    ]
    return found + [
        draw(c) for c in _closer(direction, name, series, total, min(line, default=0), x)
    ]


def _closer(
    direction: str, name: str, series: list[Series], total: list[int], fedavg: int, x: list[str]
) -> Iterator[Chart]:
    """What cannot be seen beside something large has a chart of its own: all kinds, or all but the
    largest.
    """
    id_, y_name, first, says = f"bytes-{direction}-rest", f"bytes {direction}", 0, ""
    most = series[0]
    own = [int(v) for v in most.values]  # type: ignore[arg-type]  # beside the rounds, none of them missing
    share = sum(own) / max(sum(total), 1)
    if max(total) < _FAR * fedavg:
        title = f"{name}, without FedAvg's line"
    elif len(series) > 2 and share > _MOST:
        first, title = 1, f"{name}, without {most.name}"
        rest = [whole - part for whole, part in zip(total, own)]
        percent = f"{100 * share:.1f} %" if share < 0.9995 else "More than 99.9 %"
        says = f"{percent} of all was {most.name}. The rest: {trend('all silos together', rest, 'bytes')}"
    else:
        return
    yield _bars(
        id_,
        title,
        says=says or trend("All silos together", total, "bytes"),
        series=series,
        x=x,
        y_name=y_name,
        first=first,
    )


def _bars(
    id_: str,
    title: str,
    *,
    says: str,
    series: list[Series],
    x: list[str],
    y_name: str,
    first: int = 0,
) -> Chart:
    return Chart(
        id_, title, says, "round", y_name, series[first:], x=x, y_unit="bytes", first_colour=first
    )


def _cumulative(run: RunFiles) -> Html:
    s = run.summary
    sent = list(accumulate(round_bytes(run, "up")))
    told = [(b, r) for b, r in zip(sent, run.rounds) if r["dev"] is not None]
    points = [(float(b), r["dev"]) for b, r in told]
    return draw(
        Chart(
            "metric-by-bytes",
            f"dev {s['metric']} against the bytes that all silos uploaded so far",
            f"After {human_bytes(sent[-1])} in {len(sent)} rounds it was {told[-1][1]['dev']:.4f}.",
            "bytes uploaded",
            f"dev {s['metric']}",
            [Series(s["method"], points, labels=[f"round {r['round'] + 1}" for _, r in told])],
            x_unit="bytes",
        )
    )


def _every(run: RunFiles) -> Html:
    rows = [
        (f"{direction}: {kind}, {channel}", f"{n:,}", f"{p:,}", f"{w:,}")
        for (direction, kind, channel), (n, p, w) in by_message(run)
    ]
    head = ("direction: message, channel", "messages", "payload bytes", "bytes on the wire")
    return table(head, rows, "All rounds and what came before and after them", id_="traffic")


#: The coordinator's phases and the silos' stages, in the order in which they happen and in words.
_PHASES = {
    "telling": "telling (broadcast)",
    "collecting": "waiting for silos and collecting",
    "unmasking": "unmasking",
    "evaluating": "evaluating (beside the next round)",
}
_STAGES = {
    "waiting": "waiting for a core",
    "computing": "training",
    "ready": "waiting to send",
    "uploading": "masking and sending",
}


def _stacked(run: RunFiles, key: str, names: dict[str, str]) -> list[Series]:
    found = list(dict.fromkeys([*names, *(k for r in run.rounds for k in r.get(key, {}))]))
    series = [
        Series(names.get(k, k), [r.get(key, {}).get(k, 0.0) for r in run.rounds], "bar", True)
        for k in found
    ]
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
            # + 0.0: no minus before nothing
            off = f"{round(100 * (fact - planned) / planned, 1) + 0.0:+.1f} %"
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
        table(
            ("", "planned", "measured", "difference"),
            plan_rows(run),
            "Plan and fact",
            id_="planned",
        ),
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
