"""A silo's own three documents, made from what the silo itself wrote down: its record of the study
(silo.record), its privacy ledger, its consents and what its operator declined. Nothing of the
coordinator's is read.

The ledger goes on after a study. A document says how many of its lines it was made from and what
their hash is, so that it can be checked against the same lines later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from config.errors import UserError
from privacy.accountant import total
from privacy.events import Event, Unit, UnknownEvent, from_record
from report.documents import answers, bytes_of, disclosed_of, header, span, spent_of
from report.files import read_lines, read_table
from report.pages.protection import unprotected
from silo.ledger import shown
from silo.studies import Studies

__all__ = ["own_documents", "record_of"]

Line = Mapping[str, Any]
_DIALLED = ("handshake", "up")
_ABOUT = (
    *("title", "consortium", "coordinator", "silos", "roster_version", "roster_fingerprint"),
    *("study_hash", "program", "method", "method_summary", "rounds"),
)


def record_of(home: Path, study: str) -> Path:
    """The silo's record of a study, by the study's hash or by the name under which it was
    proposed.
    """
    look = read_table(home / "studies" / Path(study).name / "look.json") or {}
    hash_ = str(look.get("hash") or study)
    folder = home / "records" / Path(hash_).name[:12]
    if not (folder / "about.json").is_file():
        known = sorted(p.parent.name for p in (home / "records").glob("*/about.json"))
        raise UserError(f'{home} has no record of "{study}"; it has: {", ".join(known) or "none"}.')
    return folder


def own_documents(
    home: Path, record: Path, made: float, lines: int | None = None
) -> dict[str, dict[str, Any]]:
    """Of one silo and one study. `made`: when, in seconds since 1970; what was decided later is
    left out. `lines`: how many lines of the ledger to read; all of them, if not said.
    """
    about_ = read_table(record / "about.json")
    if about_ is None:
        raise UserError(f"{record} has no about.json: it is not a silo's record of a study.")
    left = read_lines(record / "left.jsonl")
    messages = read_lines(record / "traffic.jsonl")
    traffic = bytes_of(messages)
    about = {"party": about_["silo"], "role": "silo", **{k: about_[k] for k in _ABOUT}}
    about["began"], about["ended"] = span(x["time"] for x in left)
    about["consent"] = _consent(home, about_["study_hash"])
    gone = [x for x in left if x["what"] == "left"]
    budget = _budget(home, about, about_, left, lines)
    cost = {
        **header("communication-cost", about),
        "silos": {about_["silo"]: traffic},
        "times_left": [_only(x, "time", "round", "exchange", "name", "channel") for x in gone],
    }
    report = {
        **header("report", about),
        **{k: budget[k] for k in ("dp", "unit", "delta", "budget", "masked", "masks_hold_if")},
        **{k: budget[k] for k in ("disclosed", "declined", "not_protected")},
        "times_left": cost["times_left"],
        "silos": {
            about_["silo"]: {
                **_rounds(left, about_["silo"]),
                **{k: traffic[k] for k in traffic if not k.startswith("by_")},
                "epsilon": budget["silos"][about_["silo"]]["epsilon"],
            }
        },
        "sums": [
            _only(x, "time", "round", "exchange", "silos")
            for x in left
            if x["what"] == "sum opened"
        ],
        "connections": [
            _only(x, "time", "round", "what", *(["computes_on"] if "computes_on" in x else []))
            for x in left
            if x["what"] in ("connected", "connection lost")
        ],
        "studies_declined": Studies(home).declined(made),
    }
    names = {x["name"] for x in gone}
    told: dict[str, Any] = {"made": made, "answers": answers(budget, traffic["bytes_up"], names)}
    told["ledger_lines"] = budget["ledger"]["lines"]
    told["not_counted"] = _not_counted(report, about_["silo"], messages)
    return {d["document"]: {**d, **told} for d in (report, cost, budget)}


def _not_counted(report: Line, silo: str, messages: Sequence[Line]) -> list[str]:
    """Where the coordinator's documents may say less than these, or more, in words."""
    # also where it was killed before it heard a word
    dialled = sum(x["messages"] for x in messages if (x["kind"], x["direction"]) == _DIALLED)
    unsure = report["silos"][silo]["rounds_unsure"]
    said = []
    if dialled > 1:
        said.append(
            f"{silo} dialled the coordinator {dialled} times. What it sent and the coordinator never received is "
            "counted here, and not in the coordinator's documents."
        )
    if not _told_to_stop(messages):
        said.append(
            f"{silo} was not told that the study is over. What the coordinator sent it last may be counted in the "
            "coordinator's documents, and not here."
        )
    if unsure:
        rounds = ", ".join(str(r + 1) for r in unsure)
        said.append(
            f"Of round {rounds}, {silo} knows that its part left, and not whether the sum was opened with it: it "
            "was away then, or was told that the sum was given up. The coordinator's report names the rounds."
        )
    return said


def _told_to_stop(messages: Sequence[Line]) -> bool:
    """On the last connection that stood."""
    before = told = False
    for x in messages:
        if (x["kind"], x["direction"]) == _DIALLED:
            # less than none: the one before it never stood (silo.record)
            before, told = told, before if x["messages"] < 0 else False
        elif x["kind"] == "stop":
            told = True
    return told


def _only(line: Line, *keys: str) -> dict[str, Any]:
    return {k: line[k] for k in keys}


def _rounds(left: Sequence[Line], silo: str) -> dict[str, list[int]]:
    """In which this silo's answer was taken, and in which it cannot know: what is masked counts once
    this silo helped to open the sum, unless it heard later that the sum was given up; and others may
    have opened it while it was away.
    """
    masked = {(x["round"], x["exchange"]) for x in left if x.get("channel") == "masked"}
    opened: set[tuple[int, str]] = set()
    for x in left:
        if x["what"] == "sum opened" and silo in x["silos"]:
            opened.add((x["round"], x["exchange"]))
        elif x["what"] == "sum given up":
            opened.discard((x["round"], x["exchange"]))
    sent = {x["round"] for x in left if x["what"] == "left"}
    unsure = {round for round, _ in masked - opened}
    return {"rounds": sorted(sent - unsure), "rounds_unsure": sorted(unsure)}


def _budget(
    home: Path, about: Line, about_: Line, left: Sequence[Line], lines: int | None
) -> dict[str, Any]:
    whole, digest = _ledger_lines(home / "ledger.jsonl", lines)
    dp, delta = about_["dp"], about_["delta"]
    unit: Unit = "silo" if dp == "silo" else "record"
    this = [x for x in whole if x["study"] == about_["study_hash"]]
    spent = spent_of([{**x, "event": x["event"].words} for x in this])
    over_all = total([x["event"] for x in whole], delta, unit)
    limits = [x for x in (about_["epsilon_budget"], about_["own_limit"]) if x is not None]
    most = min(limits, default=None)
    # a silo that sent nothing in this study is where its ledger is
    infinite = (spent["epsilon"] or shown(over_all.epsilon)) == "inf"
    return {
        **header("privacy-budget", about),
        "dp": dp,
        "unit": about_["unit"] if dp != "off" else "record",
        "delta": 0.0 if infinite or dp == "off" else delta,
        "budget": about_["epsilon_budget"],
        "own_limit": about_["own_limit"],
        "masked": True,
        "masks_hold_if": about_["masks_hold_if"],
        "disclosed": [disclosed_of(d) for d in about_["each_silo_sends"]],
        "silos": {about_["silo"]: spent},
        "ledger": {
            "lines": len(whole),
            "sha256": digest,
            "delta": delta,
            "epsilon": shown(over_all.epsilon),
            "epsilon_rdp": shown(over_all.rdp),
            "limit": most,
            "remains": None
            if most is None or shown(over_all.epsilon) == "inf"
            else max(0.0, most - over_all.epsilon),
            "studies": _by_study(home, whole, delta, unit),
        },
        "declined": [
            _only(x, "time", "round", "name", "detail") for x in left if x["what"] == "declined"
        ],
        "not_protected": unprotected(
            dp=dp, unit=about_["unit"], infinite=infinite, masked=_masked(about_)
        ),
    }


def _masked(about_: Line) -> bool:
    return any(d["channel"] == "masked" for d in about_["each_silo_sends"])


def _ledger_lines(path: Path, most: int | None) -> tuple[list[dict[str, Any]], str]:
    """The lines with their events, and the hash of their bytes."""
    content = path.read_bytes() if path.exists() else b""
    raw = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
    if most is not None and len(raw) < most:
        raise UserError(f"{path} has {len(raw)} lines; the document was made from {most}.")
    raw = raw[:most]
    found: list[dict[str, Any]] = []
    for number, line in enumerate(raw, 1):
        try:
            entry = json.loads(line)
            event: Event = from_record(entry["event"])
            found.append({"study": "", **entry, "event": event})
        except (ValueError, KeyError, TypeError, UnknownEvent):
            raise UserError(
                f"{path}, line {number}: it is not a line of a privacy ledger."
            ) from None
    return found, hashlib.sha256(b"".join(raw)).hexdigest()


def _by_study(home: Path, whole: Sequence[Line], delta: float, unit: Unit) -> list[dict[str, Any]]:
    """What each study cost by itself, at the same delta: the parts do not add up to the whole,
    since many small releases cost less together than one by one.
    """
    events: dict[str, list[Event]] = {}
    for line in whole:
        events.setdefault(line["study"], []).append(line["event"])
    found = []
    for study, its in events.items():
        about = read_table(home / "records" / study[:12] / "about.json") if study else None
        alone = total(its, delta, unit)
        found.append(
            {
                "study": study,
                "title": (about or {}).get("title", "before studies were named in the ledger"),
                "lines": len(its),
                "epsilon": shown(alone.epsilon),
                "epsilon_rdp": shown(alone.rdp),
            }
        )
    return found


def _consent(home: Path, study: str) -> dict[str, str] | None:
    for line in read_lines(home / "consents.jsonl"):
        if line["study"] == study:
            return {"time": line["time"], "how": line["how"]}
    return None
