"""One end of a connection in a process of its own, for attacks on its memory: `python -m
tests.wire.victim router|dealer`.

It says its port or that it has dialled, and after each line it is given, how much memory it had at
most since it began (VmHWM, in MiB). It reads nothing from its socket unless the line says `read`.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from wire import messages as m
from wire.counter import ByteCounter
from wire.dealer import Cut, Dealer
from wire.keys import CurveKeys
from wire.router import Router

_PATIENCE = 20.0


def most_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def _say(*words: object) -> None:
    print(*words, flush=True)


def _router(secret: bytes, public: bytes, allowed: list[bytes], unread: int) -> None:
    names = {key: f"silo-{i:03d}" for i, key in enumerate(allowed)}
    router = Router(CurveKeys(public, secret), names, ByteCounter(), unread=unread)
    _say("port", router.bind("127.0.0.1", 0))
    for line in sys.stdin:
        seen = "nothing"
        if line.strip() == "read":
            event = router.receive(_PATIENCE)
            seen = type(event).__name__
        _say(seen, most_memory())
    router.close()


def _dealer(secret: bytes, public: bytes, coordinator: bytes, address: str, unread: int) -> None:
    dealer = Dealer(address, CurveKeys(public, secret), coordinator, unread=unread)
    dealer.send(m.Hello("0", b""))
    _say("dialled", 0)
    for line in sys.stdin:
        seen = "nothing"
        if line.strip() == "read":
            try:
                word = dealer.receive(_PATIENCE)
                seen = "nothing" if word is None else word[0].kind
            except Cut:
                seen = "Cut"
        _say(seen, most_memory())
    dealer.close()


def main(words: list[str]) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    side, secret, public, *rest = words
    if side == "router":
        _router(secret.encode(), public.encode(), [k.encode() for k in rest[1:]], int(rest[0]))
    else:
        _dealer(secret.encode(), public.encode(), rest[1].encode(), rest[2], int(rest[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
