"""Every message once and in order, whatever brought it: a number in front of each, counted per
connection.

TCP delivers in order and once, so on a healthy connection this never has anything to do. It is here
for what stands between the two ends in practice (a relay that repeats, a queue that is flushed
late), so that the state machines above need not tell a repetition by accident from a replay on
purpose: on one connection, neither reaches them.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from wire.messages import BadMessage

__all__ = ["NUMBER_BYTES", "InOrder", "numbered", "split"]

NUMBER_BYTES = 8
_WINDOW = 32  #: messages that may wait for an earlier one: at most 32 MiB

T = TypeVar("T")


def numbered(number: int, header: bytes) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big") + header


def split(frame: memoryview | bytes) -> tuple[int, memoryview]:
    view = memoryview(frame)
    if len(view) <= NUMBER_BYTES:
        raise BadMessage("a frame without a message")
    return int.from_bytes(view[:NUMBER_BYTES], "big"), view[NUMBER_BYTES:]


class InOrder(Generic[T]):
    """Takes (number, message) as they come and gives messages as they were sent."""

    def __init__(self, due: int = 0) -> None:
        self._due = due
        self._early: dict[int, T] = {}

    def take(self, number: int, message: T) -> list[T]:
        """What can be handed on now: nothing for a repetition, or for one that came before an
        earlier one.
        """
        if number < self._due or number in self._early:
            return []
        if number - self._due > _WINDOW:
            raise BadMessage(f"a message that is {number - self._due} ahead of the one that is due")
        self._early[number] = message
        ready = []
        while self._due in self._early:
            ready.append(self._early.pop(self._due))
            self._due += 1
        return ready
