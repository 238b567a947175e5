"""What this silo last said when it was asked to open a sum, kept so that it can say the same again and nothing else.

A coordinator that dies between asking for shares and keeping the sum asks once more when it is back. Whoever answers
the very same question with the very same words tells nobody anything new; any other question about a payload whose
shares are out is refused, as ever (crypto.silo_sum). The shares in it went to the coordinator: on this disk they open
nothing that was not opened. The file is gone when the round is over.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgpack

from wire.messages import SumStep, encode

__all__ = ["Releases"]


class Releases:
    def __init__(self, path: Path | None = None) -> None:
        """`path` None: remembered until this process ends."""
        self._path = path
        self._said: tuple[bytes, dict[str, Any]] | None = None
        if path is not None and path.exists():
            try:
                question, answer = msgpack.unpackb(path.read_bytes(), raw=False)
                self._said = (question, answer)
            except (ValueError, msgpack.UnpackException):
                pass  # cut short by a crash: it was never said

    def again(self, question: SumStep) -> dict[str, Any] | None:
        """The answer that was given to exactly this question."""
        if self._said is not None and self._said[0] == _digest(question):
            return self._said[1]
        return None

    def keep(self, question: SumStep, answer: dict[str, Any]) -> None:
        """On the disk when this returns; where it raises OSError, remembered until this process ends."""
        said = self._said = (_digest(question), answer)
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
            self._path.unlink(missing_ok=True)


def _digest(question: SumStep) -> bytes:
    return hashlib.sha256(encode(question)).digest()
