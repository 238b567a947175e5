"""The wire's own counter, fed with messages that are not sent."""

from __future__ import annotations

from wire import messages as m
from wire.counter import ByteCounter
from wire.order import numbered

__all__ = ["Wire", "pieces"]


class Wire:
    """Counts one message after another, as router and dealer do."""

    def __init__(self, counter: ByteCounter) -> None:
        self.counter = counter

    def down(
        self, silo: str, message: m.Message, payload: int | None = None, channel: str = "control"
    ) -> None:
        self._count(silo, message, payload, channel, "down")

    def up(
        self, silo: str, message: m.Message, payload: int | None = None, channel: str = "control"
    ) -> None:
        self._count(silo, message, payload, channel, "up")

    def _count(
        self, silo: str, message: m.Message, payload: int | None, channel: str, direction: str
    ) -> None:
        frames = [len(numbered(0, m.encode(message))), *([payload] if payload is not None else [])]
        self.counter.count(silo, message.kind, channel, direction, frames)


def pieces(size: int) -> list[int]:
    return [min(m.FRAME_BYTES, size - at) for at in range(0, size, m.FRAME_BYTES)]
