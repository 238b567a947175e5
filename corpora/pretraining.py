"""Which of the texts that a generator draws are for pretraining an encoder, and which for a task.

A hash of the text decides, half and half, so that no task has a sentence that the encoder has seen.
"""

from __future__ import annotations

import hashlib

__all__ = ["for_pretraining"]


def for_pretraining(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] % 2 == 0
