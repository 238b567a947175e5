"""What a silo says, in parts that need no session: a sealed answer as messages, what it says to a
message that nobody foresaw, and where a computation failed.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from methods.base import Arrays
from wire import messages as m
from wire.bundle import pack, pieces

__all__ = ["sealed_messages", "unforeseen", "where_of"]

log = logging.getLogger("silo")


def sealed_messages(number: int, arrays: Arrays) -> Iterator[tuple[m.Message, Any]]:
    bundle = pack(arrays)
    yield m.SealedStart(number, bundle.layout), None
    for i, piece in enumerate(pieces(bundle.buffer)):
        yield m.Chunk(number, "sealed", i), piece


def unforeseen(number: int, kind: str, error: Exception) -> m.Refused:
    """Whatever a message makes of this program, it is refused, and the program goes on."""
    log.exception("refused (bad-field): a %s message that this silo cannot work with", kind[:40])
    detail = f"a {kind[:40]} message that it cannot work with ({type(error).__name__})"
    return m.Refused(number, "bad-field", detail)


def where_of(error: Exception) -> str:
    """Its kind and place. Its message is left out, which may have somebody's data in it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
