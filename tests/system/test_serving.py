"""Programs that serve, without their sockets: whose consent counts on the board, and which studies
run when. tests/system/test_story.py has them as real programs.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import pytest

import coordinator.serving
import silo.serving
from cli.main import main
from config.errors import BUSY, Busy, UserError
from config.site import read_site
from coordinator.board import Board, Wanted
from coordinator.process import FAILED
from coordinator.runlog import RunLog
from coordinator.serving import Runner
from crypto.derive import Label
from crypto.identity.card import Card, RosterRefused
from report import events
from report.documents import KINDS
from silo.home import Home
from silo.operator_page import SiloPage
from silo.record import record_folder
from silo.serving import LAST_WRITTEN, Server
from silo.site_file import write_for_study
from silo.studies import Studies
from study.machine import Machine
from study.papers import papers_are_whole, write_documents
from study.presence import alone
from tests.consortium import NAMES, Consortium

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


class Acted:
    """In the place of a study's process: says what happened to it, and ends as it is told."""

    every: ClassVar[list[Acted]]

    def __init__(self, words: list[str], log: Path) -> None:
        self.words, self.log, self.happened, self.status = words, log, list[str](), None
        self.every.append(self)

    status: int | None
    alive = False

    def start(self) -> bool:
        self.happened.append("start")
        return True

    def ended(self) -> int | None:
        status, self.status = self.status, None
        return status

    def pause(self) -> None:
        self.happened.append("pause")

    def end(self) -> None:
        self.happened.append("end")

    def last_words(self) -> str:
        return "The corpus is gone."

    def said(self, option: str) -> str:
        return self.words[self.words.index(option) + 1]


class Stage:
    def __init__(
        self, path: Path, slots: int = 1, patience: float = 0.0, names: tuple[str, ...] = NAMES
    ) -> None:
        self.parties = Consortium(path, names)
        self.board = Board(path / "hub", self.parties.roster)
        machine = Machine(path / "hub", out=str(path))
        self.runner = Runner(self.board, machine, "0.0.0.0", 6000, slots, patience)

    def post(self, title: str, accepted: bool = True) -> str:
        hash_, enough = title.encode().hex().ljust(64, "0"), len(self.parties.names)
        text = f'title = "{title}"'
        id_ = self.board.post(title=title, text=text, hash=hash_, enough=enough).id
        for name in self.parties.names if accepted else ():
            self.accept(name, id_)
        return id_

    def accept(self, name: str, id_: str) -> None:
        identity, hash_ = self.parties.rings[name].identity, self.board[id_].hash
        signed = identity.sign(Label.CONSENT, id_.encode(), hash_.encode()).hex()
        self.board.answer(name, id_, {"word": "accept", "hash": hash_, "signature": signed})


@pytest.fixture
def acted(monkeypatch: pytest.MonkeyPatch) -> list[Acted]:
    Acted.every = []
    monkeypatch.setattr(coordinator.serving, "Child", Acted)
    return Acted.every


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
    acted[0].status = FAILED
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
    told = _typed(capsys, "status", study, "--home", str(tmp_path / "hub"))
    assert "paused: east (officer withdrew), west left it, and a round needs 3 silos" in told
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


class Told:
    """A silo's serving program, whose coordinator says what the test says."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, slots: int = 1) -> None:
        monkeypatch.setattr(silo.serving, "Child", Acted)
        Consortium(path)
        file = path / "north.toml"
        file.write_text(f'home = "north"\ncoordinator = "127.0.0.1:1"\nslots = {slots}\n')
        self.server = Server(read_site(file), Home(path / "north"))
        self.shown: list[dict[str, Any]] = []
        monkeypatch.setattr(self.server, "_ask", lambda question: self.shown)

    def accepted(self, title: str, port: int) -> dict[str, Any]:
        """A study that was looked at and accepted here, and runs."""
        text = f'title = "{title}"'
        id_ = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.server.studies.looked_at(id_, {"title": title, "hash": "ab" * 32, "facts": {}})
        self.server.studies.decide(id_, "accept", "asked")
        shown = {"id": id_, "text": text, "hash": "ab" * 32, "state": "running", "port": port}
        self.shown.append(shown | {"answered": "accept", "outcome": ""})
        return self.shown[-1]

    def state(self, shown: dict[str, Any]) -> str:
        return self.server.studies[shown["id"]].state

    def dialled(self, child: Acted) -> str:
        return str(read_site(Path(child.said("--config"))).coordinator)


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


def test_documents_that_a_kill_left_out_are_made_at_the_next_start(
    tmp_path: Path, acted: list[Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(tmp_path, monkeypatch)
    study = told.accepted("a", 6000)
    study |= {"state": "ended", "outcome": "finished"}
    told.server.step()
    assert acted == []  # it took no part, and has nothing to say
    record = record_folder(tmp_path / "north", bytes.fromhex(study["hash"]))
    record.mkdir(parents=True)
    (record / "left.jsonl").write_text("{}\n")
    told.server.step()
    (papers,) = acted
    assert papers.words[:3] == ["cli.main", "documents", study["id"]]
    told.server.step()
    assert len(acted) == 1 and papers.happened == ["start", "start"]
    # it failed: tried again, after a pause
    papers.status = 2
    told.server.step()
    assert papers.happened[-1] == "pause"
    written = [record / f"{kind}.html" for kind in KINDS]
    assert written[-1].name == LAST_WRITTEN
    for page in written:
        page.write_text("made")
    papers.status = 0
    told.server.step()
    told.server.step()
    assert len(acted) == 1
    # something left later: they are old
    later = written[-1].stat().st_mtime_ns + 1
    os.utime(record / "left.jsonl", ns=(later, later))
    told.server.step()
    assert len(acted) == 2


def test_papers_are_whole_only_with_every_page_that_was_signed(tmp_path: Path) -> None:
    parties = Consortium(tmp_path)
    figures = {kind: {"document": kind} for kind in KINDS}
    pages = dict.fromkeys(KINDS, "<p>made</p>")
    identity = parties.rings["hub"].identity
    write_documents(tmp_path / "run", figures, identity, "hub", pages)
    assert papers_are_whole(tmp_path / "run")
    for kind in KINDS:
        for end in ("json", "html"):
            file = tmp_path / "run" / f"{kind}.{end}"
            text = file.read_text()
            file.unlink()
            assert not papers_are_whole(tmp_path / "run")
            file.write_text(text)
    (tmp_path / "run" / "report.html").write_text("<p>ma")
    assert not papers_are_whole(tmp_path / "run")


def _typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["study", *words])
    told = capsys.readouterr()
    assert not ended.value.code, told.err
    return " ".join(told.out.split())


def test_how_a_study_stands_is_said_in_words(
    tmp_path: Path, acted: list[Acted], capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(tmp_path)
    home = ["--home", str(tmp_path / "hub")]

    def said(*words: str) -> str:
        return _typed(capsys, *words, *home)

    assert "No study is proposed yet" in said("list")
    study = stage.post("a", accepted=False)
    standing = stage.board.standing
    assert standing(stage.board[study], False) == "proposed, waits for east, north, south"
    stage.board.answer("east", study, {"word": "decline", "why": "no time"})
    assert "cannot run: east declined, and 3 silos are needed" in said("list")
    assert "cannot run: east declined" in said("show", study) and "no time" in said("show", study)
    other = stage.post("b")
    assert standing(stage.board[other], False) == "waits for its turn"
    stage.runner.step()
    assert standing(stage.board[other], other in stage.runner.running) == "running"
    acted[-1].status = 2
    stage.runner.step()
    assert standing(stage.board[other], False) == "paused: The corpus is gone."
    assert "paused: The corpus is gone." in said("status", other)
    stage.board.want(study, Wanted.STOP)
    assert standing(stage.board[study], False) == "stopping"
    # a silo that has been told of nothing, and one that is still reading
    silo = ("list", "--home", str(tmp_path / "north"))
    assert "No study is proposed yet" in _typed(capsys, *silo)
    folder = tmp_path / "north" / "studies" / "abc"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text("")
    assert "abc proposed just now" in _typed(capsys, *silo)


def test_the_serving_programs_own_log_says_who_is_waited_for(
    tmp_path: Path, acted: list[Acted], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path)
    study = stage.post("a")
    run = tmp_path / f"study-{stage.board[study].hash[:12]}"
    run.mkdir()
    (run / "config.toml").write_text("silos = 3\nrounds = 2\n")
    (run / "members.json").write_text('{"silo-001": "east"}')
    log = RunLog(run)
    log.event(events.Enrolled(silos=3, seconds=1.0))  # before this program was started
    with caplog.at_level("INFO", "coordinator"):
        stage.runner.step()
        waits = events.Waiting(round=1, silos=("silo-001",), here=2, needed=3, until=0.0)
        log.event(waits)
        stage.runner.step()
    told = [r.getMessage() for r in caplog.records if r.name == "coordinator"]
    assert f"study {study}: waiting for east: 2 silos are here, 3 are needed" in told
    assert not any("enrolled" in text for text in told)


def test_a_silos_page_claims_no_epsilon_where_there_is_none(tmp_path: Path) -> None:
    parties = Consortium(tmp_path)
    studies = Studies(tmp_path / "north")
    facts = {"method": "fedavg", "rounds": 3, "dp": "off", "epsilon": 0.0, "delta": 1e-5}
    studies.looked_at("aaaaaaaaaaaa", {"title": "a", "hash": "ab" * 32, "facts": facts})
    studies.decide("aaaaaaaaaaaa", "accept", "asked")
    (shown,) = SiloPage(tmp_path / "north", "north", parties.roster).state()["studies"]
    said = dict(shown["facts"])
    assert "epsilon" not in said and "delta" not in said and "no noise is added" in said["dp"]
    assert said["called"] == "aaaaaaaaaaaa"
    assert said["decided"].startswith("accepted by its operator, ")


def test_refusals_stand_in_a_silos_own_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Consortium(tmp_path)
    Studies(tmp_path / "north").looked_at("aaaaaaaaaaaa", {"title": "a", "hash": "ab" * 32})
    record = record_folder(tmp_path / "north", bytes.fromhex("ab" * 32))
    record.mkdir(parents=True)
    line = {"what": "declined", "time": 1.0, "round": 0, "name": "budget-spent", "detail": "full"}
    (record / "left.jsonl").write_text(json.dumps(line) + "\n")
    said = _typed(capsys, "status", "aaaaaaaaaaaa", "--home", str(tmp_path / "north"))
    assert "refused 1 times" in said and "budget-spent: full" in said and "nothing has left" in said


def test_what_stood_against_a_study_is_looked_at_again_after_a_restart(
    tmp_path: Path, acted: list[Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(tmp_path, monkeypatch)
    study = told.accepted("a", 6000) | {"state": "proposed"}
    told.shown[:] = [study]
    told.server.studies.looked_at(study["id"], {"refused": "train.jsonl, line 17: not JSON."})
    told.server.step()
    assert acted == []
    with pytest.raises(UserError, match=r"line 17.*start the serving silo again"):
        told.server.studies.decide(study["id"], "accept", "asked")
    again = Server(told.server._site, Home(tmp_path / "north"))
    monkeypatch.setattr(again, "_ask", lambda question: told.shown)
    again.step()
    (look,) = acted
    assert "--look" in look.words
    Path(look.said("--look")).write_text('{"title": "a", "hash": "cd", "facts": {}}')
    look.status = 0
    again.step()
    assert again.studies[study["id"]].refused == ""
    again.studies.decide(study["id"], "accept", "asked")
    again.studies.tell(study["id"], "ended: finished")
    with pytest.raises(UserError, match="nothing is to be decided"):
        again.studies.decide(study["id"], "decline", "asked", "too late")


def test_one_program_serves_a_folder(tmp_path: Path) -> None:
    Consortium(tmp_path)
    with alone(tmp_path / "north"):
        with pytest.raises(Busy, match="is served already"), alone(tmp_path / "north"):
            pass
        with alone(tmp_path / "east"):
            pass
    with alone(tmp_path / "north"):
        pass


def test_a_studys_process_gets_all_of_the_silos_own_words(tmp_path: Path) -> None:
    """Every field but what belongs to serving itself."""
    Consortium(tmp_path)
    (tmp_path / "data").mkdir()
    own = tmp_path / "north.toml"
    own.write_text(
        'home = "north"\ncoordinator = "a:5555,b:5555"\ncorpus = "data"\nencoder = "e"\nseq2seq = "s"\n'
        'vectors = "v"\ndevice = "cpu"\nmetrics = "9101"\nclock_tolerance = 5.0\nmapping = "m"\n'
        'slots = 2\n[limits]\nmaximum_rounds = 7\nmethods = ["fedavg"]\n[accept]\nmethods = ["fedavg"]\n'
    )
    site = read_site(own)
    made = read_site(write_for_study(site, tmp_path, "a:5556,b:5556"))
    same = {f.name for f in fields(site)} - {"path", "study", "coordinator", "metrics"}
    same -= {"slots", "accept"}
    assert {k: getattr(made, k) for k in same} == {k: getattr(site, k) for k in same}
    assert (made.coordinator, made.study) == ("a:5556,b:5556", tmp_path / "study.toml")
