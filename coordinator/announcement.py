"""What the silos of one exchange are told: its arrays, and how their answers are to be coded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coordinator.exchange import Call
from crypto.numbers.encoding import Encoding
from crypto.sum.coordinator_setup import CoordinatorSetup
from crypto.sum.params import least_contributors
from crypto.sum.records import SumHeader
from methods.base import silo_name
from wire import messages as m
from wire.bundle import Bundle, pieces
from wire.router import Router

__all__ = ["Announcement"]

_EMPTY = Bundle([], np.empty(0, np.uint8))


@dataclass(frozen=True, kw_only=True)
class Announcement:
    call: Call
    number: int
    cohort: tuple[int, ...]
    common: Bundle
    private: Mapping[int, Bundle]
    header: SumHeader | None
    encoding: Encoding | None

    @classmethod
    def of(
        cls,
        call: Call,
        setup: CoordinatorSetup | None,
        *,
        number: int,
        cohort: tuple[int, ...],
        common: Bundle,
        private: Mapping[int, Bundle],
        broadcast: bytes,
    ) -> Announcement:
        """`setup`: of the session, where sums are secure. `broadcast`: what the masks are bound
        to.
        """
        encoding = call.encoding() if call.exchange.masked else None
        header: SumHeader | None = None
        if encoding is not None and setup is not None:
            header = SumHeader(
                sid=setup.sid,
                round=call.round,
                exchange=call.exchange.name,
                number=number,
                broadcast=broadcast,
                alive=tuple(sorted(silo_name(i) for i in cohort)),
                encoding=encoding,
                weight_cap=float(call.exchange.weight_cap),
                contributors=least_contributors(len(cohort), setup.policy, len(setup.roster))
                if call.exchange.contributors
                else 0,
            )
        return cls(
            call=call,
            number=number,
            cohort=cohort,
            common=common,
            private=private,
            header=header,
            encoding=encoding,
        )

    @cached_property
    def digest(self) -> bytes:
        return self.common.digest

    def tell(self, router: Router, silo: str, index: int, has: set[bytes]) -> None:
        """`has`: digests of the common arrays that the silo holds already; they are not sent."""
        private = self.private.get(index, _EMPTY)
        held = self.digest in has
        announced = m.Broadcast(
            number=self.number,
            round=self.call.round,
            exchange=self.call.index,
            cohort=list(self.cohort),
            common=self.common.layout,
            private=private.layout,
            header=self.header.to_record() if self.header is not None else {},
            encoding=self.encoding.to_record() if self.encoding is not None else {},
            have=self.digest if held else b"",
        )
        router.send(silo, announced)
        for stream, bundle in (("common", _EMPTY if held else self.common), ("private", private)):
            for k, piece in enumerate(pieces(bundle.buffer)):
                router.send(silo, m.Chunk(self.number, stream, k), piece, channel="broadcast")
        if len(self.common.buffer):
            has.add(self.digest)
