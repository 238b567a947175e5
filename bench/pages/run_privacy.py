"""The section that a data-protection officer reads: what left a silo, who could read it, at what budget."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from bench.pages.charts import Chart, Series, draw
from bench.pages.elements import Html, exact, node, section, table
from bench.pages.run_protection import not_protected, protection, utility
from bench.progress import human_bytes
from bench.runfiles import RunFiles

__all__ = ["left", "why_infinite"]

_HEAD = ("what", "channel", "consists of", "readable by", "what it tells", "privacy budget")


def why_infinite(s: dict[str, Any]) -> str:
    """Of a run whose epsilon is infinite: noise or none, which is not the same thing to say."""
    if s.get("dp", "off") == "off":
        return "no noise was added"
    return "noise was added, but something else was released without any"


def left(run: RunFiles) -> Html:
    s, d = run.summary, run.disclosures
    rows = [
        (x["name"], x["channel"], x["shape"], x["readable_by"], x["reveals"], x["privacy"])
        for x in d["each_silo_sends"]
    ]
    parts: list[Html] = [
        node("p", s["reference"])
        if s["reference"]
        else node(
            "p",
            "Sentences, words and labels never leave a silo. In each round each silo that took part sent the "
            "following, and would have refused to send anything else:",
        ),
        table(_HEAD, rows, "What each silo sent", numbers=False, id_="disclosures"),
    ]
    if run.on_the_wire:
        parts.append(_channels(run))
    if s["masked"] and not s["reference"]:
        parts.append(node("p", f"A masked sum hides its parts as long as {d['masks_hold_if']}."))
    parts += [protection(run), _epsilon(run)]
    if (curve := utility(run)) is not None:
        parts.append(curve)
    parts.append(not_protected(run))
    return section("privacy", "What left each silo, and who could read it", *parts)


def _channels(run: RunFiles) -> Html:
    sums: dict[str, int] = defaultdict(int)
    for t in run.traffic:
        if t["direction"] == "up":
            sums[t["channel"]] += t["wire_bytes"]
    words = {
        "masked": "masked (only the sum over the silos is readable)"
        if run.summary["masked"]
        else "clear: nothing was masked, the coordinator could read it",
        "sealed": "sealed (readable by the coordinator alone)",
        "control": "control (keys, signatures, acknowledgements)",
    }
    rows = [(words.get(c, c), f"{n:,}", human_bytes(n)) for c, n in sorted(sums.items(), key=lambda i: -i[1])]
    return table(("how it travelled", "bytes, all silos and rounds", ""), rows, "Uploads by channel", id_="channels")


def _epsilon(run: RunFiles) -> Html:
    s = run.summary
    after: dict[int, dict[str, float]] = defaultdict(dict)
    for line in run.privacy:  # a silo's total after its last event of the round
        after[line["round"]][line["silo"]] = float(line["epsilon_after"])  # "inf" is a float's own word too
    by_round = {t: list(silos.values()) for t, silos in after.items()}
    rounds = sorted(by_round)
    if s["epsilon"] == "inf" or not rounds:
        return node(
            "p",
            node("strong", "Epsilon is infinite"),
            f": {why_infinite(s)}, so what is released (sums, sealed values, the final model) is not differentially "
            "private; privacy.jsonl has every release of every silo. Secure aggregation hides each silo's part of a "
            "sum; it does not hide what the sum itself tells.",
            id="epsilon",
        )
    finite = {t: [e for e in by_round[t] if e != float("inf")] for t in rounds}
    most: list[float | None] = [max(finite[t]) if finite[t] else None for t in rounds]
    least: list[float | None] = [min(finite[t]) if finite[t] else None for t in rounds]
    says = f"At the end it is {exact(float(s['epsilon']), 'epsilon')} at delta {s['delta']:g}."
    if any(len(finite[t]) < len(by_round[t]) for t in rounds):
        says += " Some releases stand outside the budget (infinite); privacy.jsonl has each."
    return draw(
        Chart(
            "epsilon",
            "Epsilon spent, by round",
            says,
            "round",
            "epsilon",
            [Series("the silo that spent most", most), Series("the silo that spent least", least, dashed=True)],
            x=[str(t + 1) for t in rounds],
            y_unit="epsilon",
        )
    )
