"""What left a silo, who could read it and what protects it, in plain words; and what is not
protected, as large.
"""

from __future__ import annotations

from report.files import RunFiles
from report.pages.charts import Chart, Series, draw
from report.pages.elements import Html, node, table

__all__ = [
    "not_protected",
    "protection",
    "protection_rows",
    "sentences",
    "trust",
    "unprotected",
    "utility",
]

_CHANNEL = {
    "masked": "masks: only the sum can be read",
    "sealed": "encryption on the way; the coordinator reads it",
    "signed": "nothing: it is signed, and seen by the coordinator and the silos of the sum",
    "clear": "nothing on the way: the coordinator reads it",
}


def trust(run: RunFiles) -> str:
    """What masks do, and on what conditions: the one place where the report says so. Empty where
    nothing was masked.
    """
    s, d = run.summary, run.disclosures
    masked = [x for x in d["each_silo_sends"] if x["channel"] == "masked"]
    if not s["masked"] or s["reference"] or not masked:
        return ""
    text = (
        "Of what is masked, only the sum over the silos can be read, and no silo's own part, as long as "
        f"{d['masks_hold_if']}."
    )
    lies = [
        f"of {x['name']}, a silo's own part can be read if {x['unless']}"
        for x in masked
        if x.get("unless")
    ]
    return text + "".join(f" One exception: {lie}." for lie in lies)


def protection_rows(run: RunFiles) -> list[tuple[str, str, str]]:
    """(what, who could read it, what protects it), the last from what the silos' ledgers were
    charged.
    """
    said: dict[str, str] = {}
    for line in run.privacy:
        said[line.get("disclosure", "")] = line.get("event", "")
    rows = []
    for d in run.disclosures["each_silo_sends"]:
        event = said.pop(d["name"], "")
        noise = "without noise" if not event or event.startswith("non-private") else event
        rows.append(
            (d["name"], d["readable_by"], f"{_CHANNEL.get(d['channel'], d['channel'])}; {noise}")
        )
    inside = "nobody: it is what the silo computed with, and paid for"
    rows += [(what, inside, event) for what, event in said.items() if what and event]
    return rows


def protection(run: RunFiles) -> Html:
    return table(
        ("what", "who could read it", "what protects it"),
        protection_rows(run),
        "What left each silo, who could read it, what protects it",
        numbers=False,
        id_="protection",
    )


def sentences(run: RunFiles) -> list[str]:
    """What a reader of this run must not believe to be protected."""
    s = run.summary
    return unprotected(
        dp=s.get("dp", "off"),
        unit=s.get("privacy_unit") or "record",
        infinite=s["epsilon"] == "inf",
        masked=bool(trust(run)),
        simulated=run.partition is not None,
    )


def unprotected(
    *, dp: str, unit: str, infinite: bool, masked: bool, simulated: bool = False
) -> list[str]:
    """The same from the facts that decide it: reports and officers' documents say it alike."""
    found = []
    if infinite:
        found.append(
            "What was sent, and the final model, may tell something about any record: epsilon is infinite."
        )
    if dp == "record":
        found += [
            f"A person with several {unit}s: k of them cost more than k times epsilon.",
            f"How many {unit}s a silo has, that it took part, and when its budget ended.",
            "What the silo as a whole is like: its kind of text, its share of classes.",
        ]
    if dp == "silo":
        found.append("That a silo took part, and when its budget ended.")
    if masked:
        found.append(
            "A silo's own part of a sum, where the conditions for what is masked do not hold."
        )
    found.append("Facts about the population that are true with or without any one record.")
    if dp != "off" and simulated:
        found.append(
            "Anything, against whoever knows this simulation's seed: its noise comes from it."
        )
    return found


def not_protected(run: RunFiles) -> Html:
    items = [node("li", x) for x in sentences(run)]
    return node("div", node("h3", "What is not protected"), node("ul", *items), id="unprotected")


def utility(run: RunFiles) -> Html | None:
    """The dev metric against what the worst-off silo had spent by then."""
    spent: dict[int, float] = {}
    for line in run.privacy:
        spent[line["round"]] = max(spent.get(line["round"], 0.0), float(line["epsilon_after"]))
    points = [
        (spent[r["round"]], float(r["dev"]))
        for r in run.rounds
        if spent.get(r["round"], float("inf")) < 1e9 and r["dev"] is not None
    ]
    if len(points) < 2:
        return None
    s = run.summary
    return draw(
        Chart(
            "utility",
            f"Dev {s['metric']} against epsilon spent",
            f"From {points[0][1]:.3f} at epsilon {points[0][0]:.3g} to {points[-1][1]:.3f} at {points[-1][0]:.3g}.",
            "epsilon of the silo that spent most",
            f"dev {s['metric']}",
            [Series("rounds", points)],
            x_unit="epsilon",
        )
    )
