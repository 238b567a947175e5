"""What an operator mistypes is one sentence that names it and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main


def _typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("words", [("silo",), ("silo", "serve"), ("coordinator",)])
def test_a_file_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    home = ("--home", str(tmp_path)) if words == ("coordinator",) else ()
    said = _typed(capsys, *words, "--config", "/nope/silo.toml", *home)
    assert said == "--config: there is no file /nope/silo.toml."


def test_a_folder_that_is_missing_names_what_makes_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (
        ("study", "list", "--home", "silo"),
        ("coordinator", "serve", "--home", "silo"),
        ("ledger", "show", "--home", "silo"),
    ):
        said = _typed(capsys, *words)
        assert f"there is no folder {tmp_path / 'silo'}" in said
        assert '"sottovoce join"' in said and '"keys new"' in said
    (tmp_path / "study.toml").write_text("")
    said = _typed(capsys, "coordinator", "--config", "study.toml")
    assert "--home is missing" in said and '"sottovoce keys new"' in said


def test_a_file_of_somebody_else_is_no_stack_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/srv/data/train.jsonl")

    monkeypatch.setattr("cli.studies._role", closed)
    said = _typed(capsys, "study", "list", "--home", str(tmp_path))
    assert (
        said == "/srv/data/train.jsonl cannot be read or written by this user (Permission denied)."
    )
