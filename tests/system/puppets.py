"""Silos in a lying coordinator's own hands: corrupt ones, made-up ones, and its own in the place of
another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crypto.derive import Label, derive
from crypto.identity.keys import Identity
from crypto.sum.params import Policy
from crypto.sum.records import KeyOffer, SumHeader, agreement
from crypto.sum.silo import SiloSum
from crypto.sum.silo_limits import Limits, MemoryJournal

__all__ = ["Puppet"]


class Puppet:
    """The silo's own state machine, without a socket and with nothing to hide. It uploads zeros."""

    def __init__(
        self, name: str, identity: Identity, roster: Mapping[str, bytes], policy: Policy
    ) -> None:
        self.name, self.identity = name, identity
        self._roster, self._policy = dict(roster), policy

    def begin(self, run: bytes) -> KeyOffer:
        """A new session. It signs what the honest sign: their policy and their roster."""
        roster = self._roster | {self.name: self.identity.public}
        self.sum = SiloSum(
            self.name,
            self.identity,
            roster=roster,
            run_id=run,
            limits=Limits(policy=self._policy),
            journal=MemoryJournal(),
        )
        self.sum._setup._agreed = agreement(self._policy.digest, self._roster)
        return self.sum.offer()

    def step(self, step: str, record: Any) -> dict[str, Any]:
        if step == "nonces":
            self.sum.receive_nonces(record)
            return {}
        steps: dict[str, Callable[[Any], Any]] = {
            "keys": self.sum.receive_keys,
            "propose": self.sum.endorse,
            "unmask": self.sum.release,
        }
        answer: dict[str, Any] = steps[step](record).to_record()
        return answer

    def upload(self, header: SumHeader) -> tuple[dict[str, Any], np.ndarray]:
        self.sum.begin(
            header, header.broadcast, header.encoding.sizes, weight_cap=header.weight_cap
        )
        record, frames = self.sum.upload(
            [np.zeros(size, np.float32) for size in header.encoding.sizes]
        )
        return record.to_record(), next(frames).copy()

    def edge(self, header: SumHeader, other: str) -> bytes:
        """The seed it shares with another silo in this sum."""
        return derive(self.sum._pairs[other], Label.EDGE, header.h, length=16)
