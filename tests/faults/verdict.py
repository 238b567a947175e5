"""What must hold after a consortium's studies, whatever was killed: every study finished, no round was
lost, its models are what its survivors give, every silo was charged for what left and for nothing
twice, and each silo's own documents and the coordinator's agree.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.simulation.launch import fork
from coordinator.board import Board, Posted
from crypto.identity.roster import Roster
from privacy.accountant import total
from report.documents import KINDS, consortium_documents
from report.files import read_lines, read_run
from silo.cost import read_ledger
from silo.papers import own_documents
from study.papers import check_document
from study.prepare import Study
from tests.documents import beyond, different
from tests.faults.replay import replay

__all__ = ["judged"]

Line = Mapping[str, Any]


def judged(path: Path, roster: Roster, board: Board, studies: Mapping[str, Study]) -> str:
    """ "correct", or what is not. In a process of its own: what it opens is not inherited by the
    next schedule's.
    """
    verdict = path / "verdict"

    def work() -> int:
        verdict.write_text(_wrong(path, roster, board, studies) or "correct")
        return 0

    os.waitpid(fork(os.getpid(), path / "verdict.log", work), 0)
    return verdict.read_text() if verdict.exists() else "nobody could judge it; see verdict.log"


def _wrong(path: Path, roster: Roster, board: Board, studies: Mapping[str, Study]) -> str:
    """What is not as it should be; empty: nothing."""
    for id_, prepared in studies.items():
        posted = board[id_]
        if posted.outcome != "finished":
            return f"study {id_}: {posted.outcome}"
        run = path / "runs" / f"study-{posted.hash[:12]}"
        why = (
            _rounds(run, prepared, path / f"replay-{id_}")
            or _budgets(path, roster, posted, run)
            or _papers(path, roster, posted, run)
        )
        if why:
            return f"study {id_}: {why}"
    return next(filter(None, (_epsilon(path / card.name, studies) for card in roster.silos)), "")


def _rounds(run: Path, prepared: Study, scratch: Path) -> str:
    rounds, events = read_lines(run / "rounds.jsonl"), read_lines(run / "events.jsonl")
    if [r["round"] for r in rounds] != list(range(prepared.settings.rounds)):
        return f"it has the rounds {[r['round'] for r in rounds]}"
    if spent := [e for e in events if e["event"] == "round-spent"]:
        return f"{len(spent)} rounds were given up"
    if prepared.settings.dp != "off":
        return ""  # its noise is secret, and nobody can make the same model again
    was, should = replay(run, prepared, scratch)
    return "" if was == should else "another model than its survivors give"


def _budgets(path: Path, roster: Roster, posted: Posted, run: Path) -> str:
    """A silo was charged for whatever left it; once for each time that it computed it, which it does
    once in a life of its process, if it was asked.
    """
    rounds, events = read_lines(run / "rounds.jsonl"), read_lines(run / "events.jsonl")
    for number, card in enumerate(roster.silos):
        silo, home = f"silo-{number:03d}", path / card.name
        ledger = [x for x in read_lines(home / "ledger.jsonl") if x["study"] == posted.hash]
        left = read_lines(home / "records" / posted.hash[:12] / "left.jsonl")
        lives = _lives(home, posted)
        charged = Counter((x["round"], x["disclosure"], x["event"]["kind"]) for x in ledger)
        paid = {(round, what) for round, what, _ in charged}
        gone = {(x["round"], x["name"]) for x in left if x["what"] == "left"}
        if unpaid := gone - paid:
            return f"{card.name} was not charged for {sorted(unpaid)}"
        counted = {r["round"] for r in rounds if silo in r["survivors"]}
        if unsaid := counted - {round for round, _ in gone}:
            return f"{card.name} is in the sums of {sorted(unsaid)} and noted nothing that left"
        asked = Counter(
            e["round"] for e in events if e["event"] == "computing" and e["silo"] == silo
        )
        for (round, what, _), times in charged.items():
            if times > min(asked[round], lives):
                return (
                    f"{card.name}, round {round + 1}: charged {times} times for {what}, "
                    f"asked {asked[round]} times in {lives} lives"
                )
    return ""


def _lives(home: Path, posted: Posted) -> int:
    """How often the silo's process of this study was started."""
    log = home / "studies" / posted.id / "log"
    return len(re.findall("computes on", log.read_text())) if log.exists() else 0


def _epsilon(home: Path, studies: Mapping[str, Study]) -> str:
    """The ledger's last line says what all its events cost, by an accountant that reads them anew."""
    lines = read_lines(home / "ledger.jsonl")
    if not lines:
        return ""
    settings = next(iter(studies.values())).settings
    cost = total(read_ledger(home / "ledger.jsonl"), settings.delta, "record")
    said = float(lines[-1]["epsilon_after"])
    if not math.isclose(said, cost.epsilon, rel_tol=1e-9) and said != cost.epsilon:
        return f"{home.name}'s ledger says epsilon {said}, and its events cost {cost.epsilon}"
    return ""


def _papers(path: Path, roster: Roster, posted: Posted, run: Path) -> str:
    """The coordinator's documents are there and signed. A silo's own say what they say of it. Where
    they say more, one of the two gives the reason; both do, if the silo dialled twice while there were
    rounds. Who dials after the last one may meet a coordinator that has hung up already.
    """
    for kind in KINDS:
        check_document(run / f"{kind}.json", roster)
    whole = consortium_documents(read_run(run))
    events: Sequence[Line] = read_lines(run / "events.jsonl")
    restarted = sum(e["event"] == "listening" for e in events) > 1
    over = max((e["time"] for e in events if e["event"] == "round-done"), default=math.inf)
    for card in roster.silos:
        record = path / card.name / "records" / posted.hash[:12]
        if not (record / "about.json").is_file():
            continue
        own = own_documents(path / card.name, record, posted.proposed)
        here, there = own["report"]["not_counted"], " ".join(whole["report"]["not_counted"])
        made = (x for x in own["report"]["connections"] if x["what"] == "connected")
        heard = [x for x in made if x["time"] <= over]
        named = restarted or card.name in there
        if len(heard) > 1 and not (here and named):
            return f"{card.name} dialled {len(heard)} times, and not both documents say so"
        found = different(own, whole)
        if here or named:
            found = beyond(own, whole, card.name, restarted)
        if found:
            return f"{card.name}'s documents and the coordinator's: {found[0]}"
    return ""
