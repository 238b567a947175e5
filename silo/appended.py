"""A file that only grows, a line at a time: what the journal and the ledger stand on. A journal
belongs to one process. A ledger is shared: each process takes its turn, and reads what others wrote
before it writes.

A line is on the disk when `append` returns. A last line without its end was cut short by a crash:
its `append` never returned, so nobody acted on it, and it is dropped. Any other line is the
reader's to judge: what does not make sense in the middle of the file must stop the silo, since
everything after it would be forgotten otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from config.errors import Busy, UserError

__all__ = ["AppendOnly", "sync_folder"]


class AppendOnly:
    def __init__(self, path: Path, what: str, shared: bool = False) -> None:
        """`what`: for people, as in "privacy ledger". Locked before it is read, unless it is
        `shared`: then for the length of a `turn`.
        """
        self.path, self.what, self._shared = path, what, shared
        self._file: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            if not shared:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Busy(
                f"The {what} {path} is in use by another process; end that one first."
            ) from None
        except OSError as e:
            self.close()
            raise UserError(
                f"The {what} {path} cannot be opened ({e.strerror}); without it, no run."
            ) from None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """While nobody else reads or writes. Waits for its turn where the file is shared."""
        assert self._file is not None
        if self._shared:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._shared:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def read(self) -> list[bytes]:
        """Every whole line. What a crash cut short is removed, and the file is ready to grow."""
        assert self._file is not None
        os.lseek(self._file, 0, os.SEEK_SET)
        lines = self.news()
        os.fsync(self._file)
        sync_folder(self.path)
        return lines

    def news(self) -> list[bytes]:
        """Every whole line since the last one that this process read or wrote."""
        assert self._file is not None
        at, text = os.lseek(self._file, 0, os.SEEK_CUR), b""
        while piece := os.read(self._file, 1 << 20):
            text += piece
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.ftruncate(self._file, at + len(whole))
        os.lseek(self._file, at + len(whole), os.SEEK_SET)
        return whole.split(b"\n")[:-1]

    def bad_line(self, number: int, why: str) -> UserError:
        return UserError(
            f"{self.path}, line {number}: {why}; the silo stops, since what stands there and after it "
            f"would be forgotten. Restore the {self.what} from a copy."
        )

    def append(self, line: bytes) -> None:
        """On the disk when this returns. Where it raises, the file is as it was: half a line would
        hide every later one from whoever reads the file after a restart.
        """
        assert self._file is not None
        at = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            if os.write(self._file, line + b"\n") != len(line) + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(self._file)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                os.ftruncate(self._file, at)
                os.lseek(self._file, at, os.SEEK_SET)
            raise

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def sync_folder(path: Path) -> None:
    """The name itself must survive, not only what stands under it: after a new file or a rename."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
