"""The byte counter: one wrapper around send and receive, counting what our process puts on the
wire.

ZMTP 3.1 with CURVE adds to each frame of p bytes a MESSAGE command of 33 bytes (name 8, nonce 8,
box 16, flags 1) and a length of 2 bytes, or 9 above 255. A connection costs a handshake of fixed
size on top, counted when a silo first speaks. TCP and IP headers are the network's and are not
counted. A test compares the total with a proxy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

__all__ = ["HANDSHAKE_DOWN", "HANDSHAKE_UP", "ByteCounter", "wire_size"]

_GREETING = 64
_PROPERTY_TYPE = 1 + 11 + 4 + 6  # "Socket-Type" with DEALER or ROUTER
_PROPERTY_IDENTITY = 1 + 8 + 4  # "Identity", empty
#: Greeting, HELLO (200), INITIATE (cookie 96, nonce 8, box 16, keys and vouch 128, properties).
HANDSHAKE_UP = (
    _GREETING + (2 + 200) + (9 + 9 + 96 + 8 + 16 + 128 + _PROPERTY_TYPE + _PROPERTY_IDENTITY)
)
#: Greeting, WELCOME (168), READY (nonce 8, box 16, properties).
HANDSHAKE_DOWN = _GREETING + (2 + 168) + (2 + 6 + 8 + 16 + _PROPERTY_TYPE + _PROPERTY_IDENTITY)


def wire_size(payload: int) -> int:
    body = payload + 33
    return body + (2 if body <= 255 else 9)


class ByteCounter:
    """Sums by (silo, round, kind, channel, direction); `drain` empties it into lines for
    traffic.jsonl.
    """

    def __init__(self) -> None:
        self.round = -1  #: before the first round: enrolment and key exchange
        self._sums: dict[tuple[str, int, str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])

    def count(self, silo: str, kind: str, channel: str, direction: str, frames: list[int]) -> None:
        entry = self._sums[silo, self.round, kind, channel, direction]
        entry[0] += 1
        entry[1] += sum(frames)
        entry[2] += sum(map(wire_size, frames))

    def connection(self, silo: str) -> None:
        for direction, size in (("up", HANDSHAKE_UP), ("down", HANDSHAKE_DOWN)):
            entry = self._sums[silo, self.round, "handshake", "control", direction]
            entry[0] += 1
            entry[2] += size

    def restore(self, lines: list[dict[str, Any]]) -> None:
        """Count on from what an earlier process had counted, by its checkpoint."""
        for x in lines:
            entry = self._sums[x["silo"], x["round"], x["kind"], x["channel"], x["direction"]]
            for k, figure in enumerate(("messages", "payload_bytes", "wire_bytes")):
                entry[k] += x[figure]

    def drain(self) -> Iterator[dict[str, Any]]:
        yield from self.lines()
        self._sums.clear()

    def lines(self) -> Iterator[dict[str, Any]]:
        for (silo, round, kind, channel, direction), (messages, payload, wire) in sorted(
            self._sums.items()
        ):
            yield {
                "silo": silo,
                "round": round,
                "kind": kind,
                "channel": channel,
                "direction": direction,
                "messages": messages,
                "payload_bytes": payload,
                "wire_bytes": wire,
            }
