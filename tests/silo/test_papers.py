"""A silo's documents say what was declined, as it stood when they were signed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.documents import write_own
from cli.main import main
from silo.papers import own_documents
from silo.record import record_folder
from silo.studies import Studies
from tests.consortium import Consortium

_STUDY, _OTHER = "ab" * 32, "bbbbbbbbbbbb"
_ABOUT: dict[str, Any] = {
    "title": "A test",
    "consortium": "a test",
    "coordinator": "hub",
    "silo": "north",
    "number": "silo-000",
    "silos": ["north", "east", "south"],
    "roster_version": 1,
    "roster_fingerprint": "f",
    "study_hash": _STUDY,
    "program": "1",
    "method": "fedavg",
    "method_summary": "s",
    "rounds": 1,
    "dp": "off",
    "epsilon_budget": None,
    "own_limit": None,
    "delta": 1e-5,
    "unit": "record",
    "records": 1,
    "masks_hold_if": "x",
    "each_silo_sends": [],
}


@pytest.fixture
def parties(tmp_path: Path) -> Consortium:
    """North took part in a study, in which it refused one request; another one is proposed."""
    made = Consortium(tmp_path)
    record = record_folder(tmp_path / "north", bytes.fromhex(_STUDY))
    record.mkdir(parents=True)
    (record / "about.json").write_text(json.dumps(_ABOUT))
    lines = [
        {"what": "connected", "time": 1.0, "round": -1},
        {"what": "declined", "time": 2.0, "round": 3, "name": "outside-hours", "detail": "a rule"},
    ]
    (record / "left.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Studies(tmp_path / "north").looked_at(_OTHER, {"title": "other", "hash": "cd" * 32})
    return made


def _made(parties: Consortium) -> dict[str, Any]:
    home = parties.path / "north"
    record = record_folder(home, bytes.fromhex(_STUDY))
    return json.loads((record / "report.json").read_text()) | {"page": record / "report.html"}


def test_what_was_declined_stands_in_a_silos_documents(parties: Consortium) -> None:
    home = parties.path / "north"
    Studies(home).decide(_OTHER, "decline", "asked", "no time")
    write_own(home, _STUDY, parties.rings["north"])
    report = _made(parties)
    (study,) = report["studies_declined"]
    assert (study["study"], study["title"], study["why"]) == (_OTHER, "other", "no time")
    refused = {"time": 2.0, "round": 3, "name": "outside-hours", "detail": "a rule"}
    assert report["declined"] == [refused]
    page = report["page"].read_text()
    for said in ("Whole studies that its operator declined", "no time", "outside-hours", "a rule"):
        assert said in page, said
    assert "No request in this study was refused" not in page
    # one that was made before says nothing of it
    record = record_folder(home, bytes.fromhex(_STUDY))
    assert own_documents(home, record, study["time"] - 1)["report"]["studies_declined"] == []


def test_a_document_stays_true_whatever_is_decided_after_it(
    parties: Consortium, capsys: pytest.CaptureFixture[str]
) -> None:
    home = parties.path / "north"
    studies, record = Studies(home), record_folder(home, bytes.fromhex(_STUDY))

    def verified() -> str:
        words = ["verify", "document", str(record / "report.json"), "--home", str(home)]
        with pytest.raises(SystemExit) as ended:
            main([*words, "--logs", str(home)])
        told = capsys.readouterr()
        assert not ended.value.code, told.err
        return " ".join(told.out.split())

    studies.decide(_OTHER, "decline", "asked", "no time")
    write_own(home, _STUDY, parties.rings["north"])
    for word in ("accept", "decline", "accept"):
        studies.decide(_OTHER, word, "asked", "another reason")
        assert "every figure is that of" in verified()
    assert studies[_OTHER].word == "accept"
    # made again now, it says what stands now; and neither a later look nor a third word changes that
    write_own(home, _STUDY, parties.rings["north"])
    assert _made(parties)["studies_declined"] == []
    studies.decide(_OTHER, "decline", "asked", "after all")
    assert "every figure is that of" in verified()
    write_own(home, _STUDY, parties.rings["north"])
    assert [x["why"] for x in _made(parties)["studies_declined"]] == ["after all"]
    studies.looked_at(_OTHER, {"refused": "The corpus is gone."})
    assert "every figure is that of" in verified()
