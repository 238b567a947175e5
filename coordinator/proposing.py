"""To propose a study: what it would mean on this machine, and then on the board. The command and the
operator's page both come here.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from config.errors import UserError
from config.study import read_study
from coordinator.board import Board, Posted
from coordinator.cohorts import least_in_a_session, least_in_a_sum
from coordinator.program import coordinator_study
from crypto.identity.roster import Roster
from study.agreement import Agreed
from study.machine import Machine, one_thread

__all__ = ["advice", "look_at", "look_at_words", "propose"]


def look_at(file: Path, machine: Machine, roster: Roster) -> Agreed:
    """The study that the file describes; a sentence where it describes none."""
    one_thread()
    return coordinator_study(read_study(file), roster, machine, scores=False)


def look_at_words(text: str, machine: Machine, roster: Roster) -> Agreed:
    """The same of words that stand in no file yet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.toml"
        path.write_text(text, "utf-8")
        try:
            return look_at(path, machine, roster)
        except UserError as e:
            raise UserError(str(e).replace(str(path), "study.toml")) from None


def advice(of: Agreed) -> str:
    """What its proposer should know about whose data it is on, before silos are asked."""
    if of.study.data is not None:
        return (
            "It is on the silos' own data: `sottovoce coordinator serve` must have been given a folder "
            "to score on, with --corpus."
        )
    return (
        f"It names no classes ([data]), so it is a trial on {of.prepared.task.corpus_name}: a silo "
        "that serves data of its own (corpus in its file) cannot take part."
    )


def propose(board: Board, of: Agreed, text: str, enough: int) -> Posted:
    """`enough`: silos that must accept; 0: all of the roster."""
    settings = of.prepared.settings
    return board.post(
        title=of.study.title,
        text=text,
        hash=of.hash.hex(),
        enough=enough or len(of.roster.silos),
        least=max(3, least_in_a_sum(settings), least_in_a_session(settings)),
    )
