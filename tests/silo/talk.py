"""A silo with a toy method, and what leads its conversation into each state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from config.settings import Settings
from methods.base import (
    Answer,
    ArraySpec,
    Broadcast,
    Disclosure,
    Exchange,
    Heard,
    Method,
    SiloView,
    State,
)
from silo.gate import Gate
from silo.memory import MemoryFile
from silo.session import Session
from silo.session import State as S
from wire import messages as m
from wire.bundle import pack

TOLD = Disclosure("number", "masked", "one number", "nothing", "none")
SEALED = Disclosure("note", "sealed", "some numbers", "them", "none")


def _method(answer: Callable[[SiloView, Heard], Answer], **changes: Any) -> Method:
    fields: dict[str, Any] = {
        "name": "say",
        "disclosures": (TOLD, SEALED),
        "broadcast": lambda state, round, cohort: Broadcast({}),
        "answer": answer,
        "fold": lambda state, folded: state,
        "masked": {"number": ArraySpec((2,))},
        "sealed": {"note": ArraySpec((None,), "uint8")},
    }
    return Method("toy", "nobody", (Exchange(**(fields | changes)),), lambda seed: State({}))


def _good(silo: SiloView, heard: Heard) -> Answer:
    return Answer(
        {"number": np.zeros(2, np.float32)},
        {"note": np.zeros(3, np.uint8)},
        carry={"seen": heard.round},
    )


def new_gate(
    answer: Callable[[SiloView, Heard], Answer] = _good, path: Path | None = None, **changes: Any
) -> Gate:
    nothing: Any = None  # neither task nor data is looked at
    view = SiloView(0, nothing, nothing, Settings(), b"")
    return Gate(view, _method(answer, **changes), MemoryFile(path))


def new_session(gate: Gate | None = None) -> Session:
    return Session(
        gate or new_gate(),
        new_party=None,
        rounding_seed=lambda r, e: b"",
        broadcast_limit=1 << 20,
        hello=m.Hello("0", b""),
    )


def told(number: int, **changes: Any) -> m.Broadcast:
    bundle = pack({"model": np.arange(3, dtype=np.float32)})
    encoding = {
        "lane_bits": 32,
        "parties": 1,
        "sizes": [2],
        "ranges": [1.0],
        "rounding": "nearest",
        "rotate": False,
    }
    fields: dict[str, Any] = {
        "number": number,
        "round": 0,
        "exchange": 0,
        "cohort": [0],
        "common": bundle.layout,
        "private": [],
        "header": {},
        "encoding": encoding,
    }
    return m.Broadcast(**(fields | changes))


PIECE = np.asarray(pack({"model": np.arange(3, dtype=np.float32)}).buffer).data


def say(session: Session, message: m.Message, payload: Any = None) -> list[m.Message]:
    return [x for x, _ in session.hear(message, payload)]


#: What leads from the greeting to each state.
PATHS: dict[S, list[tuple[m.Message, Any]]] = {S.GREETED: []}
PATHS[S.IDLE] = [(m.Welcome(b"r" * 32, 0), None)]
PATHS[S.HEARING] = [*PATHS[S.IDLE], (told(1), None)]
PATHS[S.TOLD] = [*PATHS[S.HEARING], (m.Chunk(1, "common", 0), PIECE)]
PATHS[S.READY] = [*PATHS[S.TOLD], (m.Go(1), None)]
PATHS[S.SENT] = [*PATHS[S.READY], (m.Send(1), None)]
PATHS[S.STOPPED] = [(m.Stop("over"), None)]
