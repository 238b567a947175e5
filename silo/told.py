"""What a silo has been told: one exchange as it was announced, and the round that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from crypto.derive import Label, digest
from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.sum.records import SumHeader
from methods.base import Exchange, Heard, silo_name
from wire import messages as m
from wire.bundle import Bundle, Inbox, broadcast_digest

__all__ = ["Told", "ToldRound"]


class Told:
    """One exchange as the coordinator announced it, and its arrays as far as they have arrived."""

    def __init__(
        self, message: m.Broadcast, common: Inbox, limit: int, folder: Path | None = None
    ) -> None:
        self.message = message
        self._inboxes = [("common", common), ("private", Inbox(message.private, limit, folder))]

    @property
    def complete(self) -> bool:
        return all(box.complete for _, box in self._inboxes)

    @property
    def common(self) -> Bundle:
        return self._inboxes[0][1].bundle()

    @cached_property
    def digest(self) -> bytes:
        """Of the common arrays, once they are all here: it takes a pass over them."""
        assert self.complete
        return self.common.digest

    @property
    def payload_hash(self) -> bytes:
        return self.digest + self._inboxes[1][1].bundle().digest

    def add(self, message: m.Chunk, payload: Any) -> None:
        inbox = next((box for stream, box in self._inboxes if not box.complete), None)
        stream = next((stream for stream, box in self._inboxes if not box.complete), "")
        if inbox is None or message.stream != stream or payload is None:
            raise Refusal(
                "wrong-shape", f"a piece of {message.stream[:20]!r} where {stream!r} was announced"
            )
        inbox.add(message.index, payload)

    def heard(self, context: bytes) -> Heard:
        """All of it, for the method."""
        return Heard(
            round=self.message.round,
            cohort=tuple(self.message.cohort),
            common=self._inboxes[0][1].arrays(),
            private=self._inboxes[1][1].arrays(),
            context=context,
        )

    def encoding(self, header: SumHeader | None, exchange: Exchange) -> Encoding | None:
        """Of the exchange's sum, also of one that nothing masks (SECAGG=off): rounding is the same."""
        if header is not None:
            return header.encoding
        return Encoding.from_record(self.message.encoding) if exchange.masked else None

    def header(self, exchange: str) -> SumHeader:
        """The sum's header: it must be there, of the exchange that was told, over those silos."""
        if not self.message.header:
            raise Refusal(
                "channel-downgrade", f"{exchange} is masked and was asked for in the clear"
            )
        header = SumHeader.from_record(self.message.header)
        _check_told(self.message, header, exchange)
        return header


def _check_told(told: m.Broadcast, header: SumHeader, exchange: str) -> None:
    if (header.round, header.exchange) != (told.round, exchange):
        raise Refusal("round-regression", "the sum's header names another exchange")
    if sorted(map(silo_name, told.cohort)) != list(header.alive):
        raise Refusal("model-inconsistency", "the cohort told is not the one that the sum is over")


class ToldRound:
    """What is kept from one exchange of a round to the next."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: where large arrays wait; None: in memory."""
        self._folder = folder
        self.number: int | None = None
        #: Exchange -> digest and common arrays of this round, so that they need not come a second
        #: time. One for each exchange that the method has: told again, the last one counts.
        self._held: dict[int, tuple[bytes, Bundle]] = {}
        #: Exchange -> (round, digest) of the broadcast it was answered on, while the gate may carry
        #: something of it.
        self._answered: dict[int, tuple[int, bytes]] = {}

    @property
    def held(self) -> list[bytes]:
        return sorted(digest for digest, _ in self._held.values())

    @property
    def answered(self) -> list[list[int]]:
        return [[round, exchange] for exchange, (round, _) in sorted(self._answered.items())]

    @property
    def answers(self) -> dict[int, bytes]:
        """Exchange -> digest of the broadcast that it was answered on."""
        return {k: digest for k, (_, digest) in sorted(self._answered.items())}

    def restore(self, number: int, answers: Mapping[int, bytes]) -> None:
        """What a process of this silo that was killed had answered."""
        self.number = number
        self._answered = {k: (number, digest) for k, digest in answers.items()}

    def hold(self, told: Told) -> None:
        if len(told.common.buffer):
            self._held[told.message.exchange] = (told.digest, told.common)

    def inbox(self, message: m.Broadcast, limit: int) -> Inbox:
        """For the common arrays of a broadcast: one that is full where this silo holds them."""
        if not message.have:
            return Inbox(message.common, limit, self._folder)
        held = dict(self._held.values()).get(message.have)
        if held is None or held.layout != message.common or held.digest != message.have:
            raise Refusal(
                "wrong-shape", "the coordinator did not send arrays that this silo does not hold"
            )
        return Inbox.of(held)

    def ask_again(self, exchange: int) -> None:
        """Asked for an exchange again, a silo starts from what came before it and nothing else."""
        self._answered = {k: v for k, v in self._answered.items() if k < exchange}

    def note_answered(self, told: Told) -> None:
        self._answered[told.message.exchange] = (told.message.round, told.digest)

    def digest_with(self, told: Told) -> bytes:
        """Hash of all broadcasts that an answer to this one stands on."""
        now = (told.message.round, told.digest)
        return broadcast_digest({**self._answered, told.message.exchange: now})

    def context(self, told: Told, run: bytes | None) -> bytes:
        """What a statement made in answer to this one is bound to."""
        return digest(Label.HEARD, run or b"", self.digest_with(told))

    def over(self) -> None:
        self._answered.clear()
        self._held.clear()
