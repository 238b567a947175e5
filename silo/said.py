"""What a silo says, in parts that need no session: a sealed answer as messages, and where a
computation failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from methods.base import Arrays
from wire import messages as m
from wire.bundle import pack, pieces

__all__ = ["sealed_messages", "where_of"]


def sealed_messages(number: int, arrays: Arrays) -> Iterator[tuple[m.Message, Any]]:
    bundle = pack(arrays)
    yield m.SealedStart(number, bundle.layout), None
    for i, piece in enumerate(pieces(bundle.buffer)):
        yield m.Chunk(number, "sealed", i), piece


def where_of(error: Exception) -> str:
    """Its kind and place. Its message is left out, which may have somebody's data in it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
