"""A whole consortium in one process: silos, coordinator, and the messages between them, for tests
and benches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crypto.identity.keys import Identity
from crypto.numbers.encoding import Encoding
from crypto.sum.coordinator import CoordinatorSetup, OpenSum
from crypto.sum.params import Policy
from crypto.sum.plain import PlainSum
from crypto.sum.records import SumHeader
from crypto.sum.silo import Limits, MemoryJournal, SiloSum

RUN = b"r" * 16
BROADCAST = hashlib.sha256(b"the model").digest()


def dice(seed: str) -> Callable[[int], bytes]:
    """Reproducible randomness for a test: never the same bytes twice, the same in every run."""
    count = 0

    def draw(size: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_128(f"{seed}/{count}".encode()).digest(size)

    return draw


def names(n: int) -> tuple[str, ...]:
    return tuple(f"silo-{i:03d}" for i in range(n))


class World:
    def __init__(
        self, n: int, seed: str = "0", policy: Policy | None = None, limits: Limits | None = None
    ) -> None:
        self.policy = policy or Policy()
        self.limits = limits or Limits(policy=self.policy)
        self.names = names(n)
        self.identities = {
            name: Identity.generate(dice(f"{seed}/id/{name}")) for name in self.names
        }
        self.roster = {name: identity.public for name, identity in self.identities.items()}
        self.journals = {name: MemoryJournal() for name in self.names}
        self.silos = {
            name: SiloSum(
                name,
                self.identities[name],
                roster=self.roster,
                run_id=RUN,
                limits=self.limits,
                journal=self.journals[name],
                random=dice(f"{seed}/{name}"),
            )
            for name in self.names
        }
        self.setup = CoordinatorSetup(self.roster, RUN, self.policy)
        self.number = 0

    def enrol(self) -> World:
        for silo in self.silos.values():
            self.setup.receive_offer(silo.offer())
        keys = self.setup.key_list()
        for silo in self.silos.values():
            self.setup.receive_reveal(silo.receive_keys(keys))
        nonces = self.setup.nonce_list()
        for silo in self.silos.values():
            silo.receive_nonces(nonces)
        return self

    def header(
        self, encoding: Encoding, alive: Sequence[str] | None = None, **changes: object
    ) -> SumHeader:
        self.number += 1
        values: dict = {
            "sid": self.setup.sid,
            "round": 0,
            "exchange": "train",
            "number": self.number,
            "broadcast": BROADCAST,
            "alive": tuple(sorted(alive or self.names)),
            "encoding": encoding,
            "weight_cap": 1.0,
        }
        return SumHeader(**(values | changes))

    def begin(self, header: SumHeader) -> OpenSum:
        for name in header.alive:
            self.silos[name].begin(
                header,
                header.broadcast,
                header.encoding.sizes,
                contributors=bool(header.contributors),
            )
        return OpenSum(header, self.setup)

    def upload(
        self,
        open_sum: OpenSum,
        name: str,
        tensors: Sequence[np.ndarray],
        frames: int | None = None,
        contributes: bool = True,
    ) -> None:
        """A silo's upload; with `frames`, it dies after so many."""
        silo = self.silos[name]
        record, stream = silo.upload(tensors, name.encode(), contributes)
        open_sum.begin_upload(record)
        for index, words in enumerate(stream):
            if index == frames:
                open_sum.lost(name)
                return
            open_sum.add_frame(name, index, words)
        open_sum.finish_upload(name)

    def whole(
        self,
        encoding: Encoding,
        vectors: dict[str, list[np.ndarray]],
        dead: Sequence[str] = (),
        **changes: Any,
    ) -> tuple[tuple[str, ...], Sequence[np.ndarray]]:
        """One sum from header to result; those in `dead` die before their upload."""
        open_sum = self.begin(self.header(encoding, **changes))
        for name in open_sum.header.alive:
            if name in dead:
                open_sum.lost(name)
            else:
                self.upload(open_sum, name, vectors[name])
        return self.finish(open_sum, dead)

    def finish(
        self, open_sum: OpenSum, dead: Sequence[str] = ()
    ) -> tuple[tuple[str, ...], Sequence[np.ndarray]]:
        proposals = open_sum.propose()
        for name in open_sum.reachable:
            if name not in dead:
                open_sum.receive_endorsement(self.silos[name].endorse(proposals[name]))
        for name, request in open_sum.unmask_requests().items():
            if name not in dead:
                open_sum.receive_release(self.silos[name].release(request))
        return open_sum.result()


def plain(
    encoding: Encoding, vectors: dict[str, list[np.ndarray]], survivors: Sequence[str]
) -> Sequence[np.ndarray]:
    total = PlainSum(encoding)
    for name in survivors:
        total.add(encoding.encode(vectors[name], name.encode()))
    return total.result()


def vectors(
    world_names: Sequence[str], sizes: Sequence[int], seed: int = 0
) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {
        name: [rng.normal(0, 0.5, size).astype(np.float32) for size in sizes]
        for name in world_names
    }
