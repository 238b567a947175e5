"""What operators and officers type wrong in their first week, and the one sentence that they read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.main import main
from corpora.splits import data_files
from report.documents import KINDS
from silo.program import look_at
from study.papers import write_documents
from tests.consortium import Consortium
from wire.keyring import Keyring


class Typed:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> tuple[int, str]:
        """The status, and all that was printed, in one line."""
        status = 0
        try:
            main([str(word) for word in words])
        except SystemExit as e:
            status = int(e.code or 0)
        told = self._capsys.readouterr()
        return status, " ".join((told.out + told.err).split())


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Iterator[Typed]:
    """In this process; a program that serves takes the signals that end it."""
    taken = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Typed(capsys)
    for number, handler in taken.items():
        signal.signal(number, handler)


def test_an_officer_checks_whichever_file_is_at_hand(tmp_path: Path, typed: Typed) -> None:
    parties = Consortium(tmp_path)
    figures = {kind: {"document": kind} for kind in KINDS}
    folder, identity = tmp_path / "papers", parties.rings["north"].identity
    write_documents(folder, figures, identity, "north", dict.fromkeys(KINDS, "<p>made</p>"))

    def verify(file: Path) -> tuple[int, str]:
        return typed("verify", "document", file, "--home", tmp_path / "north")

    by_page, by_figures = (verify(folder / f"privacy-budget.{end}") for end in ("html", "json"))
    assert by_page == by_figures and by_page[0] == 0
    assert "privacy-budget.json: signed by north, as it stands" in by_page[1]
    # the page that was changed is found from either side
    (folder / "report.html").write_text("<p>better</p>")
    assert verify(folder / "report.html")[0] == verify(folder / "report.json")[0] == 2
    # nothing there, no figures beside the page, another file of the silo's
    status, said = verify(tmp_path / "privacy-budget.json")
    assert status == 2 and "There is no file" in said and "records/" in said
    assert "There is no file" in verify(tmp_path / "privacy-budget.html")[1]
    shutil.copy(folder / "privacy-budget.html", tmp_path / "alone.html")
    status, said = verify(tmp_path / "alone.html")
    assert status == 2 and "has no alone.json beside it" in said
    (tmp_path / "ledger.jsonl").write_text('{"round": 0}\n{"round": 1}\n')
    status, said = verify(tmp_path / "ledger.jsonl")
    assert status == 2 and "is not a signed document" in said and "char" not in said


def test_hours_that_are_none_are_named_with_their_file(tmp_path: Path, typed: Typed) -> None:
    parties = Consortium(tmp_path)
    for table in ("limits", "accept"):
        file = parties.site("north", 9, f'[{table}]\nhours = "18-6"\n')
        status, said = typed("silo", "serve", "--config", file)
        assert status == 2 and said == (
            f'{file}: {table}.hours must be as in "18:00-06:00", not "18-6".'
        )


def test_a_folder_that_belongs_to_no_consortium_says_how_it_gets_there(
    tmp_path: Path, typed: Typed
) -> None:
    parties = Consortium(tmp_path)
    (tmp_path / "empty").mkdir()
    file = parties.site("north", 9, home="empty")
    file.write_text(file.read_text().replace('study = "study.toml"\n', ""))
    status, said = typed("silo", "serve", "--config", file)
    assert status == 2 and "empty has no keys" in said and "sottovoce join" in said
    # keys, and no roster yet
    for role, todo in (("coordinator", "sottovoce consortium seal"), ("silo", "sottovoce join")):
        home = tmp_path / f"new-{role}"
        Keyring.create(home, "new", role)
        words = ["coordinator", "serve", "--home", home, "--listen", "127.0.0.1:1"]
        if role == "silo":
            limits = '[limits]\nmethods = ["fedavgg"]\n'
            file.write_text(f'home = "{home}"\ncoordinator = "127.0.0.1:1"\n{limits}')
            words = ["silo", "serve", "--config", file]
        status, said = typed(*words)
        assert status == 2 and "has no pinned roster" in said and todo in said
        # a method that nobody has would refuse every study
        assert ('Did you mean \\"fedavg\\"?' in said) == (role == "silo")


def test_a_rotation_that_was_cut_short_asks_for_no_passphrase(tmp_path: Path) -> None:
    """Between its two renames there is no folder `keys`."""
    ring = Keyring.create(tmp_path / "north", "north", "silo")
    ring.rotate()
    (tmp_path / "north" / "retired").mkdir()
    (tmp_path / "north" / "keys").rename(tmp_path / "north" / "retired" / "0")
    assert not Keyring.sealed(tmp_path / "north")
    assert Keyring.load(tmp_path / "north").card.replaces == ring.card.identity


@contextmanager
def _as_nobody() -> Iterator[None]:
    """The superuser may read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that another user can go into, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700)
    shutil.rmtree(folder)


def test_data_that_the_serving_user_may_not_read_are_no_empty_folder(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(open_folder / "cache"))
    parties = Consortium(open_folder)
    data = open_folder / "data"
    (data / "train").mkdir(parents=True)
    row = {"text": "xol eased a cough", "head": {"start": 0, "end": 3}}
    row |= {"tail": {"start": 12, "end": 17}, "relation": "eases"}
    (data / "train" / "a.jsonl").write_text((json.dumps(row) + "\n") * 3)
    study = '[data]\ntask = "sentence"\nclasses = ["eases"]\n'
    file = open_folder / "study.toml"
    file.write_text(f'title = "Own data"\nmethod = "fedavg"\nrounds = 1\n{study}')
    site = parties.site("north", 9, corpus="data")
    answer = open_folder / "look.json"
    for path in (open_folder / "north", *(open_folder / "north").rglob("*"), open_folder):
        os.chown(path, 65534 if os.geteuid() == 0 else -1, -1)
    for closed in (data / "train", data):
        closed.chmod(0o000)
        with _as_nobody():
            with pytest.raises(PermissionError):
                data_files(data)
            assert look_at(site, answer) == 0
        look = json.loads(answer.read_text())
        assert look["title"] == "Own data"
        assert "cannot be read by the user" in look["refused"] and str(data) in look["refused"]
        answer.unlink()
        closed.chmod(0o755)


def test_whose_data_a_study_is_on_is_said_to_its_proposer(tmp_path: Path, typed: Typed) -> None:
    parties = Consortium(tmp_path)
    corpus = "distant:sentences=60,dev=20,test=20,entities=20,filler=20"
    file = parties.study(method="fedavg", corpus=corpus, rounds=1)
    status, said = typed("study", "propose", file, "--home", tmp_path / "hub")
    assert status == 0 and "It names no classes ([data])" in said and "trial" in said
    file.write_text('title = "Own"\nmethod = "lazymil"\nrounds = 1\n[data]\nclasses = ["a", "b"]\n')
    status, said = typed("study", "propose", file, "--home", tmp_path / "hub")
    assert status == 0 and "on the silos' own data" in said and "--corpus" in said
