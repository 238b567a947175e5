"""The same sum without masks: for SECAGG=off and for the runner that lives in one process.

Words are added exactly as under masks, so the result is the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from crypto.numbers.encoding import FRAME_WORDS, Encoding

__all__ = ["PlainSum"]


class PlainSum:
    """A running sum of encoded vectors."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.count = 0
        self.total = np.zeros(encoding.words, np.dtype("<u8"))

    def add(self, frames: Iterable[np.ndarray]) -> None:
        """Fold one vector, frame by frame, as `Encoding.encode` yields it. A short vector is an
        error.
        """
        if self.count == self.encoding.parties:
            raise ValueError(f"the encoding has room for {self.encoding.parties} vectors")
        index = -1
        for index, frame in enumerate(frames):
            target = self.total[
                index * FRAME_WORDS : index * FRAME_WORDS + self.encoding.frame_words(index)
            ]
            if frame.shape != target.shape:
                raise ValueError(
                    f"frame {index} has {frame.shape} words where {target.shape} are declared"
                )
            np.add(target, frame, out=target)
        if index + 1 != self.encoding.frames:
            raise ValueError(f"{index + 1} frames where {self.encoding.frames} are declared")
        self.count += 1

    def result(self, count: int | None = None) -> Sequence[np.ndarray]:
        """The sum as flat float64 arrays, one per tensor."""
        return self.encoding.decode(self.total, self.count if count is None else count)
