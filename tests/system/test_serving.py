"""Programs that serve, without their sockets: whose consent counts on the board, and which studies
run when. tests/system/test_story.py has them as real programs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main
from config.errors import BUSY, UserError
from coordinator.board import Board, Wanted
from coordinator.process import FAILED, WAITED
from coordinator.serving import Runner
from crypto.derive import Label
from crypto.identity.card import Card, RosterRefused
from silo.home import Home, features_in
from study.machine import Machine
from tests.consortium import Consortium
from tests.system.serving import Acted, Stage, Told

# The board, against those who would speak for others


def test_a_consent_is_the_silos_own_and_of_this_very_study(tmp_path: Path) -> None:
    parties = Consortium(tmp_path)
    board = Board(tmp_path / "hub", parties.roster)
    posted = board.post(title="A test", text='title = "A test"\n', hash="ab" * 32, enough=3)

    def consent(by: str, hash: str) -> str:
        return (
            parties.rings[by].identity.sign(Label.CONSENT, posted.id.encode(), hash.encode()).hex()
        )

    def refused(silo: str, said: object) -> str:
        with pytest.raises(RosterRefused) as e:
            board.heard(silo, said, {})
        return e.value.attack

    good = consent("north", posted.hash)
    assert refused("east", ["accept", posted.id, posted.hash, good]) == "key-substitution"
    other = "cd" * 32
    assert refused("north", ["accept", posted.id, other, consent("north", other)]) == "wrong-shape"
    assert refused("north", ["accept", "../../hub", posted.hash, good]) == "replay"
    assert refused("north", ["propose", "x"]) == "wrong-shape"
    assert board[posted.id].answers == {}
    (shown,) = board.heard("north", ["accept", posted.id, posted.hash, good], {})
    assert shown["accepted"] == ["north"] and shown["answered"] == "accept"
    (shown,) = board.heard("north", ["decline", posted.id, "x" * 999], {})
    assert shown["declined"] == ["north"] and len(board[posted.id].answers["north"]["why"]) == 300
    assert not board[posted.id].ready
    for name in ("north", "east", "south"):
        board.heard(name, ["accept", posted.id, posted.hash, consent(name, posted.hash)], {})
    assert board[posted.id].ready
    board.end(posted.id, "finished")
    assert refused("north", ["decline", posted.id, ""]) == "replay"


# Which studies run, and what becomes of them


def test_studies_run_in_their_order_and_as_slots_allow(tmp_path: Path, acted: list[Acted]) -> None:
    stage = Stage(tmp_path, slots=2)
    waiting = stage.post("not yet", accepted=False)
    a, b, c = map(stage.post, "abc")
    stage.runner.step()
    assert stage.runner.running == {a: 6000, b: 6001}
    assert [x.said("--listen") for x in acted] == ["0.0.0.0:6000", "0.0.0.0:6001"]
    assert acted[0].said("--expect") == "east,north,south"
    acted[0].status = 0
    stage.runner.step()
    assert stage.board[a].outcome == "finished"
    # the one that began first is shown first: who has one slot takes part where all others do
    assert stage.runner.running == {b: 6001, c: 6000}
    shown = [s["id"] for s in stage.board.heard("north", ["news"], stage.runner.running)]
    assert shown == [b, c, waiting, a]
    stage.board.want(b, Wanted.STOP)
    stage.board.want(waiting, Wanted.STOP)
    stage.runner.step()
    assert acted[1].happened[-1] == "end"
    stage.runner.step()
    assert {stage.board[s].outcome for s in (b, waiting)} == {"stopped by its operator"}


def test_what_a_restart_can_mend_is_tried_again(tmp_path: Path, acted: list[Acted]) -> None:
    stage = Stage(tmp_path)
    study = stage.post("a")
    stage.runner.step()
    for status in (-9, BUSY, FAILED, 130, 1):
        acted[0].status = status
        stage.runner.step()
        assert acted[0].happened[-1] == "pause" and study in stage.runner.running
        stage.runner.step()
        assert acted[0].happened[-1] == "start"
    # a sentence for its operator: the study waits for that, and others do not wait for it
    other = stage.post("b")
    acted[0].status = 2
    stage.runner.step()
    assert stage.board[study].wanted is Wanted.PAUSE
    assert stage.board[study].why == "The corpus is gone." and not stage.board[study].outcome
    stage.runner.step()
    assert list(stage.runner.running) == [other]
    stage.board.want(study, Wanted.RUN)
    assert stage.board[study].ready and not stage.board[study].why


def test_a_stated_deadline_ends_a_study(tmp_path: Path, acted: list[Acted]) -> None:
    stage = Stage(tmp_path, patience=60.0)
    study = stage.post("a")
    stage.runner.step()
    assert acted[0].said("--patience") == "60.0"
    # what ended it is another thing than the deadline: it is tried again, as without one
    acted[0].status = FAILED
    stage.runner.step()
    assert acted[0].happened[-1] == "pause" and not stage.board[study].outcome
    acted[0].status = WAITED
    stage.runner.step()
    assert stage.board[study].outcome == "too few silos came back within 60 s"


def test_nobody_waits_for_a_silo_that_left(
    tmp_path: Path, acted: list[Acted], capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(tmp_path, names=("north", "east", "south", "west"))
    study = stage.post("a")
    stage.runner.step()
    # three are left, and a round needs three: it goes on, also after a restart
    stage.board.answer("west", study, {"word": "decline", "why": ""})
    stage.runner.step()
    assert study in stage.runner.running and acted[0].happened[-1] == "start"
    assert stage.board.standing(stage.board[study], True) == "running; west left it"
    again = Runner(stage.board, Machine(tmp_path / "hub", out=str(tmp_path)), "0.0.0.0", 6000)
    again.step()
    assert study in again.running and acted[1].said("--expect") == "east,north,south"
    # one more, and no round can be made: it is paused, and says who left and why
    stage.board.answer("east", study, {"word": "decline", "why": "officer withdrew"})
    again.step()
    assert study not in again.running and acted[1].happened[-1] == "end"
    with pytest.raises(SystemExit):
        main(["study", "status", study, "--home", str(tmp_path / "hub")])
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "paused: east (officer withdrew), west left it, and a round needs 3 silos: stop it" in told
    )
    stage.board.want(study, Wanted.RUN)
    again.step()
    assert not again.running
    assert "cannot run: east, west declined" in stage.board.standing(stage.board[study], False)
    stage.accept("east", study)
    again.step()
    assert study in again.running


def test_a_new_study_waits_for_as_many_as_its_proposer_said(
    tmp_path: Path, acted: list[Acted]
) -> None:
    stage = Stage(tmp_path, names=("north", "east", "south", "west"))
    study = stage.post("a", accepted=False)
    for name in ("north", "east", "south"):
        stage.accept(name, study)
    stage.runner.step()
    assert not stage.runner.running  # four were asked for, though three could make a round


def test_a_new_roster_ends_what_was_agreed_under_the_old_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    study, done = stage.post("a"), stage.post("b")
    stage.board.end(done, "finished")
    roster = stage.parties.enact(stage.parties.roster.rotate(_rotated(stage.parties, "east")))
    board = Board(tmp_path / "hub", roster)
    assert board.retire() == [study] and board[done].outcome == "finished"
    assert "the roster has version 2 now" in board[study].outcome and board.retire() == []


def _rotated(parties: Consortium, name: str) -> Card:
    return parties.rings[name].rotate("").card


def test_enough_is_what_a_round_needs(tmp_path: Path) -> None:
    board = Stage(tmp_path).board
    for enough in (2, 4):
        with pytest.raises(UserError, match="--enough must be from 3"):
            board.post(title="t", text="x", hash="00" * 32, enough=enough)


# A silo that serves


def test_a_silo_follows_a_study_to_another_port(
    tmp_path: Path, acted: list[Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that was started again may run its studies in another order."""
    told = Told(tmp_path, monkeypatch)
    study = told.accepted("a", 6000)
    told.server.step()
    assert told.dialled(acted[0]) == "127.0.0.1:6000"
    told.server.step()
    assert len(acted) == 1
    study["port"] = 6001
    told.server.step()
    assert acted[0].happened[-1] == "end" and told.dialled(acted[1]) == "127.0.0.1:6001"


def test_a_silo_whose_rounds_are_over_greets_no_more_while_the_coordinator_scores(
    tmp_path: Path, acted: list[Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second greeting would stand in its papers, and mean nothing. A coordinator that was started
    again, or a study that goes on after a pause, finds it.
    """
    told = Told(tmp_path, monkeypatch)
    study = told.accepted("a", 6000)
    told.server.step()
    acted[0].status = 0
    for _ in range(3):
        told.server.step()
    assert len(acted) == 1
    study["state"] = "pause"
    told.server.step()
    study["state"] = "running"
    told.server.step()
    assert len(acted) == 2 and "end" not in acted[1].happened
    acted[1].status = 0
    told.server.step()
    study["port"] = 6001
    told.server.step()
    assert told.dialled(acted[2]) == "127.0.0.1:6001"


def test_a_silo_takes_part_as_its_slots_allow_and_leaves_what_it_declines(
    tmp_path: Path, acted: list[Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(tmp_path, monkeypatch)
    first, second = told.accepted("a", 6000), told.accepted("b", 6001)
    told.server.step()
    assert told.state(first) == "running" and "waits for a slot" in told.state(second)
    # refused by the coordinator: it says so, and tries again for as long as the study runs
    acted[0].status = 2
    told.server.step()
    assert "without this silo: The corpus is gone." in told.state(first)
    assert acted[0].happened[-1] == "pause"
    told.server.studies.decide(first["id"], "decline", "asked")
    told.server.step()
    assert acted[0].happened[-1] == "end" and told.state(first) != "running, without this silo"
    assert told.state(second) == "running"
    second["state"] = "pause"
    told.server.step()
    assert acted[1].happened[-1] == "end" and told.state(second) == "paused by the coordinator"


def test_a_silo_forgets_a_studys_features_when_it_ends_or_leaves(
    tmp_path: Path, acted: list[Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However its process ended; a study that is paused goes on with them."""
    told = Told(tmp_path, monkeypatch)
    study, home = told.accepted("a", 6000), Home(tmp_path / "north")
    hash_ = bytes.fromhex(study["hash"])
    kept = features_in(home.work(hash_), hash_) / "some.bf16"

    def step() -> bool:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
        told.server.step()
        return kept.exists()

    for state, still in (("running", True), ("paused", True), ("running", True), ("ended", False)):
        study["state"] = state
        assert step() is still
    assert not step()  # not taking part, as after a restart
    study["state"] = "running"
    assert step()
    told.server.studies.decide(study["id"], "decline", "asked")
    assert not step()
