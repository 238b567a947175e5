"""A silo among the silos of its roster, in one run: what it can prove to them, and check of them,
where every word goes through a coordinator that may lie.

Everything is bound to the run and to the identities of all its silos, in order. So what one silo
signed in one run says nothing in another one, nor in another consortium.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache

from crypto.derive import Label, digest
from crypto.errors import Refusal
from crypto.identity.keys import Identity, verify
from crypto.sum.silo_limits import Journal, MemoryJournal

__all__ = ["Peers"]


class Peers:
    def __init__(
        self,
        index: int,
        identity: Identity,
        identities: Sequence[bytes],
        run: Callable[[], bytes],
        journal: Journal,
    ) -> None:
        """`identities`: the pinned ones, by silo. `run`: which run it is, known once this silo was
        welcomed. `journal`: where it is written down what the others were given.
        """
        if identities[index] != identity.public:
            raise ValueError(f"silo {index} of the roster has another identity")
        self.index, self._identity, self._identities = index, identity, tuple(identities)
        self._run, self._journal = run, journal

    @classmethod
    def simulated(cls, seed: int, index: int, silos: int) -> Peers:
        """With identities made of a run's seed: right in a simulation and nowhere else."""
        made = _seeded(seed, silos)
        identities = [identity.public for identity in made]
        return cls(index, made[index], identities, lambda: b"", MemoryJournal())

    @property
    def silos(self) -> int:
        return len(self._identities)

    @property
    def context(self) -> bytes:
        return digest(Label.PEERS, self._run(), *self._identities)

    def own(self, *parts: bytes) -> bytes:
        """32 bytes of this silo's own for this run, the same after a restart. Never sent."""
        return self._identity.own(self.context, *parts)

    def sign(self, label: str, *parts: bytes) -> bytes:
        return self._identity.sign(label, self.context, *parts)

    def signed(self, index: int, signature: bytes, label: str, *parts: bytes) -> bool:
        """Whether that silo signed exactly this, in this run."""
        known = 0 <= index < self.silos
        return known and verify(self._identities[index], signature, label, self.context, *parts)

    def count(self, index: int, batch: bytes, queries: int, most: int) -> None:
        """Write down that this silo was given so many answers; refuse where that is more than
        `most` in a run. The same batch once more costs nothing: its answer is the same.
        """
        key = f"oprf/{self.context.hex()}/{index}"
        total, _, last = (self._journal.get(key) or "0 ").partition(" ")
        if last == batch.hex():
            return
        if int(total) + queries > most:
            raise Refusal(
                "oprf-quota",
                f"silo {index} asks for {queries} names more, has had {total}, and may have {most} in a run",
            )
        self._journal.put(key, f"{int(total) + queries} {batch.hex()}")


@lru_cache(maxsize=8)
def _seeded(seed: int, silos: int) -> tuple[Identity, ...]:
    words = (f"sottovoce simulated silo/{seed}/{i}" for i in range(silos))
    return tuple(Identity(hashlib.sha256(w.encode()).digest()) for w in words)
