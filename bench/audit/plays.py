"""One run of a study listened to, and one of its exchanges played again: with keys of the caller's
choice, noise of a chosen size, or a record that is never sampled.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from crypto.numbers.encoding import Encoding
from methods.base import Answer, Arrays, Exchange, Heard, Method, SiloView
from privacy.events import Event, Free, NonPrivate
from privacy.noise import SecretStream
from silo.gate import Gate
from silo.ledger import Budget, Ledger
from silo.memory import MemoryFile
from study.prepare import Study

__all__ = [
    "VICTIM",
    "WHOLE",
    "Call",
    "OpenLedger",
    "Stage",
    "as_coded",
    "key_of",
    "listened",
    "named",
    "never_sampled",
    "noise_of",
    "patched",
    "step_of",
]

VICTIM = 0  #: the silo that is attacked
WHOLE = ("rounded_normal", "discrete_normal")  #: of `SecretStream`: noise in whole numbers
#: `SecretStream.wide_normal`, and what there was before it
_NOISE = ("normal", "box_muller", "wide_normal", *WHOLE)


def key_of(*parts: object) -> bytes:
    return hashlib.sha256("/".join(map(str, parts)).encode()).digest()


@dataclass(frozen=True)
class Call:
    """What the victim was asked in the run that was listened to."""

    index: int
    heard: Heard
    encoding: Encoding | None
    memory: Arrays
    charged: tuple[tuple[str, Event], ...]


class OpenLedger(Ledger):
    """Writes down what is charged, and never refuses."""

    def __init__(self) -> None:
        super().__init__(None, Budget())
        self.seen: list[tuple[str, Event]] = []

    def charge(self, round: int, exchange: str, disclosure: str, event: Event) -> None:
        if not isinstance(event, Free | NonPrivate):
            self.seen.append((disclosure, event))

    def drain(self) -> list[dict[str, Any]]:
        return []


def listened(study: Study) -> list[Call]:
    """One run, and what its first silo was asked and charged."""
    calls: list[Call] = []
    charged: list[tuple[str, Event]] = []
    answer, charge = Gate.answer, Ledger.charge

    def heard_by(gate: Gate, index: int, heard: Heard, key: bytes, encoding: Any = None) -> Answer:
        charged.clear()
        memory = dict(gate._view.memory)
        said = answer(gate, index, heard, key, encoding)
        if gate._view.index == VICTIM:
            calls.append(Call(index, heard, encoding, memory, tuple(charged)))
        return said

    def written(ledger: Ledger, round: int, exchange: str, what: str, event: Event) -> None:
        charge(ledger, round, exchange, what, event)
        if not isinstance(event, Free | NonPrivate):
            charged.append((what, event))

    listening = patched(Gate, answer=heard_by), patched(Ledger, charge=written)
    with tempfile.TemporaryDirectory() as folder, listening[0], listening[1]:
        if run_inprocess(Path(folder), study) != 0:
            raise UserError("The study of this audit does not finish; raise EPSILON.")
    return calls


@contextmanager
def patched(where: Any, **changes: Any) -> Iterator[None]:
    kept = {name: getattr(where, name) for name in changes}
    for name, value in changes.items():
        setattr(where, name, value)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(where, name, value)


@contextmanager
def noise_of(value: int, drawn: set[str] | None = None) -> Iterator[None]:
    """Every noisy number gets this much of its noise's unit, and no chance."""

    def constant(name: str) -> Callable[..., np.ndarray]:
        def draw(self: SecretStream, n: int, *_: Any) -> np.ndarray:
            if drawn is not None:
                drawn.add(name)
            if name == "wide_normal":
                return np.full(n, value << 22, np.int64)
            return np.full(n, value, np.int64 if name in WHOLE else np.float32)

        return draw

    with patched(SecretStream, **{k: constant(k) for k in _NOISE if hasattr(SecretStream, k)}):
        yield


@contextmanager
def never_sampled(record: int, records: int) -> Iterator[None]:
    uniform = SecretStream.uniform

    def draw(self: SecretStream, n: int) -> np.ndarray:
        drawn = uniform(self, n)
        if n == records:
            drawn[record] = 2.0
        return drawn

    with patched(SecretStream, uniform=draw):
        yield


class Stage:
    """Plays one call of the run, with keys of the caller's choice."""

    def __init__(self, study: Study, calls: list[Call], call: Call) -> None:
        self.study, self.call = study, call
        self.exchange: Exchange = study.method.exchanges[call.index]
        # what an exchange carries to the next is made anew, from the same broadcasts
        self._before = [
            c for c in calls if c.heard.round == call.heard.round and c.index < call.index
        ]
        self.purposes: set[str] = set()
        #: those of which noise is made; all else that is secret (dropout) the adversary may know
        self.noisy: set[str] = set()
        self.charged: list[tuple[str, Event]] = []

    def _view(self, data: Any, key: Callable[[str], bytes]) -> SiloView:
        def secret(round: int, purpose: str) -> bytes:
            self.purposes.add(purpose)
            return key(purpose)

        view = SiloView(VICTIM, self.study.task, data, self.study.settings, b"audit")
        return replace(view, secret_bytes=secret)

    def keys(self, play: object) -> Callable[[str], bytes]:
        return lambda purpose: key_of(play if purpose in self.noisy else "known", purpose)

    def play(self, data: Any, key: Callable[[str], bytes], method: Method | None = None) -> Answer:
        ledger, first = OpenLedger(), (self._before or [self.call])[0]
        gate = Gate(self._view(data, key), method or self.study.method, MemoryFile(None), ledger)
        gate._view = replace(gate._view, memory=first.memory)
        for c in self._before:
            gate.answer(c.index, c.heard, b"", c.encoding)
        ledger.seen.clear()
        held = gate._view.memory
        answer = gate.answer(self.call.index, self.call.heard, b"", self.call.encoding)
        self.charged = ledger.seen
        # what the silo keeps is taken off its answer, and may be a release all the same
        kept = gate._view.memory
        return answer if kept is held else replace(answer, memory=kept)


def named(answer: Answer) -> dict[str, np.ndarray]:
    kept = answer.memory or {}
    return {
        **{f"masked {k}": v for k, v in answer.masked.items()},
        **{f"sealed {k}": v for k, v in answer.sealed.items()},
        **{f"kept {k}": v for k, v in kept.items()},
    }


def step_of(call: Call) -> float:
    return max(call.encoding.ranges) / call.encoding.steps if call.encoding is not None else 0.0


def as_coded(call: Call, answer: Answer, names: list[str]) -> np.ndarray:
    """What is left when all others' vectors are taken off the sum: the silo's own, in the sum's steps.
    What is not in a sum is as it was sent.
    """
    said = named(answer)
    if call.encoding is not None and answer.masked:
        frames = call.encoding.encode(list(answer.masked.values()), b"audit")
        flats = call.encoding.decode(np.concatenate([f.copy() for f in frames]), 1)
        said |= {f"masked {name}": flat for name, flat in zip(answer.masked, flats)}
    return np.concatenate([np.ravel(said[n]) for n in names])
