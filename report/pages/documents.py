"""report.html (a silo's own), communication-cost.html and privacy-budget.html: a document's figures
(report.documents) as a page for an officer's files. It prints on A4 and asks no network for anything.

The first screen answers four questions: what left, who could read it, what does the budget say, what
is not protected.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from report.pages.budget import budget_parts, down, epsilon_words
from report.pages.charts import Chart, Series, draw
from report.pages.elements import NONE, Html, data, node, page, section, table
from report.units import clock, human_bytes

__all__ = ["NAMES", "document_page"]

Document = Mapping[str, Any]
NAMES = {
    "report": "Report",
    "communication-cost": "Communication cost",
    "privacy-budget": "Privacy budget",
}
_BEFORE = "before the first"


def document_page(document: Document, signature: str = "") -> str:
    """`signature`: in words, by whom it is signed and how to check it."""
    kind, about = document["document"], document["about"]
    title = f"{NAMES[kind]}: {about['title']}"
    made = {"report": _report, "communication-cost": _cost, "privacy-budget": budget_parts}
    foot = [node("p", signature, id="signature", class_="dim")] if signature else []
    return page(
        title,
        _head(document, title),
        _questions(document),
        _which(about),
        *made[kind](document),
        *_not_counted(document),
        *foot,
    )


def _head(document: Document, title: str) -> Html:
    about = document["about"]
    whose = (
        f"From what {about['party']} itself wrote down, and from nothing that anybody else said."
        if about["role"] == "silo"
        else "From what the coordinator counted, and what the silos' ledgers said."
    )
    parts = [node("h1", title), node("p", whose, class_="lead")]
    if about.get("simulated"):
        words = (
            "This is a simulation: its silos were one person's, and its noise comes from its seed."
        )
        parts.append(node("p", node("strong", words), class_="warning", role="note"))
    others = [
        node("a", NAMES[kind], href=f"{kind}.html")
        for kind in NAMES
        if kind != document["document"]
    ]
    return node("header", *parts, node("nav", *others, aria_label="The other documents"))


def _which(about: Mapping[str, Any]) -> Html:
    rows = [
        ("study", about["title"]),
        ("consortium", about["consortium"]),
        ("made by", f"{about['party']} ({about['role']})"),
        ("coordinator", about["coordinator"]),
        ("silos", ", ".join(about["silos"])),
        ("began", clock(about["began"]) if about.get("began") else NONE),
        ("ended", clock(about["ended"]) if about.get("ended") else NONE),
        ("method", f"{about['method']}. {about['method_summary']}"),
        ("rounds", str(about["rounds"])),
        ("program", f"sottovoce {about['program']}"),
    ]
    if about["study_hash"]:
        roster = f"version {about['roster_version']} ({about['roster_fingerprint']})"
        rows += [("roster", roster), ("study hash", about["study_hash"])]
    if consent := about.get("consent"):
        how = {"asked": "by its operator, who was asked", "policy": "by its own policy"}
        when = clock(datetime.fromisoformat(consent["time"]).timestamp())
        rows.append(("agreed to", f"{when}, {how.get(consent['how'], 'by its hash')}"))
    pairs = [x for name, value in rows for x in (node("dt", name), node("dd", str(value)))]
    return node("dl", *pairs, class_="facts", id="about")


def _not_counted(d: Document) -> list[Html]:
    """Why another party's figures may differ from these; nothing, where they cannot."""
    said = d["not_counted"]
    if not said:
        return []
    words = "What the other party may count otherwise"
    return [section("otherwise", words, *(node("p", x) for x in said))]


def _questions(d: Document) -> Html:
    """The first screen."""
    told, about = d["answers"], d["about"]
    whose = about["party"] if about["role"] == "silo" else "all silos"
    readable: dict[str, list[str]] = {}
    for x in told["left"]:
        readable.setdefault(x["readable_by"], []).append(x["name"])
    read = [
        node("span", f"{' and '.join(names)}: {by}", class_="said")
        for by, names in readable.items()
    ]
    worst = told["epsilon"]
    of = f", of {told['budget']:g} allowed" if told["budget"] else ""
    left = "" if told["remains"] is None else f"; {down(told['remains'])} remains"
    says = (
        "no bound holds: nothing limits what could be learnt about a record"
        if worst == "inf"
        else f"at delta {told['delta']:g}, for one {told['unit']}{of}{left}"
    )
    sent = [node("span", f"{x['name']}: {x['shape']}", class_="said") for x in told["left"]] or [
        node("span", "nothing", class_="said")
    ]
    much = (
        f"{human_bytes(told['bytes_up'])} in all, sent by {whose}."
        if told["bytes_up"]
        else "Nothing crossed a wire: everything ran in one process."
    )
    holds = f"as long as {told['masks_hold_if']}" if told["masks_hold_if"] else ""
    where = "below" if d["document"] == "privacy-budget" else "in the privacy budget"
    tiles = (
        (
            "What left?",
            Html("".join(sent)),
            f"{much} No sentence, word or label.",
        ),
        ("Who could read it?", Html("".join(read) or "nobody"), holds),
        (
            "What does the budget say?",
            node("span", data(worst, f"epsilon {epsilon_words(worst)}"), class_="big"),
            says,
        ),
        (
            "What is not protected?",
            node("span", told["not_protected"][0], class_="said"),
            f"and {len(told['not_protected']) - 1} more, {where}",
        ),
    )
    return node(
        "dl",
        *(
            node(
                "div", node("dt", name), node("dd", value, *([node("small", note)] if note else []))
            )
            for name, value, note in tiles
        ),
        class_="tiles questions",
        id="questions",
    )


# A silo's own report


def _report(d: Document) -> list[Html]:
    silo = d["about"]["party"]
    own = d["silos"][silo]
    rounds = d["about"]["rounds"]
    return [
        section(
            "part",
            f"What {silo} took part in",
            node(
                "p",
                f"Its answers were taken in {len(own['rounds'])} of {rounds} rounds. It sent ",
                data(own["bytes_up"], human_bytes(own["bytes_up"])),
                f" in {own['messages_up']:,} messages and received ",
                data(own["bytes_down"], human_bytes(own["bytes_down"])),
                ".",
            ),
            _sums(d),
        ),
        section(
            "left",
            "What left, when, and who could read it",
            _times(d),
            _disclosed_table(d),
        ),
        section("declined", "What was declined", *_declined(d)),
        section("connections", "Connections", _connections(d)),
        section(
            "unprotected",
            "What is not protected",
            node("ul", *(node("li", x) for x in d["not_protected"])),
        ),
    ]


def _sums(d: Document) -> Html:
    if not d["sums"]:
        return node("p", "No sum was opened with its help.")
    rows = [
        (str(x["round"] + 1), x["exchange"], clock(x["time"]), ", ".join(x["silos"]))
        for x in d["sums"]
    ]
    head = ("round", "exchange", "opened", "whose parts are in the sum")
    words = "Sums that were opened with this silo's help"
    return table(head, rows, words, numbers=False, id_="sums")


def _times(d: Document) -> Html:
    if not d["times_left"]:
        return node("p", "Nothing left.", id="nothing-left")
    readable = {x["name"]: x["readable_by"] for x in d["disclosed"]}
    rows = [
        (
            clock(t["time"]),
            str(t["round"] + 1),
            t["name"],
            t["channel"],
            readable.get(t["name"], NONE),
        )
        for t in d["times_left"]
    ]
    head = ("when", "round", "what", "channel", "readable by")
    return table(head, rows, "Each time that something left", numbers=False, id_="when-table")


def _disclosed_table(d: Document) -> Html:
    rows = [(x["name"], x["shape"], x["reveals"], x["privacy"]) for x in d["disclosed"]]
    head = ("what", "consists of", "what it tells", "how it is charged")
    return table(head, rows, "What each of them is", numbers=False, id_="disclosed")


def _declined(d: Document) -> list[Html]:
    parts = []
    if d["declined"]:
        rows = [
            (clock(x["time"]), str(x["round"] + 1), x["name"], x["detail"]) for x in d["declined"]
        ]
        head = ("when", "round", "why", "in words")
        words = "Requests in this study that the silo refused"
        parts.append(table(head, rows, words, numbers=False, id_="declined-table"))
    else:
        parts.append(node("p", "No request in this study was refused."))
    if d["studies_declined"]:
        rows = [
            (x["title"], x["study"], clock(x["time"]), x["why"] or NONE)
            for x in d["studies_declined"]
        ]
        head = ("study", "proposed as", "when", "why")
        words = "Whole studies that its operator declined"
        parts.append(table(head, rows, words, numbers=False, id_="declined-studies"))
    return parts


def _connections(d: Document) -> Html:
    rows = [
        (
            clock(x["time"]),
            x["what"],
            str(x["round"] + 1) if x["round"] >= 0 else _BEFORE,
            x.get("computes_on", ""),
        )
        for x in d["connections"]
    ]
    head = ("when", "what", "round", "computed on")
    return table(head, rows, "Its connections to the coordinator", numbers=False, id_="dialled")


# Communication


def _cost(d: Document) -> list[Html]:
    silos: Mapping[str, Any] = d["silos"]
    whole = d.get("all_silos") or next(iter(silos.values()))
    if not whole["bytes_up"]:
        return [node("p", "Nothing crossed a wire in this run: it was made in one process.")]
    who = "all silos" if len(silos) > 1 else next(iter(silos))
    by_round = whole["by_round"]
    rounds = max(1, len(by_round))
    each = sum(r["up"] for r in by_round) / rounds / max(1, len(silos))
    words = node(
        "p",
        f"Sent by {who}: ",
        data(whole["bytes_up"], human_bytes(whole["bytes_up"])),
        f" in {whole['messages_up']:,} messages. Received: ",
        data(whole["bytes_down"], human_bytes(whole["bytes_down"])),
        f" in {whole['messages_down']:,} messages. In a round, a silo sent ",
        data(each, human_bytes(each)),
        " of masked and sealed values on average; keys, signatures and acknowledgements come on top. Counted on "
        "the wire: encryption and framing are in it, TCP and IP headers are not.",
        id="totals",
    )
    chart = draw(
        Chart(
            "bytes-by-round",
            f"Bytes of {who}, by round",
            "What was masked, sealed or broadcast; keys and signatures stand in the table by kind.",
            "round",
            "bytes",
            [
                Series("sent", [r["up"] for r in by_round], kind="bar"),
                Series("received", [r["down"] for r in by_round], kind="bar"),
            ],
            x=[str(r["round"] + 1) for r in by_round],
            y_unit="bytes",
        )
    )
    parts = [section("rounds", "By round", words, chart, _rounds_table(whole))]
    kinds = [(k, f"{n:,}", f"{p:,}", f"{w:,}") for k, (n, p, w) in whole["by_kind"].items()]
    head = ("direction, message, channel", "messages", "payload bytes", "bytes on the wire")
    parts.append(section("kinds", "By kind of message", table(head, kinds, id_="kinds-table")))
    if len(silos) > 1:
        rows = [
            (name, f"{b['bytes_up']:,}", f"{b['bytes_down']:,}", f"{b['messages_up']:,}")
            for name, b in silos.items()
        ]
        head = ("silo", "bytes sent", "bytes received", "messages sent")
        parts.append(section("silos", "By silo", table(head, rows, id_="silos-table")))
    if times := d.get("times_left"):
        rows = [(clock(t["time"]), str(t["round"] + 1), t["name"], t["channel"]) for t in times]
        columns = ("when", "round", "what", "channel")
        when = table(columns, rows, numbers=False, id_="when-table")
        parts.append(section("when", "When what left", when))
    return parts


def _rounds_table(whole: Mapping[str, Any]) -> Html:
    rows = [(str(r["round"] + 1), f"{r['up']:,}", f"{r['down']:,}") for r in whole["by_round"]]
    return table(("round", "bytes sent", "bytes received"), rows, id_="rounds-table")
