"""Who is joined to whom, and who keeps shares: drawn from the session's nonces, so that nobody can
steer it.

The beacon is a hash of the session id and of all nonces, each of which was committed to before any
was shown. The order of the ring, the committee and the cohorts come from it and from nothing that a
coordinator may still choose (a header can be ground; a beacon cannot). The ring is over the
session's *members*: a coordinator that names fewer silos alive leaves empty places and moves nobody
closer together, and every stretch of the ring must then still hold enough. Where it does not, the
graph over those alive is complete: dearer, and nothing to steer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from crypto.derive import Label, digest, number
from crypto.errors import Refusal
from crypto.sum.params import Parameters, Policy, parameters

__all__ = ["Topology", "beacon", "draw_cohort", "topology"]


def beacon(sid: bytes, nonces: dict[str, bytes]) -> bytes:
    """What is drawn from: the session id and every member's nonce, in order of names."""
    return digest(
        Label.BEACON,
        sid,
        *(part for name in sorted(nonces) for part in (name.encode(), nonces[name])),
    )


def _drawn(label: Label, source: bytes, members: Collection[str], *more: bytes) -> list[str]:
    return sorted(members, key=lambda name: digest(label, source, *more, name.encode()))


def draw_cohort(source: bytes, members: Collection[str], round: int, size: int) -> tuple[str, ...]:
    """A round's participants, drawn from the beacon: every silo can check that nobody picked
    them.
    """
    return tuple(sorted(_drawn(Label.COHORT, source, members, number(round))[:size]))


@dataclass(frozen=True)
class Topology:
    """The graph and the holders of one sum."""

    parameters: Parameters
    alive: tuple[str, ...]  #: sorted
    ring: tuple[str, ...]  #: the members in ring order; of use only when the graph is not complete
    #: in order of their share points; a holder that is not alive keeps its point
    holders: tuple[str, ...]

    @cached_property
    def _alive(self) -> frozenset[str]:
        return frozenset(self.alive)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.ring)}

    @cached_property
    def point(self) -> dict[str, int]:
        """Holder -> index of its share (the point is one more)."""
        return {name: index for index, name in enumerate(self.holders)}

    @cached_property
    def _known(self) -> dict[str, tuple[str, ...]]:
        return {}

    def neighbours(self, silo: str) -> tuple[str, ...]:
        """Those alive that `silo` shares a mask with, sorted."""
        if silo not in self._known:
            self._known[silo] = self._find_neighbours(silo)
        return self._known[silo]

    def _find_neighbours(self, silo: str) -> tuple[str, ...]:
        if self.parameters.complete:
            return tuple(name for name in self.alive if name != silo)
        place, count = self._places[silo], len(self.ring)
        around = (self.ring[(place + step) % count] for step in self._steps)
        return tuple(sorted(name for name in around if name in self._alive))

    @property
    def _steps(self) -> tuple[int, ...]:
        w = self.parameters.stretch
        return (*range(-w, 0), *range(1, w + 1))

    def thinnest(self, present: Collection[str]) -> int:
        """The fewest of `present` in any stretch of the ring."""
        here = [name in present for name in self.ring]
        w = self.parameters.stretch
        held = sum(here[:w])
        least = held
        for at in range(len(here) - 1):
            held += here[(at + w) % len(here)] - here[at]
            least = min(least, held)
        return least

    def check_survivors(self, survivors: tuple[str, ...], floor: int) -> None:
        """Refuse a survivor set that is too small, not of this sum, or that leaves a gap in the
        ring.
        """
        if tuple(sorted(set(survivors))) != survivors or not self._alive.issuperset(survivors):
            raise Refusal(
                "split-view",
                "the survivors are not a sorted subset of the silos this sum began with",
            )
        least = max(self.parameters.threshold, self.parameters.n_min, floor)
        if len(survivors) < least:
            raise Refusal("tiny-sum", f"{len(survivors)} survivors, below the floor of {least}")
        if not self.parameters.complete:
            thinnest = self.thinnest(frozenset(survivors))
            if thinnest < self.parameters.gap:
                raise Refusal(
                    "ring-gap",
                    f"a stretch of {self.parameters.stretch} places of the ring holds {thinnest} survivors,"
                    f" fewer than {self.parameters.gap}",
                )


def topology(
    source: bytes, members: Collection[str], alive: tuple[str, ...], policy: Policy, roster: int
) -> Topology:
    """The graph and holders of a sum over `alive`, the same at every party. `roster` is how many
    silos there are.

    Raises ValueError when those alive could not outvote the corrupt.
    """
    if len(members) > policy.complete_up_to and len(alive) > policy.complete_up_to:
        full = parameters(len(members), policy, roster)
        committee = _drawn(Label.COMMITTEE, source, members)[: full.holders]
        if not full.complete:
            made = Topology(
                full, alive, tuple(_drawn(Label.RING, source, members)), tuple(committee)
            )
            present = frozenset(alive)
            holding = sum(name in present for name in committee)
            # Missing silos leave holes: a ring serves only while every stretch holds enough, and t
            # holders are there.
            if made.thinnest(present) >= full.gap and holding >= full.threshold:
                return made
    return Topology(parameters(len(alive), policy, roster, False), alive, alive, alive)
