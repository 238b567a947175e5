"""What this silo says when it is asked to open a sum, kept so that it can say the same again and nothing else.

A coordinator that dies between asking for shares and keeping the sum asks once more when it is back; so does one whose
silo died before it had answered. Whoever answers the very same question with the very same words tells nobody anything
new; any other question about a payload whose shares are out is refused, as ever (crypto.silo_sum).

The answer is on disk before the journal's note that it was given, and the note before the answer leaves. Killed between
the two, a silo finds an answer without its note: it makes up for the note before it says it, and gives it up where the
journal has another answer for that payload. The file is gone when the round is over.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgpack

from crypto.limits import Journal, MemoryJournal
from wire.messages import SumStep, encode

__all__ = ["Releases"]


class Releases:
    def __init__(self, path: Path | None = None, journal: Journal | None = None) -> None:
        """`path` None: remembered until this process ends. `journal`: the one that the secure sum writes to."""
        self._path, self._journal = path, journal or MemoryJournal()
        self._said: tuple[bytes, dict[str, Any], str, str] | None = None
        if path is not None and path.exists():
            try:
                question, answer, key, note = msgpack.unpackb(path.read_bytes(), raw=False)
                self._said = (question, answer, key, note)
            except (ValueError, TypeError, msgpack.UnpackException):
                pass  # cut short by a crash: it was never said

    def again(self, question: SumStep) -> dict[str, Any] | None:
        """The answer to exactly this question, if it was or may have been given. Its note is in the journal then."""
        if self._said is None or self._said[0] != _digest(question):
            return None
        _, answer, key, note = self._said
        noted = self._journal.get(key)
        if noted is None:
            self._journal.put(key, note)
        return answer if noted in (None, note) else None

    def keep(self, question: SumStep, answer: dict[str, Any], key: str, note: str) -> None:
        """On the disk when this returns; where it raises OSError, remembered until this process ends."""
        said = self._said = (_digest(question), answer, key, note)
        if self._path is not None:
            beside = self._path.with_suffix(".new")
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
                f.write(msgpack.packb(list(said), use_bin_type=True))
                f.flush()
                os.fsync(f.fileno())
            beside.replace(self._path)

    def forget(self) -> None:
        self._said = None
        if self._path is not None:
            for path in (self._path, self._path.with_suffix(".new")):  # also what a full disk left of one
                path.unlink(missing_ok=True)


def _digest(question: SumStep) -> bytes:
    return hashlib.sha256(encode(question)).digest()
