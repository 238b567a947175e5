"""communication-cost.html and privacy-budget.html: a document's figures (report.documents) as a page
for an officer's files. It prints on paper and asks no network for anything.

The first screen answers four questions: what left, who could read it, what does the budget say, what
is not protected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.pages.charts import Chart, Series, draw
from report.pages.elements import NONE, Html, data, node, page, section, table
from report.units import clock, exact, human_bytes

__all__ = ["document_page"]

Document = Mapping[str, Any]
_TITLES = {
    "communication-cost": "Communication cost",
    "privacy-budget": "Privacy budget",
}
_BEFORE = "before the first"


def document_page(document: Document, signature: str = "") -> str:
    """`signature`: in words, by whom it is signed and how to check it."""
    kind, about = document["document"], document["about"]
    title = f"{_TITLES[kind]}: {about['title']}"
    body = _cost(document) if kind == "communication-cost" else _budget(document)
    foot = [node("p", signature, id="signature", class_="dim")] if signature else []
    return page(title, _head(document, title), *body, *foot)


def _head(document: Document, title: str) -> Html:
    about = document["about"]
    whose = (
        f"What {about['party']} itself wrote down, and nothing that anybody else said."
        if about["role"] == "silo"
        else "What the coordinator counted, and what the silos' ledgers said."
    )
    rows = [
        ("study", about["title"]),
        ("consortium", about["consortium"]),
        ("made by", f"{about['party']} ({about['role']})"),
        ("coordinator", about["coordinator"]),
        ("silos", ", ".join(about["silos"])),
        ("began", clock(about["began"]) if about.get("began") else NONE),
        ("ended", clock(about["ended"]) if about.get("ended") else NONE),
        ("method, rounds", f"{about['method']}, {about['rounds']}"),
        ("program", f"sottovoce {about['program']}"),
    ]
    if about["study_hash"]:
        roster = f"version {about['roster_version']} ({about['roster_fingerprint']})"
        rows += [("roster", roster), ("study hash", about["study_hash"])]
    pairs = [x for name, value in rows for x in (node("dt", name), node("dd", str(value)))]
    parts = [node("h1", title), node("p", whose, class_="lead")]
    if about.get("simulated"):
        words = (
            "This is a simulation: its silos were one person's, and its noise comes from its seed."
        )
        parts.append(node("p", node("strong", words), class_="warning", role="note"))
    return node("header", *parts, node("dl", *pairs, class_="facts", id="about"))


def _tiles(*tiles: tuple[str, Html | str, str]) -> Html:
    return node(
        "dl",
        *(
            node(
                "div",
                node("dt", name),
                node(
                    "dd",
                    node("span", value, class_="big" if isinstance(value, Html) else "said"),
                    node("small", note),
                ),
            )
            for name, value, note in tiles
        ),
        class_="tiles",
    )


# Communication


def _cost(d: Document) -> list[Html]:
    silos: Mapping[str, Any] = d["silos"]
    whole = d.get("all_silos") or _sum(list(silos.values()))
    if not whole["bytes_up"]:
        return [node("p", "Nothing crossed a wire in this run: it was made in one process.")]
    who = "all silos" if len(silos) > 1 else next(iter(silos))
    rounds = max(1, sum(1 for r in whole["by_round"] if r["round"] >= 0))
    each = whole["bytes_up"] / rounds / max(1, len(silos))
    tiles = _tiles(
        (
            f"sent by {who}",
            data(whole["bytes_up"], human_bytes(whole["bytes_up"])),
            "on the wire, encryption and framing included",
        ),
        (
            f"received by {who}",
            data(whole["bytes_down"], human_bytes(whole["bytes_down"])),
            "TCP and IP headers are not counted",
        ),
        (
            "sent per silo and round",
            data(each, human_bytes(each)),
            f"{rounds} rounds, {len(silos)} silos",
        ),
        (
            "messages sent",
            data(whole["messages_up"], f"{whole['messages_up']:,}"),
            f"{whole['messages_down']:,} received",
        ),
    )
    by_round = [r for r in whole["by_round"] if r["round"] >= 0]
    chart = draw(
        Chart(
            "bytes-by-round",
            f"Bytes of {who}, by round",
            f"{len(by_round)} rounds.",
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
    parts = [tiles, section("rounds", "By round", chart, _rounds_table(whole))]
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
        head = ("when", "round", "what", "channel")
        parts.append(
            section("when", "When what left", table(head, rows, numbers=False, id_="when-table"))
        )
    return parts


def _rounds_table(whole: Mapping[str, Any]) -> Html:
    rows = [
        (str(r["round"] + 1) if r["round"] >= 0 else _BEFORE, f"{r['up']:,}", f"{r['down']:,}")
        for r in whole["by_round"]
    ]
    return table(("round", "bytes sent", "bytes received"), rows, id_="rounds-table")


def _sum(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """One silo's own document has one silo."""
    return parts[0]


# Privacy


def _epsilon(value: Any) -> str:
    if value is None:
        return "0"
    return "infinite" if value == "inf" else exact(float(value), "epsilon")


def _budget(d: Document) -> list[Html]:
    silos: Mapping[str, Any] = d["silos"]
    spent = [s["epsilon"] for s in silos.values() if s["epsilon"] is not None]
    worst: Any = "inf" if "inf" in spent else max(spent, default=None)
    off = d["dp"] == "off" or worst == "inf"
    readable = sorted({x["readable_by"] for x in d["disclosed"]})
    tiles = _tiles(
        (
            "what left",
            ", ".join(x["name"] for x in d["disclosed"]),
            "sentences, words and labels did not",
        ),
        ("who could read it", "; ".join(readable), "the table below says it for each"),
        (
            "what the budget says",
            data(worst, f"epsilon {_epsilon(worst)}"),
            f"at delta {d['delta']:g}" + (f", of {d['budget']:g} allowed" if d["budget"] else ""),
        ),
        (
            "what is not protected",
            "the sum, and the final model"
            if off
            else "several records of one person; that a silo took part",
            "the list below says all",
        ),
    )
    rows = [
        (x["name"], x["channel"], x["shape"], x["readable_by"], x["reveals"], x["privacy"])
        for x in d["disclosed"]
    ]
    head = ("what", "channel", "consists of", "readable by", "what it tells", "how it is charged")
    parts = [
        tiles,
        section(
            "left",
            "What left, and who could read it",
            node(
                "p",
                f"Of what is masked, only the sum over the silos can be read, as long as {d['masks_hold_if']}.",
            ),
            table(head, rows, numbers=False, id_="disclosed"),
        ),
        _spent(d),
        _uncovered(d, off),
    ]
    if d["declined"]:
        refused = [
            (clock(x["time"]), str(x["round"] + 1), x["name"], x["detail"]) for x in d["declined"]
        ]
        columns = ("when", "round", "why", "in words")
        parts.append(
            section(
                "declined",
                "What was declined",
                table(columns, refused, numbers=False, id_="declined-table"),
            )
        )
    return parts


def _spent(d: Document) -> Html:
    silos: Mapping[str, Any] = d["silos"]
    rows = []
    for name, s in silos.items():
        for c in s["charged"] or [{"what": NONE, "event": "nothing", "times": 0}]:
            rows.append((name, c["what"], c["event"], str(c["times"]), _epsilon(s["epsilon"])))
    head = ("silo", "what", "charged as", "times", "epsilon after this study")
    parts: list[Html] = [table(head, rows, numbers=False, id_="charged")]
    curves = [
        (name, [r for r in s["by_round"] if r["epsilon"] not in (None, "inf")])
        for name, s in silos.items()
    ]
    drawn = [(name, rounds) for name, rounds in curves if rounds]
    if drawn:
        x = [str(r["round"] + 1) for r in drawn[0][1]]
        series = [Series(name, [float(r["epsilon"]) for r in rounds]) for name, rounds in drawn[:8]]
        chart = Chart(
            "epsilon",
            "Epsilon spent, by round",
            "",
            "round",
            "epsilon",
            series,
            x=x,
            y_unit="epsilon",
        )
        parts.append(draw(chart))
    if "ledger_epsilon" in d:
        parts.append(
            node(
                "p",
                f"Over all studies, this silo's ledger has {d['ledger_lines']} lines and stands at epsilon "
                f"{_epsilon(d['ledger_epsilon'])}.",
                id="ledger",
            )
        )
    return section("spent", "What the ledgers were charged", *parts)


def _uncovered(d: Document, off: bool) -> Html:
    found = []
    if off:
        found.append(
            "No noise was added, or something left outside the budget: epsilon is infinite. What was sent, and the "
            "final model, may tell something about any record."
        )
    if d["dp"] == "record":
        found.append("A person with several records: k of them cost more than k times epsilon.")
        found.append("What the silo as a whole is like: its kind of text, its share of classes.")
    found.append("That a silo took part, when, and when its budget ended.")
    found.append("Facts about the population that are true with or without any one record.")
    found += [
        f"A silo's own part of {x['name']}, if {x['unless']}."
        for x in d["disclosed"]
        if x["unless"]
    ]
    return section(
        "unprotected", "What is not protected", node("ul", *(node("li", x) for x in found))
    )
