"""What attacks proved beside each promised epsilon, in a run's report and in its privacy-budget
document; or the sentence that says that nobody attacked this run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from report.audit import MODEL, Audit, Bound
from report.files import RunFiles
from report.pages.elements import Html, data, node, section, table
from report.units import clock, exact

__all__ = [
    "HEAD",
    "audit_figures",
    "audit_of_document",
    "audit_of_run",
    "audit_rows",
    "audit_words",
    "broken_words",
]

HEAD = (
    "what was attacked",
    "epsilon promised: at most",
    "epsilon proved: at least",
    "confidence",
    "plays",
    "attack that proved most",
)
_TITLE = "What attacks proved"
_WEAK = (
    "A bound far below its promise says that these attacks are weak. It does not say that the promise could be "
    "smaller."
)


def broken_words(audit: Audit | None) -> list[str]:
    """What must be read before any figure: an attack that proved more than was promised."""
    if audit is None or not audit.broken:
        return []
    return [f"An audit broke the promise of this run: {', '.join(audit.broken)}."]


def audit_words(run: RunFiles) -> list[str]:
    """The sentences that stand around the table; of a run that was not audited, all there is."""
    s, audit = run.summary, run.audit
    if audit is not None and audit.bounds:
        return _said(audit, str(s.get("dp", "off")))
    simulated = run.study is None
    missing = _not_audited(s, f"RUN={run.path}" if simulated else "")
    return [f"{audit.ignored} {missing}" if audit is not None else missing]


def _said(audit: Audit, dp: str) -> list[str]:
    again = (
        "The run was played again for it, and ended with the same model, bit for bit."
        if audit.played_again
        else "The run was played again for it with the same settings, and ended with another model: silos were lost "
        "in one of the two, or another machine computed."
    )
    parts = [f"Attacked on {clock(audit.made)} by sottovoce {audit.program} ({audit.command})."]
    parts.append(again)
    parts.append(
        "The final model is attacked as one of the same settings that was trained on a random half of the records: "
        "which were in it?"
    )
    if dp == "silo":
        parts.append(
            "That attack is on single records, and DP=silo promises something of whole silos."
        )
    if any(b.what != MODEL for b in audit.bounds):
        parts.append(
            "The other lines are of one release in one exchange, played with one known record and without it, all else "
            f"known; what is promised there is its own cost for a silo of {audit.records} records."
            if dp == "record"
            else "The other lines are of one release in one exchange, played with a silo's vector and with zeros, all "
            "else known; what is promised there is its own cost."
        )
    return [" ".join(parts), _WEAK]


def _not_audited(s: Mapping[str, Any], which: str) -> str:
    """`which`: the run, as `make audit` takes it; nothing where it cannot have the records."""
    if s.get("reference"):
        return "This run was not audited: it is a reference, and make audit attacks federations."
    if which:
        return f"This run was not audited: no attack tried what it promises. This does: make audit {which}"
    given = f"METHOD={s['method']} DP={s.get('dp', 'off')}"
    if s.get("epsilon_budget"):
        given += f" EPSILON={s['epsilon_budget']:g}"
    return (
        "This run was not audited, because an audit needs all silos' records. This attacks a simulation of its kind: "
        f"make audit {given}"
    )


def audit_rows(bounds: Iterable[Bound]) -> list[tuple[str, ...]]:
    return [
        (
            f"BROKEN: {b.what}" if b.broken else b.what,
            "infinite" if math.isinf(b.promised) else exact(b.promised, "epsilon"),
            f"{b.proved:.4f}",
            f"{b.confidence:.0%}",
            b.plays,
            b.attack,
        )
        for b in bounds
    ]


def audit_figures(run: RunFiles) -> dict[str, Any]:
    """For a document: nothing of a run in whose folder no audit is."""
    if run.audit is None:
        return {}
    bounds = [
        {**asdict(b), "promised": "inf" if math.isinf(b.promised) else b.promised}
        for b in run.audit.bounds
    ]
    return {"audit": {"words": audit_words(run), "bounds": bounds}}


def audit_of_run(run: RunFiles) -> Html:
    bounds = run.audit.bounds if run.audit is not None else ()
    inside = _inside(audit_words(run), bounds)
    return node("div", node("h3", _TITLE), *inside, id="audit")


def audit_of_document(d: Mapping[str, Any]) -> list[Html]:
    """A section of the coordinator's document; a silo knows no other silo's records."""
    about, audit = d["about"], d.get("audit")
    if about["role"] != "coordinator":
        return []
    if audit is None:
        s = {"method": about["method"], "dp": d["dp"], "epsilon_budget": d["budget"]}
        s["reference"] = about.get("reference")
        words = [_not_audited(s, "RUN=(its folder)" if about.get("simulated") else "")]
        return [section("audit", _TITLE, *_inside(words, ()))]
    bounds = [Bound(**{**b, "promised": float(b["promised"])}) for b in audit["bounds"]]
    return [section("audit", _TITLE, *_inside(audit["words"], bounds))]


def _inside(words: Sequence[str], bounds: Sequence[Bound]) -> list[Html]:
    first, *more = (node("p", x) for x in words)
    if not bounds:
        return [first, *more]
    rows = [
        (
            row[0],
            data("inf" if math.isinf(b.promised) else b.promised, row[1]),
            data(b.proved, row[2]),
            *row[3:],
        )
        for b, row in zip(bounds, audit_rows(bounds))
    ]
    made = table(HEAD, rows, "Promised and proved", numbers=False, id_="audited")
    return [first, made, *more]
