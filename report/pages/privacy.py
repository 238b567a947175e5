"""The section that a data-protection officer reads: what left a silo, who could read it, at what
budget.
"""

from __future__ import annotations

from collections import defaultdict

from report.files import RunFiles
from report.pages.audit import audit_of_run
from report.pages.charts import Chart, Series, draw
from report.pages.elements import Html, node, section, table
from report.pages.protection import not_protected, protection, trust, utility
from report.pages.words import rounds_with, why_infinite
from report.units import exact

__all__ = ["HEAD", "disclosure_rows", "left"]

HEAD = (
    "what",
    "channel",
    "in rounds",
    "consists of",
    "readable by",
    "what it tells",
    "privacy budget",
)


def disclosure_rows(run: RunFiles) -> list[tuple[str, ...]]:
    keys = ("shape", "readable_by", "reveals", "privacy")
    return [
        (
            x["name"],
            x["channel"],
            rounds_with(run, x["name"]).removeprefix("rounds ").removeprefix("round "),
        )
        + tuple(x[k] for k in keys)
        for x in run.disclosures["each_silo_sends"]
    ]


def left(run: RunFiles) -> Html:
    s = run.summary
    parts: list[Html] = [
        node("p", s["reference"])
        if s["reference"]
        else node(
            "p",
            "Sentences, words and labels never leave a silo. A silo that took part in a round sent the following, and "
            "would have refused to send anything else:",
        ),
        table(HEAD, disclosure_rows(run), "What each silo sent", numbers=False, id_="disclosures"),
    ]
    if run.on_the_wire:
        parts.append(_channels(run))
    if said := trust(run):
        parts.append(node("p", said, id="trust"))
    parts += [protection(run), _epsilon(run), audit_of_run(run)]
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
    rows = [(words.get(c, c), f"{n:,}") for c, n in sorted(sums.items(), key=lambda i: -i[1])]
    return table(
        ("how it travelled", "bytes"), rows, "Uploads of all silos in the whole run", id_="channels"
    )


def _epsilon(run: RunFiles) -> Html:
    s = run.summary
    after: dict[int, dict[str, float]] = defaultdict(dict)
    for line in run.privacy:  # a silo's total after its last event of the round
        # "inf" is a float's own word too
        after[line["round"]][line["silo"]] = float(line["epsilon_after"])
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
            [
                Series("the silo that spent most", most),
                Series("the silo that spent least", least, dashed=True),
            ],
            x=[str(t + 1) for t in rounds],
            y_unit="epsilon",
        )
    )
