"""privacy-budget.html: what the ledgers were charged, by accountant, by round and over all studies;
what that does not cover; what remains; and all of it in words that an officer can sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from report.pages.audit import audit_of_document
from report.pages.charts import Chart, Series, draw
from report.pages.elements import NONE, Html, data, node, section, table
from report.units import clock, exact

__all__ = ["budget_parts", "down", "epsilon_words", "statement"]

Document = Mapping[str, Any]
_CURVES = 8  #: silos that are drawn one by one


def epsilon_words(value: Any) -> str:
    if value is None:
        return "0"
    return "infinite" if value == "inf" else exact(float(value), "epsilon")


def budget_parts(d: Document) -> list[Html]:
    rows = [
        (
            x["name"],
            x["channel"],
            x["readable_by"],
            x["reveals"],
            x["privacy"],
            _event(d, x["name"]),
        )
        for x in d["disclosed"]
    ]
    head = ("what", "channel", "readable by", "what it tells", "how it is charged", "charged as")
    masks = (
        f"Of what is masked, only the sum over the silos can be read, as long as {d['masks_hold_if']}."
        if d["masked"]
        else "Nothing was masked: the coordinator could read every silo's part."
    )
    parts = [
        section("statement", "In words", *(node("p", x) for x in statement(d)), _sign_here()),
        section(
            "left",
            "What left, and who could read it",
            node("p", masks),
            table(head, rows, numbers=False, id_="disclosed"),
        ),
        _spent(d),
        *audit_of_document(d),
    ]
    if "ledger" in d:
        parts.append(_ledger(d))
    parts.append(
        section(
            "unprotected",
            "What the budget does not cover",
            node("ul", *(node("li", x) for x in [*d["not_protected"], *_unless(d)])),
        )
    )
    if d["declined"]:
        refused = [
            (x.get("silo", d["about"]["party"]), clock(x["time"]), x["name"], x["detail"])
            for x in d["declined"]
        ]
        columns = ("silo", "when", "why", "in words")
        said = table(columns, refused, numbers=False, id_="declined-table")
        parts.append(section("declined", "What was declined", said))
    return parts


def statement(d: Document) -> list[str]:
    """What an officer puts a name to. Nothing is rounded in our favour: epsilon is rounded up."""
    about, told = d["about"], d["answers"]
    whose = about["party"] if about["role"] == "silo" else "every silo of the study"
    names = ", ".join(x["name"] for x in told["left"]) or "nothing"
    said = [
        f"In the study “{about['title']}”, {whose} sent {names}, and no sentence, word or label."
    ]
    if told["epsilon"] == "inf":
        said.append(
            "No bound on privacy loss holds: noise was not added to everything that left. What was sent, and the "
            "model, may tell something about any single record."
        )
    else:
        worst = told["epsilon"]
        rdp = [s["epsilon_rdp"] for s in d["silos"].values() if s["epsilon_rdp"] is not None]
        by_other = f" (by the second accountant, Rényi: {epsilon_words(max(rdp))})" if rdp else ""
        said.append(
            f"Over everything that left up to the end of this study, the privacy loss for one {d['unit']} is at most "
            f"epsilon {epsilon_words(worst)} at delta {d['delta']:g}, by the accountant to which the budget is held"
            f"{by_other}."
        )
    if "ledger" in d:
        ledger = d["ledger"]
        studies = len(ledger["studies"])
        said.append(
            f"The ledger of {about['party']} holds {ledger['lines']} lines of {studies} "
            f"{'study' if studies == 1 else 'studies'} and stands at {_stands(ledger)}. {_remains(ledger)}"
        )
    said.append("Not covered: " + " ".join(d["not_protected"]))
    return said


def _stands(ledger: Mapping[str, Any]) -> str:
    if ledger["epsilon"] == "inf":
        return "an infinite epsilon"
    return f"epsilon {epsilon_words(ledger['epsilon'])} at delta {ledger['delta']:g}"


def _remains(ledger: Mapping[str, Any]) -> str:
    if ledger["limit"] is None:
        return "No limit is set, so nothing can be said to remain."
    if ledger["remains"] is None:
        return f"Of the limit of {ledger['limit']:g} nothing remains."
    return f"Of the limit of {ledger['limit']:g}, {down(ledger['remains'])} remains."


def down(left: float) -> str:
    """What remains is rounded down, as what was spent is rounded up."""
    return f"{math.floor(left * 1e4) / 1e4:.4f}"


def _sign_here() -> Html:
    lines = [
        node("div", node("span", "", class_="line"), node("small", word))
        for word in ("name", "place and date", "signature")
    ]
    return node("div", *lines, class_="sign", aria_hidden="true")


def _event(d: Document, disclosure: str) -> str:
    found = {
        c["event"] for s in d["silos"].values() for c in s["charged"] if c["what"] == disclosure
    }
    return "; ".join(sorted(found)) or NONE


def _unless(d: Document) -> list[str]:
    return [
        f"A silo's own part of {x['name']}, if {x['unless']}."
        for x in d["disclosed"]
        if x["unless"]
    ]


def _spent(d: Document) -> Html:
    silos: Mapping[str, Any] = d["silos"]
    rows = []
    for name, s in silos.items():
        for c in s["charged"] or [{"what": NONE, "event": "nothing", "times": 0}]:
            rows.append((name, c["what"], c["event"], str(c["times"])))
    totals = [
        (
            name,
            data(s["epsilon"], epsilon_words(s["epsilon"])),
            data(s["epsilon_rdp"], epsilon_words(s["epsilon_rdp"])),
            _left(d, s["epsilon"]),
        )
        for name, s in silos.items()
    ]
    words = "Epsilon after this study, by accountant, at the same delta"
    head = ("silo", "by privacy-loss distributions", "by Rényi", "remains of the study's budget")
    parts: list[Html] = [table(head, totals, words, id_="totals")]
    curves = [
        (name, [r for r in s["by_round"] if r["epsilon"] not in (None, "inf")])
        for name, s in silos.items()
    ]
    drawn = [(name, rounds) for name, rounds in curves if rounds][:_CURVES]
    if drawn:
        at = sorted({r["round"] for _, rounds in drawn for r in rounds})
        series = []
        for name, rounds in drawn:
            after = {r["round"]: float(r["epsilon"]) for r in rounds}
            series.append(Series(name, [after.get(t) for t in at]))
        of = f"The first {_CURVES} of {len(curves)} silos. " if len(curves) > _CURVES else ""
        chart = Chart(
            "epsilon",
            "Epsilon spent, by round",
            f"{of}At delta {d['delta']:g}.",
            "round",
            "epsilon",
            series,
            x=[str(t + 1) for t in at],
            y_unit="epsilon",
        )
        parts.append(draw(chart))
    columns = ("silo", "what", "charged as", "times")
    parts.append(table(columns, rows, "What was charged", numbers=False, id_="charged"))
    return section("spent", "What the ledgers were charged", *parts)


def _left(d: Document, epsilon: Any) -> str:
    if not d["budget"] or epsilon in (None, "inf"):
        return NONE
    return f"{down(max(0.0, d['budget'] - float(epsilon)))} of {d['budget']:g}"


def _ledger(d: Document) -> Html:
    ledger = d["ledger"]
    rows = [
        (
            x["title"],
            x["study"][:12] or NONE,
            str(x["lines"]),
            epsilon_words(x["epsilon"]),
            epsilon_words(x["epsilon_rdp"]),
        )
        for x in ledger["studies"]
    ]
    rows.append(
        (
            "all together",
            "",
            str(ledger["lines"]),
            epsilon_words(ledger["epsilon"]),
            epsilon_words(ledger["epsilon_rdp"]),
        )
    )
    head = ("study", "hash", "lines", "epsilon alone", "by Rényi")
    return section(
        "ledger",
        "Over all studies in the ledger",
        table(head, rows, f"At delta {ledger['delta']:g}", id_="studies"),
        node(
            "p",
            "Studies cost less together than the sum of what each costs alone: that is how the accountants compose "
            "them. ",
            _remains(ledger),
            f" The first {ledger['lines']} lines of ledger.jsonl have the SHA-256 {ledger['sha256']}.",
        ),
    )
