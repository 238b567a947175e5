"""A coordinator that lies, driven by hand, over the real socket."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from crypto.numbers.encoding import Encoding
from crypto.numbers.prg import Mask, add_masks
from crypto.sum.coordinator import CoordinatorSetup
from crypto.sum.graph import Topology, topology
from crypto.sum.opening import Opening
from crypto.sum.records import (
    Endorsement,
    KeyOffer,
    NonceList,
    NonceReveal,
    Proposal,
    ShareRelease,
    SumHeader,
    UnmaskRequest,
    UploadRecord,
)
from tests.conftest import wait_for
from tests.system.puppets import Puppet
from tests.system.stage import ONES, PATIENCE, RUN, SIZE, TRAIN, Outgoing, Stage
from wire import messages as m
from wire.bundle import broadcast_digest, pack, pieces
from wire.router import Received

__all__ = ["Held", "Liar", "Turned", "refused", "same"]


class Turned(Exception):
    """A silo refused, and said so."""


@contextmanager
def refused(attack: str, log: pytest.LogCaptureFixture) -> Iterator[None]:
    """The silo says Refused with this name, and its log line has it."""
    log.clear()
    with pytest.raises(Turned) as caught:
        yield
    assert str(caught.value) == attack, [r.getMessage() for r in log.records]
    assert f"refused ({attack}): " in log.text


@dataclass
class Held:
    """What a coordinator holds of one sum before anything is opened."""

    header: SumHeader
    topology: Topology
    records: dict[str, UploadRecord] = field(default_factory=dict)
    words: dict[str, np.ndarray] = field(default_factory=dict)


class Liar:
    """A coordinator that says whatever the test tells it to, over the real socket."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.names = stage, stage.names
        self.puppets: dict[str, Puppet] = {}  #: silos in the liar's own hands
        self.round, self._number = 0, time.time_ns() // 1_000_000
        self.told: dict[str, m.Broadcast] = {}  #: what each silo was told last
        self._heard: dict[str, deque[Outgoing]] = defaultdict(deque)

    @property
    def others(self) -> tuple[str, ...]:
        """Those at the other end of a socket."""
        return tuple(name for name in self.names if name not in self.puppets)

    def pull(self, *puppets: Puppet) -> Liar:
        """These take part too, and do as the liar says; where they bear the name of another, in its
        place.
        """
        self.puppets |= {puppet.name: puppet for puppet in puppets}
        self.names = tuple(sorted({*self.names, *self.puppets}))
        return self

    # Speaking

    def say(self, silo: str, message: m.Message, payload: Any = None) -> None:
        assert self.stage.router.send(silo, message, payload), f"{silo} is gone"

    def hear(self, silo: str, kind: type[m.Message]) -> tuple[Any, Any]:
        """The silo's next message, which must be of this kind; a refusal is raised."""

        def arrived() -> bool:
            event = self.stage.router.receive(0.05)
            if isinstance(event, Received) and not isinstance(event.message, m.Hello):
                self._heard[event.silo].append((event.message, event.payload))
            return bool(self._heard[silo])

        wait_for(arrived, PATIENCE)
        message, payload = self._heard[silo].popleft()
        if isinstance(message, m.Refused) and kind is not m.Message:
            raise Turned(message.attack)
        assert isinstance(message, kind), message
        return message, payload

    def settle(self, *silos: str) -> None:
        """Until each has answered all it was told: it refuses a step that does not exist, and says
        so last.
        """
        for name in silos or self.others:
            self._number += 1
            self.say(name, m.SumStep(f"mark-{self._number}", {}))
            while f"mark-{self._number} " not in getattr(
                self.hear(name, m.Message)[0], "detail", ""
            ):
                pass

    def step(self, silo: str, step: str, record: Any) -> dict[str, Any]:
        """One question of the secure sum, and the silo's answer."""
        if silo in self.puppets:
            return self.puppets[silo].step(step, record)
        self.say(silo, m.SumStep(step, record.to_record()))
        return self.hear(silo, m.SumStep)[0].record

    # Setting up

    def offers(self, run: bytes = RUN) -> CoordinatorSetup:
        """Everybody is welcomed and has offered a key."""
        connected = self.stage.router
        wait_for(
            lambda: connected.receive(0.05) and False or set(self.others) <= connected.connected,
            PATIENCE,
        )
        self.settle()
        setup = CoordinatorSetup(self.stage.roster, run, self.stage.policy)
        for name in self.others:
            self.say(name, m.Welcome(run, 0))
        for name in self.others:
            setup.receive_offer(KeyOffer.from_record(self.hear(name, m.SumStep)[0].record))
        for puppet in self.puppets.values():
            setup.receive_offer(puppet.begin(run))
        return setup

    def enrol(self, run: bytes = RUN) -> Liar:
        self.setup = self.offers(run)
        for name in self.names:
            reveal = self.step(name, "keys", self.setup.key_list())
            self.setup.receive_reveal(NonceReveal.from_record(reveal))
        self.show(self.setup.nonce_list())
        return self

    def show(self, nonces: NonceList) -> None:
        """All nonces, to everybody; nobody answers."""
        for name in self.others:
            self.say(name, m.SumStep("nonces", nonces.to_record()))
        for name in self.puppets:
            self.step(name, "nonces", nonces)

    # One exchange

    def header(self, model: np.ndarray = ONES, **changes: Any) -> SumHeader:
        self._number += 1
        alive = changes.get("alive", self.names)
        values = {
            "sid": self.setup.sid,
            "round": self.round,
            "exchange": "train",
            "number": self._number,
            "broadcast": broadcast_digest(
                {TRAIN: (changes.get("round", self.round), pack({"model": model}).digest)}
            ),
            "alive": alive,
            "encoding": Encoding(32, len(self.names), (SIZE,), (8.0,)),
            "weight_cap": 1.0,
        }
        return SumHeader(**(values | changes))

    def tell(
        self,
        silo: str,
        asked: SumHeader | None,
        model: np.ndarray = ONES,
        alone: Mapping[str, np.ndarray] | None = None,
        **changes: Any,
    ) -> m.Broadcast:
        """`alone`: arrays that this silo is told and nobody else."""
        self._number += 1
        bundle, private = pack({"model": model}), pack(alone or {})
        encoding = (asked or self.header()).encoding
        values: dict[str, Any] = {
            "number": self._number,
            "round": asked.round if asked is not None else self.round,
            "exchange": TRAIN,
            "cohort": [int(n.rpartition("-")[2]) for n in (asked.alive if asked else self.names)],
            "common": bundle.layout,
            "private": private.layout,
            "header": asked.to_record() if asked is not None else {},
            "encoding": encoding.to_record(),
        }
        told = self.told[silo] = m.Broadcast(**(values | changes))
        self.say(silo, told)
        if told.common == bundle.layout:
            for index, piece in enumerate(pieces(bundle.buffer)):
                self.say(silo, m.Chunk(told.number, "common", index), piece)
            for index, piece in enumerate(pieces(private.buffer)):
                self.say(silo, m.Chunk(told.number, "private", index), piece)
        return told

    def ask(
        self, silo: str, asked: SumHeader | None, model: np.ndarray = ONES, **changes: Any
    ) -> None:
        """Tell a silo of an exchange that it must refuse before anything is computed."""
        self.tell(silo, asked, model, **changes)
        try:
            self.hear(silo, m.Ready)
        finally:
            self.settle(silo)

    def collect(self, silo: str, told: m.Broadcast) -> tuple[dict[str, Any], np.ndarray]:
        """The silo computes and uploads: its record, and its words."""
        self.say(silo, m.Go(told.number))
        self.hear(silo, m.Ready)
        self.say(silo, m.Send(told.number))
        record = self.hear(silo, m.SumStart)[0].record
        return record, np.frombuffer(self.hear(silo, m.Chunk)[1], "<u8").copy()

    def held(self, header: SumHeader) -> Held:
        graph = topology(
            self.setup.beacon,
            self.setup.members,
            header.alive,
            self.stage.policy,
            len(self.stage.roster),
        )
        return Held(header, graph)

    def gather(
        self,
        header: SumHeader | None = None,
        models: dict[str, np.ndarray] | None = None,
        alone: Mapping[str, Mapping[str, np.ndarray]] | None = None,
        **changes: Any,
    ) -> Held:
        """Everybody alive has uploaded; nothing is open. Puppets upload zeros."""
        header = header or self.header()
        held = self.held(header)
        asked = [name for name in header.alive if name not in self.puppets]
        told = {
            name: self.tell(
                name, header, (models or {}).get(name, ONES), (alone or {}).get(name), **changes
            )
            for name in asked
        }
        for name in header.alive:
            if name in self.puppets:
                record, held.words[name] = self.puppets[name].upload(header)
            else:
                record, held.words[name] = self.collect(name, told[name])
            held.records[name] = UploadRecord.from_record(record)
        return held

    def proposal(self, held: Held, holder: str, survivors: Sequence[str]) -> Proposal:
        words = self.words(held, survivors)
        return Proposal(
            held.header.h, tuple(survivors), self._dealt(held, holder, survivors), words
        )

    def words(self, held: Held, survivors: Sequence[str]) -> tuple[tuple[str, bytes], ...]:
        """Of the survivors that signed that they contribute."""
        said = ((name, held.records[name].word) for name in survivors if name in held.records)
        return tuple((name, word) for name, word in said if word)

    def _dealt(
        self, held: Held, holder: str, survivors: Sequence[str]
    ) -> tuple[tuple[str, bytes], ...]:
        there = [d for d in survivors if d in held.records]
        return tuple((d, blob) for d in there for to, blob in held.records[d].blobs if to == holder)

    def certify(
        self, held: Held, survivors: Sequence[str], signers: Sequence[str] = ()
    ) -> tuple[Endorsement, ...]:
        asked = signers or [n for n in held.header.alive if n in survivors]  # nobody else signs
        given = (self.step(name, "propose", self.proposal(held, name, survivors)) for name in asked)
        return tuple(map(Endorsement.from_record, given))

    def request(
        self, held: Held, holder: str, survivors: Sequence[str], signed: tuple[Endorsement, ...]
    ) -> UnmaskRequest:
        return UnmaskRequest(
            held.header.h, tuple(survivors), signed, self._dealt(held, holder, survivors)
        )

    def open(
        self,
        held: Held,
        survivors: Sequence[str],
        signed: tuple[Endorsement, ...],
        holders: Sequence[str] = (),
    ) -> Opening:
        """What the holders release for a certified set."""
        opening = Opening(held.header.h, held.topology, tuple(survivors), held.records)
        for holder in holders or [n for n in held.header.alive if n in survivors]:
            released = self.step(holder, "unmask", self.request(held, holder, survivors, signed))
            opening.receive(ShareRelease.from_record(released))
        return opening

    def stripped(
        self, held: Held, survivors: Sequence[str], seeds: Iterable[tuple[bytes, int]]
    ) -> np.ndarray:
        """The sum of these uploads, without these masks, as words."""
        total = np.stack([held.words[name] for name in survivors]).sum(axis=0, dtype=np.uint64)
        add_masks(total, [Mask(seed, -sign) for seed, sign in seeds])
        return total

    def unmasked(
        self, held: Held, survivors: Sequence[str], seeds: Iterable[tuple[bytes, int]]
    ) -> np.ndarray:
        return held.header.encoding.decode(self.stripped(held, survivors, seeds), len(survivors))[
            -1
        ]

    def sum(self, held: Held, survivors: Sequence[str] = ()) -> np.ndarray:
        """From the uploads to the sum, the way it is meant."""
        survivors = survivors or held.header.alive
        opening = self.open(held, survivors, self.certify(held, survivors))
        return self.unmasked(held, survivors, opening.seeds())

    def all_is_well(self) -> None:
        """Whatever was tried before, the silos live, and a legal sum over all of them comes out
        right.
        """
        self.settle()
        self.round += 1
        held = self.gather()
        assert np.array_equal(self.sum(held), self.stage.plain(held.header.encoding, self.names))
        assert not self.stage.crashes


def same(one: np.ndarray, other: np.ndarray | int) -> bool:
    """Equal up to what the encoding rounds away."""
    return bool(np.abs(one - other).max() < 1e-6)
