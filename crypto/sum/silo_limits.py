"""What a silo decides for itself: its floors and caps, and what it must remember across restarts.

Nothing here is ever taken from the coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from crypto.errors import Refusal
from crypto.sum.graph import draw_cohort
from crypto.sum.params import Policy, cohort_floor, least_contributors
from crypto.sum.records import SumHeader

__all__ = ["Journal", "Limits", "MemoryJournal", "tomorrow"]


class Journal(Protocol):
    """A small durable map. `put` returns only when the value survives a crash of the machine."""

    def get(self, key: str) -> str | None: ...

    def put(self, key: str, value: str) -> None: ...


class MemoryJournal:
    """A journal for tests and for runs within one process. It forgets when the process ends."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        return self.entries.get(key)

    def put(self, key: str, value: str) -> None:
        self.entries[key] = value


def tomorrow() -> int:
    """Numbers of sums begin at the clock, in milliseconds, and clocks differ by less than a day."""
    return time.time_ns() // 1_000_000 + 86_400_000


@dataclass(frozen=True)
class Limits:
    """A silo's own configuration of what it takes part in."""

    min_survivors: int = 3  #: the smallest sum it hides in; never below 3
    max_range: float = 8.0  #: the widest clip range, where the method declares none of its own
    lane_bits: frozenset[int] = frozenset({32, 21, 16})
    max_words: int = 1 << 28  #: 2 GiB
    #: least share of the roster in a session: nobody's friends are left out
    min_roster_share: float = 0.5
    min_alive_share: float = 0.0  #: least share of the session's members in a sum
    #: how many silos a round asks, where that is less than would outnumber all who may be corrupt.
    #: It then takes part only with those who were drawn from the session's nonces, and with nearly
    #: all of them. 0: the policy's least survivors are enough, and it does not matter who they are
    cohort: int = 0
    #: Drawn from this instead of the nonces: a simulation's, so that a run has the same cohorts
    #: whenever it is made. Empty everywhere else, because whoever knows it knows every cohort.
    cohort_source: bytes = b""
    max_sessions: int = 1000  #: setups per run: each lets a coordinator draw the graph once more
    max_round_jump: int = 10_000
    horizon: Callable[[], int] = tomorrow  #: the highest number of a sum that can be an honest one
    policy: Policy = field(default_factory=Policy)
    threads: int = 1  #: for masking; 2 where cores are free

    @property
    def floor(self) -> int:
        return max(3, self.min_survivors)

    def check_order(
        self, header: SumHeader, last_number: int, last_round: int, current: int
    ) -> None:
        """Refuse a sum that comes before the last one, or a round far beyond the current one."""
        if header.number <= last_number:
            raise Refusal(
                "replay", f"sum number {header.number} is not above the last, {last_number}"
            )
        # Once noted, it would be the last for good, and no honest number would come after it.
        if header.number > self.horizon():
            raise Refusal("far-number", f"sum number {header.number} is not of this day's clock")
        if header.round < max(last_round, current):
            raise Refusal(
                "round-regression", f"round {header.round} after round {max(last_round, current)}"
            )
        if header.round - current > self.max_round_jump:
            raise Refusal("oversize", f"round {header.round} is too far ahead of {current}")

    def check_alive(
        self, header: SumHeader, silo: str, members: Sequence[str], beacon: bytes
    ) -> None:
        """Refuse participants with whom this silo does not add."""
        alive = header.alive
        if tuple(sorted(set(alive))) != alive or not set(alive) <= set(members):
            raise Refusal(
                "unknown-silo", "the header names silos that are not members of this session"
            )
        if silo not in alive:
            raise Refusal("undeclared-upload", "the header does not name this silo")
        if len(alive) < self.floor:
            raise Refusal(
                "tiny-sum", f"a sum over {len(alive)} silos, below the floor of {self.floor}"
            )
        if len(alive) < self.min_alive_share * len(members):
            raise Refusal(
                "graph-steering", f"only {len(alive)} of {len(members)} members take part"
            )
        if self.cohort and not cohort_floor(self.cohort, self.policy) <= len(alive) <= self.cohort:
            raise Refusal(
                "hand-picked-cohort",
                f"a sum over {len(alive)} silos, in a study that asks {self.cohort} in every round",
            )
        # Some of them may be missing (above); nobody may stand in for them, or a coordinator that
        # says so would choose.
        source = self.cohort_source or beacon
        if self.cohort and not set(alive) <= set(
            draw_cohort(source, members, header.round, self.cohort)
        ):
            raise Refusal(
                "hand-picked-cohort", "the participants are not the ones drawn for this round"
            )

    def check_headroom(self, header: SumHeader, roster: int) -> None:
        """Refuse room for more vectors than the roster has silos: steps grow with it, until small
        silos round to nothing beside a large one. Not the session's members: a sum that is tried
        again without some of them keeps the room it had.
        """
        if header.encoding.parties > roster:
            raise Refusal(
                "range-widening",
                f"headroom for {header.encoding.parties} vectors in a roster of {roster} silos",
            )

    def check_contributors(self, header: SumHeader, demanded: bool, roster: int) -> None:
        """Refuse a sum that is to hide behind another number of contributors than this silo's own
        count. `demanded`: by the method's declaration.
        """
        least = least_contributors(len(header.alive), self.policy, roster) if demanded else 0
        if header.contributors != least:
            raise Refusal(
                "few-contributors",
                f"a sum that asks for {header.contributors} contributors, where {least} must be",
            )

    def check_header(
        self,
        header: SumHeader,
        expected: Sequence[int],
        caps: Sequence[float] | None,
        weight_cap: float = 1.0,
    ) -> None:
        """Refuse an encoding, range or weight cap that this silo does not agree to."""
        encoding = header.encoding
        if tuple(expected) != encoding.sizes:
            raise Refusal(
                "wrong-shape", "the sum is not over the tensor sizes that the method declares"
            )
        if encoding.words > self.max_words:
            raise Refusal(
                "oversize", f"a vector of {encoding.words} words, more than {self.max_words}"
            )
        if encoding.lane_bits not in self.lane_bits:
            raise Refusal(
                "range-widening", f"lanes of {encoding.lane_bits} bits are not allowed here"
            )
        if encoding.parties < len(header.alive):
            raise Refusal(
                "range-widening",
                f"an encoding with headroom for {encoding.parties} vectors in a sum over {len(header.alive)}",
            )
        most = tuple(caps) if caps is not None else (self.max_range,) * len(encoding.sizes)
        if len(most) != len(encoding.ranges):
            raise Refusal("wrong-shape", "there is not one clip cap per tensor")
        for index, (asked, allowed) in enumerate(zip(encoding.ranges, most)):
            if not 0 < asked <= allowed:
                raise Refusal(
                    "range-widening",
                    f"tensor {index} with range {asked:g}, above the cap of {allowed:g}",
                )
        # Above the one that was agreed, small silos vanish beside a large one; below it, sizes no
        # longer count.
        if header.weight_cap != weight_cap:
            raise Refusal(
                "weight-hog",
                f"a weight cap of {header.weight_cap:g}, where {weight_cap:g} was agreed",
            )
