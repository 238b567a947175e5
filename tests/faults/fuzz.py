"""Mutated frames at a silo's door: whatever arrives is a refusal or an answer, never an exception.

`python -m tests.faults.fuzz --frames 1000000`; `make soak` runs it before its schedules. A frame is a
good message whose bytes or fields were changed, said to a silo in any state. Seeded: a frame that
breaks something can be made again.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter
from typing import Any

import msgpack

from crypto.sum.params import Policy
from crypto.sum.records import Proposal, UnmaskRequest
from crypto.sum.silo import SiloSum
from crypto.sum.silo_limits import Limits, MemoryJournal
from silo.session import Session, State
from silo.states import LEGAL
from tests.crypto.world import RUN, World
from tests.silo.talk import PATHS, PIECE, new_gate, told
from wire import messages as m

__all__ = ["fuzz"]

_JUNK: list[Any] = [
    None, True, 0, -1, 1, 1 << 40, (1 << 63) - 1, 0.5, float("nan"), float("inf"), "", "x", "common",
    "<f4", b"", b"r" * 32, bytes(64), [], [[]], {}, [1, 2], ["a", "<f4", [1]], {"a": 1}, [["a", [], [1]]],
    {"silo": "silo-000"}, {"h": b"", "survivors": []},
]  # fmt: skip


def _good_messages(world: World) -> list[tuple[m.Message, Any]]:
    offers = [silo.offer().to_record() for silo in world.silos.values()]
    return [
        (m.Welcome(RUN, 0), None),
        (m.SumStep("keys", {"offers": offers}), None),
        (m.SumStep("nonces", {"reveals": []}), None),
        (m.SumStep("propose", Proposal(bytes(32), world.names, ()).to_record()), None),
        (m.SumStep("unmask", UnmaskRequest(bytes(32), world.names, (), ()).to_record()), None),
        (told(1), None),
        (told(2, private=[["winners", "<u4", [2]]]), None),
        (m.Chunk(1, "common", 0), PIECE),
        (m.Go(1), None),
        (m.Send(1), None),
        (m.Closed(1, True), None),
        (m.RoundOver(0), None),
        (m.Ping(), None),
        (m.Hello("0", b"", {"encoder": "x"}), None),
    ]


def _with_junk(body: Any, rng: random.Random) -> Any:
    """One place of the message, anywhere in it, replaced."""
    if isinstance(body, list) and body and rng.random() < 0.95:
        at = rng.randrange(len(body))
        return [_with_junk(x, rng) if i == at else x for i, x in enumerate(body)]
    if isinstance(body, dict) and body and rng.random() < 0.95:
        at = rng.choice(sorted(body, key=str))
        return {k: _with_junk(v, rng) if k == at else v for k, v in body.items()}
    alike = [x for x in _JUNK if type(x) is type(body)]
    return rng.choice(alike if alike and rng.random() < 0.8 else _JUNK)


def _mutated(message: m.Message, rng: random.Random) -> bytes:
    good = m.encode(message)
    if rng.random() < 0.6:
        body = _with_junk(msgpack.unpackb(good, raw=False), rng)
        packed: bytes = msgpack.packb(body, use_bin_type=True)
        return packed
    data = bytearray(good)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) or 1)
        action = rng.randrange(3)
        if action == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif action == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 3))
        else:
            del data[at : at + rng.randint(1, 3)]
    return bytes(data)


def _state(message: m.Message, rng: random.Random) -> State:
    """Mostly one in which the message may be heard."""
    kind = f"sum:{message.step}" if isinstance(message, m.SumStep) else message.kind
    legal = [s for s in sorted(PATHS, key=str) if s in LEGAL.get(kind, ())]
    return rng.choice(legal if legal and rng.random() < 0.7 else sorted(PATHS, key=str))


def fuzz(frames: int, seed: int = 0) -> Counter[str]:
    """How the silo took them: "bad" (no message at all), "answered", or the name of the refusal."""
    rng = random.Random(seed)
    world = World(4)
    messages = _good_messages(world)
    taken: Counter[str] = Counter()
    for n in range(frames):
        session = Session(
            new_gate(),
            new_party=_party(world) if n % 2 else None,
            rounding_seed=lambda r, e: b"",
            broadcast_limit=1 << 20,
            hello=m.Hello("0", b""),
        )
        message, payload = rng.choice(messages)
        for said, beside in PATHS[_state(message, rng)]:
            list(session.hear(said, beside))
        data = _mutated(message, rng)
        try:
            heard = m.decode(data)
        except m.BadMessage:
            taken["bad"] += 1
            continue
        if rng.random() < 0.1:
            payload = rng.randbytes(rng.randrange(40))
        try:
            answers = [x for x, _ in session.hear(heard, payload)]
        except Exception as e:
            raise AssertionError(f"frame {n} of seed {seed}: {data.hex()}") from e
        refused = [x.attack for x in answers if isinstance(x, m.Refused)]
        taken[refused[0] if refused else "answered"] += 1
    return taken


def _party(world: World) -> Any:
    name = world.names[0]
    limits = Limits(policy=Policy())

    def new(run: bytes) -> SiloSum:
        return SiloSum(
            name,
            world.identities[name],
            roster=world.roster,
            run_id=run,
            limits=limits,
            journal=MemoryJournal(),
        )

    return new


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--frames", type=int, default=1_000_000)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    logging.disable(logging.CRITICAL)
    total: Counter[str] = Counter()
    for part in range(0, given.frames, 10_000):
        total += fuzz(min(10_000, given.frames - part), given.seed + part)
        print(f"{sum(total.values())} frames: {dict(total.most_common())}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
