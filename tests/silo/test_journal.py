"""The journal: whole after any kill, one process's at a time, and a silo that stops rather than
forget.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from config.errors import UserError
from silo.appended import sync_folder
from silo.journal import FileJournal


def test_the_journal_survives_a_line_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(path)
    journal.put("a", "1")
    journal.put("b", "2")
    journal.put("a", "3")
    journal.close()
    # what a crash may leave: a line without its end
    for cut in (b'["a', b'["c", "9"]', b"\xff\xfe"):
        path.write_bytes(path.read_bytes() + cut)
        journal = FileJournal(path)
        assert (journal.get("a"), journal.get("b"), journal.get("c")) == ("3", "2", None)
        journal.put("b", "2")
        journal.close()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("bad", [b"\xff\n", b"{}\n", b'["a"]\n', b'["a", 3]\n', b"null\n", b"\n"])
def test_a_bad_line_stops_the_silo_and_loses_nothing(tmp_path: Path, bad: bytes) -> None:
    """Before, it silently dropped every later note: the silo would have joined sums again."""
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path)
    journal.put("last/run", "1 0")
    journal.put("last/run", "7 3")
    journal.close()
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + bad + second)
    with pytest.raises(UserError, match=r"journal.jsonl, line 2: .* Restore the journal"):
        FileJournal(path)
    assert path.read_bytes() == first + bad + second
    path.write_bytes(first + second)  # and it is not locked by the attempt
    assert FileJournal(path).get("last/run") == "7 3"


def test_two_processes_do_not_share_a_journal(tmp_path: Path) -> None:
    mine = FileJournal(tmp_path / "journal.jsonl")
    with pytest.raises(UserError, match="is in use by another process"):
        FileJournal(tmp_path / "journal.jsonl")
    mine.close()
    FileJournal(tmp_path / "journal.jsonl").close()


def _writer_that_dies(path: Path, at: int, after: bool, told: int) -> None:
    """In a process of its own: five notes, each told when `put` has returned; kill -9 at the at-th
    call of write or fsync, before or after it is made, a line perhaps cut in two.
    """
    calls, write, sync = itertools.count(), os.write, os.fsync

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(file: int, *rest: bytes) -> object:
            here = next(calls) == at
            if here and not after:
                if rest:
                    write(file, rest[0][: len(rest[0]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            done = real(file, *rest)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call

    os.write, os.fsync = dying(write), dying(sync)  # type: ignore[assignment]
    journal = FileJournal(path)
    for n in range(5):
        journal.put("n", str(n))
        write(told, f"{n}\n".encode())
    os._exit(0)


@pytest.mark.parametrize("after", [False, True])
def test_kill_9_at_every_call_leaves_every_note_that_was_answered(
    tmp_path: Path, after: bool
) -> None:
    for at in itertools.count():
        path = tmp_path / f"{after}-{at}.jsonl"
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _writer_that_dies(path, at, after, writer)
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader) as told:
            answered = [int(x) for x in told.read().split()]
        _, status = os.waitpid(child, 0)
        kept = FileJournal(path).get("n") if path.exists() else None
        assert not answered or int(kept or -1) >= answered[-1], (at, kept, answered)
        if not os.WIFSIGNALED(status):
            # two calls to open it, two for each note
            assert at == 12 and answered == [0, 1, 2, 3, 4] and os.WEXITSTATUS(status) == 0
            return


def test_names_are_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file, and a file that was renamed into place, are in their folder for good."""
    synced: list[os.stat_result] = []
    real = os.fsync

    def fsync(file: int) -> None:
        synced.append(os.fstat(file))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    FileJournal(tmp_path / "journal.jsonl").close()
    assert os.path.samestat(synced[-1], tmp_path.stat())
    sync_folder(tmp_path / "any")
    assert os.path.samestat(synced[-1], tmp_path.stat())


def test_half_a_line_on_a_full_disk_hides_nothing_that_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "journal.jsonl")
    journal.put("a", "1")
    real = os.write
    monkeypatch.setattr("silo.appended.os.write", lambda file, line: real(file, line[:5]))
    with pytest.raises(OSError, match="No space left"):
        journal.put("a", "2")
    monkeypatch.undo()
    assert journal.get("a") == "1"
    journal.put("b", "3")
    journal.close()
    again = FileJournal(tmp_path / "journal.jsonl")
    assert (again.get("a"), again.get("b")) == ("1", "3")
    again.close()
