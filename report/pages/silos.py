"""The section on the silos: who held what, who sent how much, who dropped out, when and why."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from config.names import with_names
from report.absences import absences, absences_words, standstills
from report.events import Lost, Out
from report.files import RunFiles
from report.pages.elements import NONE, Html, details, node, section, table
from report.units import clock, duration

__all__ = ["division", "held_classes", "silos"]

_LEVELS = 8  #: shades of the partition's picture; page.css has a class for each
_OPEN = 20  #: tables of more silos than this are folded


def silos(run: RunFiles) -> Html:
    parts = [_missed(run), *_away(run), _each(run)]
    if run.partition is not None:
        parts += [node("h3", "Who held which examples"), _partition(run.partition)]
    return section("silos", "The silos", *parts)


def _missed(run: RunFiles) -> Html:
    missed = run.summary["missed"]
    head = node("h3", "Who dropped out")
    if not missed:
        said = "Nobody: every silo that was asked answered, in every round."
        if away := absences_words(absences(run.events)):
            said = (
                f"No answer is missing: every silo that was asked answered, in every round; {away}."
            )
        return node("div", head, node("p", said), id="missed")
    why: dict[tuple[str, int], list[str]] = defaultdict(list)
    for event in run.events:
        match event:
            case Out(silo=silo, round=round, stage=stage):
                why[silo, round].append(f"{event.why} (while {stage})")
            case Lost(silo=silo, round=round):
                why[silo, round].append("connection lost")
    rows = [
        (
            run.members.get(silo, silo),
            str(r + 1),
            with_names("; ".join(dict.fromkeys(why[silo, r])), run.members)
            or "was not there when the round began",
        )
        for silo, rounds in missed.items()
        for r in rounds
    ]
    return node(
        "div",
        head,
        table(("silo", "round", "why"), rows, "Who dropped out", numbers=False, id_="dropped"),
        id="missed",
    )


def _away(run: RunFiles) -> list[Html]:
    """Every loss and return, and when the run stood still for want of silos."""
    parts = []
    if lost := absences(run.events):
        rows = [
            (
                run.members.get(a.silo, a.silo),
                str(a.round + 1),
                clock(a.lost),
                clock(a.back) if a.back is not None else "did not come back",
                duration(a.back - a.lost) if a.back is not None else NONE,
            )
            for a in lost
        ]
        head = ("silo", "round", "lost", "back", "away for")
        parts += [
            node("h3", "Losses and returns"),
            table(head, rows, "Losses and returns", numbers=False, id_="absences"),
        ]
    if stood := standstills(run.events):
        rows = [
            (
                str(w.round + 1),
                ", ".join(run.members.get(silo, silo) for silo in w.silos),
                clock(w.began),
                clock(w.ended) if w.ended is not None else NONE,
                duration(w.ended - w.began) if w.ended is not None else NONE,
            )
            for w in stood
        ]
        head = ("round", "waited for", "from", "to", "for")
        parts += [
            node("h3", "When the run waited for silos"),
            table(head, rows, "When the run waited for silos", numbers=False, id_="standstills"),
        ]
    return parts


def _each(run: RunFiles) -> Html:
    asked: dict[str, int] = defaultdict(int)
    came: dict[str, int] = defaultdict(int)
    for r in run.rounds:
        for silo in r["participants"]:
            asked[silo] += 1
        for silo in r["survivors"]:
            came[silo] += 1
    sent: dict[tuple[str, str], int] = defaultdict(int)
    for t in run.traffic:
        sent[t["silo"], t["direction"]] += t["wire_bytes"]
    sizes = run.partition["sizes"] if run.partition else []

    def row(silo: str) -> tuple[str, ...]:
        at = int(silo.rpartition("-")[2])
        named = run.members.get(silo)
        return (
            f"{named} ({silo})" if named else silo,  # the logs have the number
            f"{sizes[at]:,}" if at < len(sizes) else NONE,
            f"{came[silo]} of {asked[silo]}",
            f"{sent[silo, 'up']:,}" if run.on_the_wire else NONE,
            f"{sent[silo, 'down']:,}" if run.on_the_wire else NONE,
        )

    head = ("silo", "examples", "rounds survived", "bytes up", "bytes down")
    whole = table(head, [row(s) for s in sorted(asked)], "Each silo", id_="each-silo")
    never = max(len(sizes) - len(asked), 0)
    who = f"each of the {len(asked)} silos" + (
        f" that were asked ({never} others never were)" if never else ""
    )
    return details(who, whole, open_=len(asked) <= _OPEN)


def held_classes(p: dict[str, Any]) -> str:
    """How many of the classes a silo holds, in a sentence."""
    held = sorted(sum(n > 0 for n in row) for row in p["label_counts"])
    if held[0] == held[-1]:
        return f"Every silo holds {held[0]} of the {len(p['labels'])} classes."
    return f"Of {len(p['labels'])} classes a silo holds {held[0]} to {held[-1]}, mostly {held[len(held) // 2]}."


def division(p: dict[str, Any]) -> str:
    """How the examples were divided, in words."""
    sizes = p["sizes"]
    each = (
        f"{min(sizes):,} to {max(sizes):,} examples"
        if min(sizes) < max(sizes)
        else f"{sizes[0]:,} examples each"
    )
    return (
        f"{p['spec']}, seed {p['seed']}: {len(sizes)} silos with {each}, {sum(sizes):,} in all."
        f"{' ' + p['note'] + '.' if p['note'] else ''} {held_classes(p)} Only a simulation knows this: on separate "
        "machines nobody but the silo itself sees its classes."
    )


def _partition(p: dict[str, Any]) -> Html:
    sizes, counts, labels = p["sizes"], p["label_counts"], p["labels"]
    open_ = len(sizes) <= _OPEN * 2
    parts = [
        node("p", division(p)),
        details("silo by class", _heat("partition", labels, counts, sizes), open_=open_),
    ]
    if "histogram" in p:
        h = p["histogram"]
        bins = [f"{a:.3g} to {b:.3g}" for a, b in zip(h["edges"], h["edges"][1:])]
        what = f"{h['of']} of each silo's examples"
        parts.append(
            details(
                what,
                _heat("histogram", bins, h["counts"], [sum(r) for r in h["counts"]]),
                open_=open_,
            )
        )
    return node("div", *parts)


def _heat(id_: str, columns: list[str], counts: list[list[int]], sums: list[int]) -> Html:
    """Silo by column, darker is more. The picture is the table."""
    most = max((n for row in counts for n in row), default=0)

    def shade(n: int) -> str:
        """By the logarithm: a class of ten among thousands must not look like none."""
        return str(math.ceil(_LEVELS * math.log1p(n) / math.log1p(most))) if n else "0"

    names = [node("th", node("span", n), scope="col") for n in columns]
    top = node("tr", node("th", "silo", scope="col"), *names, node("th", "all", scope="col"))
    lines = [
        node(
            "tr",
            node("th", f"{i:03d}", scope="row"),
            *(node("td", str(n) if n else "", class_=f"h{shade(n)}") for n in row),
            node("td", f"{sums[i]:,}"),
        )
        for i, row in enumerate(counts)
    ]
    whole = node("table", node("thead", top), node("tbody", *lines), class_="heat", id=id_)
    return node(
        "div",
        whole,
        class_="scroll tall",
        tabindex="0",
        role="region",
        aria_label="examples by silo",
    )
