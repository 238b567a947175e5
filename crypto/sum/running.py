"""The running sum, and the buffers in which uploads wait until they are complete.

An upload becomes part of the sum only when it is complete, so that a silo that dies halfway leaves
no trace in it. One upload at a time is written to its buffer with the running sum already added, in
one pass instead of two: complete, it *is* the running sum.
"""

from __future__ import annotations

import numpy as np

from crypto.errors import Refusal
from crypto.numbers import lanes
from crypto.numbers.encoding import FRAME_WORDS, Encoding

__all__ = ["RunningSum"]

_BEYOND_CACHE = 1 << 20  #: words: 8 MiB
_LARGE = 1 << 23  #: words of a buffer that is not kept while nobody sends: 64 MiB


class RunningSum:
    """At most `staging` buffers and one sum, whatever the number of silos."""

    def __init__(self, encoding: Encoding, staging: int) -> None:
        self.total: np.ndarray | None = None
        self.done: list[str] = []
        self._encoding, self._staging = encoding, staging
        self._free: list[np.ndarray] = []
        self._uploads: dict[str, tuple[np.ndarray, int]] = {}  # silo -> (buffer, next frame)
        self._ahead: str | None = None  # the silo whose buffer holds the running sum and its upload

    @property
    def has_room(self) -> bool:
        return len(self._uploads) < self._staging

    def begin(self, silo: str) -> None:
        self._uploads[silo] = (self._free.pop() if self._free else self._encoding.room(), 0)
        if self._ahead is None and self.total is not None:
            self._ahead = silo

    def add(self, silo: str, index: int, words: np.ndarray) -> None:
        self._check_frame(silo, index, words)
        buffer, due = self._uploads[silo]
        part = slice(index * FRAME_WORDS, index * FRAME_WORDS + len(words))
        if silo == self._ahead:
            assert self.total is not None
            # The C version writes past the cache, which pays where the sum does not fit into it.
            large = self._encoding.words >= _BEYOND_CACHE and words.flags.aligned
            add = lanes.add_words if large else lanes.add_words_numpy
            add(self.total[part], words, buffer[part])
        else:
            np.copyto(buffer[part], words)
        self._uploads[silo] = (buffer, due + 1)

    def _check_frame(self, silo: str, index: int, words: np.ndarray) -> None:
        if silo not in self._uploads:
            raise Refusal("undeclared-upload", f"a frame of {silo} without an upload", silo)
        due, encoding = self._uploads[silo][1], self._encoding
        if index != due or due >= encoding.frames:
            raise Refusal(
                "wrong-shape",
                f"frame {index} of {silo} where {due} of {encoding.frames} is due",
                silo,
            )
        if words.dtype != np.dtype("<u8") or words.shape != (encoding.frame_words(index),):
            raise Refusal(
                "wrong-shape", f"frame {index} of {silo} does not have the declared words", silo
            )

    def finish(self, silo: str) -> None:
        """Fold a complete upload into the running sum, and free its buffer."""
        if silo not in self._uploads:
            raise Refusal(
                "undeclared-upload", f"the end of an upload that {silo} did not begin", silo
            )
        buffer, due = self._uploads[silo]
        if due != self._encoding.frames:
            raise Refusal(
                "wrong-shape", f"{silo} ended after {due} of {self._encoding.frames} frames", silo
            )
        del self._uploads[silo]
        if self.total is None:
            self.total = buffer
        elif silo == self._ahead:
            self._free.append(self.total)
            self.total, self._ahead = buffer, None
        else:
            _add(self.total, buffer, len(buffer))
            if self._ahead is not None:  # what is ahead began without this upload
                ahead, frames = self._uploads[self._ahead]
                _add(ahead, buffer, min(frames * FRAME_WORDS, len(buffer)))
            self._free.append(buffer)
        self.done.append(silo)
        if not self._uploads and self._encoding.words >= _LARGE:
            self.drop_buffers()  # until the next upload, silos train for a while

    def abort(self, silo: str) -> None:
        """Forget an upload that is not complete."""
        if silo in self._uploads:
            self._free.append(self._uploads.pop(silo)[0])
        if silo == self._ahead:
            self._ahead = None

    def forget_unfinished(self) -> None:
        for silo in tuple(self._uploads):
            self.abort(silo)

    def drop_buffers(self) -> None:
        self._free.clear()


def _add(target: np.ndarray, words: np.ndarray, count: int) -> None:
    """The first words, added in place, in pieces that stay in the cache."""
    for at in range(0, count, FRAME_WORDS):
        part = target[at : min(at + FRAME_WORDS, count)]
        np.add(part, words[at : at + len(part)], out=part)
