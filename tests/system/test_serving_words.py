"""Programs that serve, as their operators meet them: what they say, what they refuse, and what they make
good after a kill.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

from cli.main import main
from config.errors import Busy, UserError
from config.site import read_site
from coordinator.board import Wanted
from coordinator.runlog import RunLog
from report import events
from report.documents import KINDS
from silo.home import Home
from silo.operator_page import SiloPage
from silo.record import record_folder
from silo.serving import LAST_WRITTEN, Server
from silo.site_file import write_for_study
from silo.studies import Studies
from study.papers import papers_are_whole, write_documents
from study.presence import Presence, alone
from tests.consortium import Consortium
from tests.system.serving import Acted, Stage, Told


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
    # a silo that leaves while it runs is not waited for in silence
    third = stage.post("c")
    stage.board.answer("south", third, {"word": "decline", "why": "withdrawn"})
    Presence(tmp_path / "hub").beat({third: 6000})
    told = said("status", third)
    assert "running" in told and "south declined: withdrawn" in told and "stop it" in told
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


def test_what_stood_against_a_study_is_looked_at_again_when_its_operator_asks(
    tmp_path: Path,
    acted: list[Acted],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = Told(tmp_path, monkeypatch)
    study = told.accepted("a", 6000) | {"state": "proposed"}
    told.shown[:] = [study]
    studies, id_ = told.server.studies, study["id"]
    studies.looked_at(id_, {"title": "a", "refused": "train.jsonl, line 17: not JSON."})

    def accept() -> str:
        with pytest.raises(SystemExit) as ended:
            main(["study", "accept", id_, "--home", str(tmp_path / "north")])
        assert ended.value.code == 2
        return " ".join(capsys.readouterr().err.split())

    said = accept()  # nobody serves
    assert "line 17" in said and "start the serving program" in said
    told.server.step()
    assert not acted
    assert "line 17: not JSON. The serving program looks at it again now" in accept()
    listed = _typed(capsys, "list", "--home", str(tmp_path / "north"))
    assert f"{id_} cannot take part" in listed and "line 17" in listed
    told.server.step()
    told.server.step()
    (look,) = acted
    Path(look.said("--look")).write_text('{"title": "a", "hash": "cd", "page": "", "facts": {}}')
    look.status = 0
    told.server.step()
    assert studies[id_].refused == "" and "--hash cd" in accept()
    told.server.step()
    assert len(acted) == 1  # once
    studies.tell(id_, "ended: finished")
    assert "nothing is to be decided" in accept()


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
