"""Everything that coordinator and silo say to each other, as typed records in msgpack.

A message is one small header frame, `[kind, fields…]`, and for bulk data one raw payload frame of
at most 1 MiB beside it, which msgpack never sees. What arrives is checked field by field against
the record's types before anybody looks at it; whatever does not fit is a `BadMessage`, never an
exception from deep inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, get_type_hints

import msgpack

__all__ = [
    "FRAME_BYTES",
    "HANG_UP_BYTES",
    "HEADER_BYTES",
    "HEARTBEAT_MS",
    "PATIENCE_MS",
    "SEND_BUFFER",
    "FAILED",
    "INTERRUPTED",
    "OVER",
    "BadMessage",
    "Broadcast",
    "Chunk",
    "Closed",
    "Go",
    "Hello",
    "Message",
    "Oversize",
    "Ping",
    "Probe",
    "Probed",
    "Ready",
    "Refused",
    "RoundOver",
    "SealedStart",
    "Send",
    "VERSION",
    "Stop",
    "SumStart",
    "SumStep",
    "Welcome",
    "decode",
    "encode",
]

VERSION = "0.1.0"  #: of the program, as the two ends tell it each other
OVER = "the run is over"  #: the one reason to stop after which there is nothing to come back for
#: it goes on when its coordinator is started again
INTERRUPTED, FAILED = "the run was interrupted", "the run failed"
FRAME_BYTES = 1 << 20  #: the most a payload frame holds
#: the most a header frame holds (the shares that 1000 silos address to one holder fit)
HEADER_BYTES = 1 << 21
#: Where libzmq hangs up before it keeps a byte, without a word on why. Twice what is allowed:
#: whoever sends one that is merely too large is refused by name, and the memory that one frame may
#: cost stays bounded.
HANG_UP_BYTES = 1 << 22

# What both ends of a connection ask of libzmq.
HEARTBEAT_MS = 2_000
#: A peer silent for this long (to libzmq, not to Python) is gone. Heartbeats go between frames: on
#: a line of 0.5 Mbit/s one of 1 MiB takes 17 s, and what the kernel holds (SEND_BUFFER) as long
#: again.
PATIENCE_MS = 40_000
SEND_BUFFER = 1 << 20


class BadMessage(Exception):
    """Bytes that are not a message of ours. Says what is wrong, never repeats what arrived."""

    attack = "wrong-shape"  #: the name it is refused under


class Oversize(BadMessage):
    """More bytes than anybody agreed to hold."""

    attack = "oversize"


@dataclass(frozen=True)
class Message:
    kind: ClassVar[str] = ""


@dataclass(frozen=True)
class Hello(Message):
    """Silo: I am here. Its name is not in it: that comes from its CURVE key, which cannot be
    claimed.
    """

    kind: ClassVar[str] = "hello"
    version: str
    study: bytes  #: hash of the study this silo agreed to
    #: what must be the same everywhere, by name: hashes of public things
    content: dict = field(default_factory=dict)
    #: drawn when the process began: the same again means that it has forgotten nothing
    life: bytes = b""
    session: bytes = b""  #: the secure sum's session it is in; empty: none
    number: int = 0  #: the exchange it is in, or was in last
    state: str = ""  #: how far it has come there
    #: the highest number of any sum it ever heard of, which no new one may fall below
    last: int = 0
    #: [round, exchange] of what it answered and still carries
    answered: list = field(default_factory=list)
    have: list = field(default_factory=list)  #: digests of the broadcasts it still holds


@dataclass(frozen=True)
class Welcome(Message):
    """Coordinator: you are in; the run's identity, and where it stands."""

    kind: ClassVar[str] = "welcome"
    run: bytes
    round: int


@dataclass(frozen=True)
class SumStep(Message):
    """Either way: one record of the secure sum's own protocol (crypto.sum.records), named by
    `step`.
    """

    kind: ClassVar[str] = "sum"
    step: str
    record: dict


@dataclass(frozen=True)
class Broadcast(Message):
    """Coordinator: an exchange begins. The arrays follow in chunks: first `common`, then
    `private`.
    """

    kind: ClassVar[str] = "broadcast"
    number: int  #: counts exchanges of a run; every message of an exchange carries it
    round: int
    exchange: int
    cohort: list
    common: list  #: [name, dtype, shape] of each array
    private: list
    header: dict  #: the secure sum's header; empty when nothing masked travels
    encoding: dict  #: how masked arrays are coded; empty likewise
    #: digest of the common arrays, if they do not follow because the silo holds them already
    have: bytes = b""


@dataclass(frozen=True)
class Chunk(Message):
    """Either way: the next piece, as this message's payload, of a stream announced before it."""

    kind: ClassVar[str] = "chunk"
    number: int
    stream: str
    index: int


@dataclass(frozen=True)
class Go(Message):
    """Coordinator: a core is free, compute your answer."""

    kind: ClassVar[str] = "go"
    number: int


@dataclass(frozen=True)
class Ready(Message):
    """Silo: the answer is computed, and paid for: what its privacy ledger was charged, in words and
    figures.
    """

    kind: ClassVar[str] = "ready"
    number: int
    charged: list = field(default_factory=list)


@dataclass(frozen=True)
class Send(Message):
    """Coordinator: a buffer is free, upload."""

    kind: ClassVar[str] = "send"
    number: int


@dataclass(frozen=True)
class SealedStart(Message):
    """Silo: sealed arrays follow in chunks."""

    kind: ClassVar[str] = "sealed"
    number: int
    arrays: list


@dataclass(frozen=True)
class SumStart(Message):
    """Silo: masked (or, with secure aggregation off, plain) words follow in chunks."""

    kind: ClassVar[str] = "upload"
    number: int
    record: dict


@dataclass(frozen=True)
class Closed(Message):
    """Coordinator: the exchange is over."""

    kind: ClassVar[str] = "closed"
    number: int
    ok: bool


@dataclass(frozen=True)
class RoundOver(Message):
    kind: ClassVar[str] = "round-over"
    round: int


@dataclass(frozen=True)
class Refused(Message):
    """Silo: I will not do that, and this is the name of why."""

    kind: ClassVar[str] = "refused"
    number: int
    attack: str
    detail: str


@dataclass(frozen=True)
class Stop(Message):
    kind: ClassVar[str] = "stop"
    reason: str


@dataclass(frozen=True)
class Ping(Message):
    """Coordinator: nothing to say; the send itself tells whether the silo's connection still
    stands.
    """

    kind: ClassVar[str] = "ping"


@dataclass(frozen=True)
class Probe(Message):
    """Silo, before it takes part: are you there? Opens no route and enrols nobody."""

    kind: ClassVar[str] = "probe"
    version: str


@dataclass(frozen=True)
class Probed(Message):
    """Coordinator: here, with this clock (milliseconds since 1970)."""

    kind: ClassVar[str] = "probed"
    time: int
    version: str


def _subclasses() -> dict[str, type[Message]]:
    return {c.kind: c for c in Message.__subclasses__()}


_KINDS = _subclasses()
_HINTS = {c: [get_type_hints(c)[f.name] for f in fields(c)] for c in _KINDS.values()}


def encode(message: Message) -> bytes:
    body = [message.kind, *(getattr(message, f.name) for f in fields(message))]
    packed: bytes = msgpack.packb(body, use_bin_type=True)
    if len(packed) > HEADER_BYTES:
        raise BadMessage(
            f'a "{message.kind}" header of {len(packed)} bytes is over the limit of {HEADER_BYTES}'
        )
    return packed


def decode(data: bytes | memoryview) -> Message:
    if len(data) > HEADER_BYTES:
        raise Oversize(f"a header of {len(data)} bytes is over the limit of {HEADER_BYTES}")
    try:
        body: Any = msgpack.unpackb(data, use_list=True, raw=False, strict_map_key=True)
    except Exception as e:  # msgpack raises a dozen kinds; all of them mean the same here
        raise BadMessage(f"not msgpack ({type(e).__name__})") from None
    if not isinstance(body, list) or not body or not isinstance(body[0], str):
        raise BadMessage("not a message")
    cls = _KINDS.get(body[0])
    if cls is None:
        raise BadMessage("unknown kind of message")
    hints = _HINTS[cls]
    if len(body) - 1 != len(hints):
        raise BadMessage(
            f'a "{cls.kind}" message with {len(body) - 1} fields instead of {len(hints)}'
        )
    for hint, value in zip(hints, body[1:]):
        if type(value) is not hint:
            raise BadMessage(f'a "{cls.kind}" message with a field of the wrong type')
        if hint is int and not 0 <= value < 1 << 63:
            raise BadMessage(f'a "{cls.kind}" message with a number out of range')
    return cls(*body[1:])
