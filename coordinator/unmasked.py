"""The sum of a study without masking (SECAGG=off): folded like the secure one, but readable by the
coordinator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.sum.plain import PlainSum

__all__ = ["ClearSum"]


class ClearSum:
    """Takes uploads through the same calls as crypto's OpenSum, so that gathering has one path."""

    def __init__(self, encoding: Encoding, staging: int = 2) -> None:
        self._encoding, self._staging = encoding, staging
        self._sum = PlainSum(encoding)
        self._uploads: dict[str, list[np.ndarray]] = {}
        self._done: list[str] = []

    @property
    def can_begin(self) -> bool:
        return len(self._uploads) < self._staging

    @property
    def uploaded(self) -> tuple[str, ...]:
        return tuple(sorted(self._done))

    def begin(self, silo: str) -> None:
        if silo in self._uploads or silo in self._done:
            raise Refusal("second-sum", f"a second upload of {silo}", silo)
        self._uploads[silo] = []

    def add_frame(self, silo: str, index: int, words: np.ndarray) -> None:
        frames = self._uploads.get(silo)
        if frames is None or index != len(frames) or index >= self._encoding.frames:
            raise Refusal("wrong-shape", f"a frame of {silo} that is not due", silo)
        if len(words) != self._encoding.frame_words(index):
            raise Refusal(
                "wrong-shape", f"frame {index} of {silo} does not have the declared words", silo
            )
        frames.append(words.copy())

    def finish_upload(self, silo: str) -> None:
        self._sum.add(self._uploads.pop(silo))
        self._done.append(silo)

    def lost(self, silo: str) -> None:
        self._uploads.pop(silo, None)

    def result(self) -> tuple[tuple[str, ...], Sequence[np.ndarray]]:
        return self.uploaded, self._sum.result(len(self._done))
