"""A silo's side of the conversation, as a state machine without I/O.

`hear` takes one message and yields what to send back; sockets live in silo.process. The table in
silo.states lists what may be heard in which state; everything else is refused and logged, and the
session goes on. The secure sum's own rules (what to sign, what to release, and only once) are in
crypto.sum.silo.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.sum.records import KeyList, NonceList, Proposal, SumHeader, UnmaskRequest
from crypto.sum.silo import SiloSum
from crypto.sum.silo_kept import KeptAnswer
from crypto.sum.silo_states import SiloState
from methods.base import Answer
from silo.gate import Gate
from silo.in_round import InRound
from silo.kept_shares import KeptShares
from silo.ledger import BudgetSpent
from silo.round_file import RoundFile
from silo.rules import Declined
from silo.said import sealed_messages, unforeseen, where_of
from silo.states import LEGAL, State
from silo.told import Told, ToldRound
from wire import messages as m

__all__ = ["Session", "State"]

log = logging.getLogger("silo")
Outgoing = tuple[m.Message, Any]


class Session:
    def __init__(
        self,
        gate: Gate,
        *,
        new_party: Callable[[bytes], SiloSum] | None,
        rounding_seed: Callable[[int, int], bytes],
        broadcast_limit: int,
        hello: m.Hello,
        kept_shares: KeptShares | None = None,
        last_number: Callable[[], int] = lambda: 0,
        rules: Callable[[int], None] = lambda round: None,
        folder: Path | None = None,
        round_file: RoundFile | None = None,
    ) -> None:
        """`new_party`: a fresh secure-sum party for a run id; None when this silo agreed to
        SECAGG=off. `last_number`: of the last sum that this silo, before any restart of it, heard
        of. `rules`: the silo's own (silo.rules), asked before it hears a round's broadcast; they
        raise what it declines. `folder`: where large arrays wait for this silo's turn.
        """
        self.state = State.GREETED
        self.finished = False  #: whether the study was, when the coordinator said stop
        #: the coordinator's reason, when it stopped this silo before it was let in
        self.turned_away = ""
        self._gate, self._new_party = gate, new_party
        self._rounding_seed, self._limit, self._hello = rounding_seed, broadcast_limit, hello
        self._rules = rules
        self._kept_shares, self._last_number = kept_shares or KeptShares(), last_number
        self._life = secrets.token_bytes(16)
        # the last question about survivors, and the answer
        self._endorsed: tuple[m.SumStep, m.SumStep] | None = None
        self._folder = folder
        self._round = ToldRound(folder)
        self._kept = InRound(self._round, gate, round_file or RoundFile(None))
        self._party: SiloSum | None = None
        self._run: bytes | None = None
        self._number = 0
        self._told: Told | None = None
        self._header: SumHeader | None = None
        self._answer: Answer | None = None
        self._steps: dict[str, Callable[[Any, Any], Iterator[Outgoing]]] = {
            "welcome": self._welcome,
            "sum:keys": self._keys,
            "sum:nonces": self._nonces,
            "broadcast": self._broadcast,
            "chunk": self._chunk,
            "go": self._go,
            "send": self._send,
            "sum:propose": self._propose,
            "sum:unmask": self._unmask,
            "closed": self._closed,
            "round-over": self._round_over,
            "ping": self._ping,
            "stop": self._stop,
        }

    def greet(self) -> Iterator[Outgoing]:
        """What to say first on every connection: who it is, and where it stands if it was here
        before.
        """
        in_session = self._party is not None and bool(self._party.members)
        yield (
            replace(
                self._hello,
                life=self._life,
                session=self._party.sid or b"" if self._party is not None and in_session else b"",
                number=self._number,
                state=self.state.value,
                last=max(self._number, self._last_number()),
                answered=self._round.answered,
                have=self._round.held,
            ),
            None,
        )
        # whether it was heard before the connection ended, nobody knows
        if self.state is State.READY:
            yield m.Ready(self._number, self._gate.charged()), None

    def cut(self) -> None:
        """The connection ended. What was arriving will not be complete; all else stays as it is."""
        if self.state is State.HEARING:
            self._forget()
            self.state = State.IDLE

    def hear(self, message: m.Message, payload: Any) -> Iterator[Outgoing]:
        kind = f"sum:{message.step}" if isinstance(message, m.SumStep) else message.kind
        try:
            if isinstance(message, m.SumStep) and (said := self._said_before(message)) is not None:
                yield said, None
                return
            if kind not in LEGAL or self.state not in LEGAL[kind]:
                raise Refusal("replay", f"a {kind} message while {self.state.value}")
            number = getattr(message, "number", None)
            if (
                kind not in ("broadcast", "closed")
                and number is not None
                and number != self._number
            ):
                raise Refusal(
                    "replay", f"a {kind} message of exchange {number} during {self._number}"
                )
            yield from self._steps[kind](message, payload)
        except Declined as e:
            log.warning("declined (%s): %s", e.attack, e.detail)
            yield m.Refused(self._number, e.attack, "a rule of this silo's own"), None
        except BudgetSpent as e:
            yield m.Refused(self._number, e.attack, e.detail), None
        except (Refusal, m.BadMessage) as e:
            detail = e.detail if isinstance(e, Refusal) else str(e)
            log.error("refused (%s): %s", e.attack, detail)
            yield m.Refused(self._number, e.attack, detail), None
        except OSError as e:
            # What must be written down before it is said could not be: nothing is said. A later
            # round may find room.
            log.error("this silo's disk: %s; it sits this exchange out", e)
            yield (
                m.Refused(self._number, "disk", "it could not write down what it must remember"),
                None,
            )
        except Exception as e:
            yield unforeseen(self._number, kind, e), None

    def _said_before(self, message: m.SumStep) -> m.SumStep | None:
        """Asked word for word the same once more, it says the same once more: the first answer may
        have been lost.
        """
        if message.step == "unmask":
            request = UnmaskRequest.from_record(message.record)
            # While the sum is open here its own rules are asked; after it, or after a restart, what
            # was kept.
            if self._party is None or not self._party.awaits(request.h):
                if (answer := self._kept_shares.again(request)) is None:
                    return None
                self._kept.certified(request)
                return m.SumStep("release", answer.to_record())
        if self._endorsed is not None and self._endorsed[0] == message:
            return self._endorsed[1]
        return None

    # Enrolment
    # -------------------------------------------------------------------------------------------------

    def _welcome(self, message: m.Welcome, _: Any) -> Iterator[Outgoing]:
        if self._run not in (None, message.run):
            # What was released is remembered by run: under another name, the same rounds could be
            # summed again.
            raise Refusal("second-sum", "another run than the one this silo joined")
        party = self._new_party(message.run) if self._new_party is not None else None
        self._run = message.run
        self._forget()
        self.state = State.IDLE
        if party is not None:
            self._party = party
            self.state = State.KEYS
            yield m.SumStep("offer", self._party.offer().to_record()), None

    def _keys(self, message: m.SumStep, _: Any) -> Iterator[Outgoing]:
        reveal = self._sum.receive_keys(KeyList.from_record(message.record))
        self.state = State.NONCES
        yield m.SumStep("reveal", reveal.to_record()), None

    def _nonces(self, message: m.SumStep, _: Any) -> Iterator[Outgoing]:
        self._sum.receive_nonces(NonceList.from_record(message.record))
        self.state = State.IDLE
        yield from ()

    # One exchange
    # ----------------------------------------------------------------------------------------------

    def _broadcast(self, message: m.Broadcast, _: Any) -> Iterator[Outgoing]:
        if message.number <= self._number:
            raise Refusal("replay", f"exchange {message.number} was already heard")
        if not all(type(i) is int and i >= 0 for i in message.cohort):
            raise Refusal("wrong-shape", "a cohort that is not a list of silos")
        self._forget()
        self.state = State.IDLE
        self._number = message.number
        self._rules(message.round)
        common = self._round.inbox(message, self._limit)
        if message.round != self._round.number:  # the end of the last one may not have been heard
            self._kept.over()
        self._round.number = message.round
        self._kept.ask_again(message.exchange)
        self._told = Told(message, common, self._limit, self._folder)
        self.state = State.HEARING
        yield from self._heard_all()

    def _chunk(self, message: m.Chunk, payload: Any) -> Iterator[Outgoing]:
        assert self._told is not None
        self._told.add(message, payload)
        yield from self._heard_all()

    def _heard_all(self) -> Iterator[Outgoing]:
        """All arrays are here: what is asked for is checked before anything is computed."""
        assert self._told is not None
        if self._told.complete:
            index = self._told.message.exchange
            exchange = self._gate.exchange(index)
            self._round.hold(self._told)
            if exchange.masked and self._new_party is not None:
                self._header = self._told.header(exchange.name)
                terms = self._gate.terms(index, self._header.encoding)
                self._sum.begin(self._header, self._round.digest_with(self._told), **terms)
                # Who takes part in a second sum over a payload helps to open no first one.
                self._kept_shares.drop(self._sum.payload(self._header))
            self.state = State.TOLD
        yield from ()

    def _go(self, message: m.Go, _: Any) -> Iterator[Outgoing]:
        told = self._told
        assert told is not None
        encoding = told.encoding(self._header, self._gate.exchange(told.message.exchange))
        try:
            self._answer = self._gate.answer(
                told.message.exchange,
                told.heard(self._round.context(told, self._run)),
                told.payload_hash,
                encoding,
            )
        except (Refusal, BudgetSpent, OSError):
            raise
        except Exception as e:  # arrays that the method cannot work with must not end this process
            log.exception("round %d: no answer could be computed", told.message.round)
            why = f"no answer could be computed from it ({where_of(e)})"
            raise Refusal("wrong-shape", why) from None
        self._kept.answered(told, self._header)
        self.state = State.READY
        yield m.Ready(self._number, self._gate.charged()), None

    def _send(self, message: m.Send, _: Any) -> Iterator[Outgoing]:
        told, answer = self._told, self._answer
        assert told is not None and answer is not None
        # before the first frame: cut off halfway, it must not begin again under the same masks
        self.state = State.SENT
        if answer.sealed:
            yield from sealed_messages(self._number, answer.sealed)
        if answer.masked:
            tensors = list(answer.masked.values())
            seed = self._rounding_seed(told.message.round, told.message.exchange)
            if self._party is not None:
                record, frames = self._party.upload(tensors, seed, answer.contributes)
                yield m.SumStart(self._number, record.to_record()), None
            else:
                frames = Encoding.from_record(told.message.encoding).encode(tensors, seed)
                yield m.SumStart(self._number, {}), None
            for i, frame in enumerate(frames):
                yield m.Chunk(self._number, "masked", i), frame.data.cast("B")

    def _propose(self, message: m.SumStep, _: Any) -> Iterator[Outgoing]:
        # A silo that cannot keep its answer does not sign: nothing is open yet, and somebody would
        # count on it.
        signed = self._sum.endorse(Proposal.from_record(message.record), self._kept_shares.keep)
        for dealer in self._sum.complaints:
            log.warning("the shares that %s dealt this silo do not open; it releases none", dealer)
        self._endorsed = (message, m.SumStep("endorse", signed.to_record()))
        yield self._endorsed[1], None

    def _unmask(self, message: m.SumStep, _: Any) -> Iterator[Outgoing]:
        request = UnmaskRequest.from_record(message.record)
        released = self._sum.release(request, self._keep)
        self._kept.certified(request)
        yield m.SumStep("release", released.to_record()), None

    def _keep(self, kept: KeptAnswer) -> None:
        try:
            self._kept_shares.keep(kept)
        except OSError as e:
            # What the journal will forbid holds without this. Silence might cost everybody the sum.
            log.error("this silo's disk: %s; its shares could not be sent again after a restart", e)

    def _closed(self, message: m.Closed, _: Any) -> Iterator[Outgoing]:
        if message.number == self._number:
            if not message.ok and self._header is not None:
                self._kept_shares.drop(self._sum.payload(self._header))
                if self._sum.state is not SiloState.RELEASED:
                    self._sum.abandon()
            self._forget()
            self.state = State.IDLE
        yield from ()

    def _round_over(self, message: m.RoundOver, _: Any) -> Iterator[Outgoing]:
        self._kept.over()
        self._kept_shares.forget()
        if self._party is not None:
            self._party.end_round()
        yield from ()

    def _ping(self, message: m.Ping, _: Any) -> Iterator[Outgoing]:
        yield from ()

    def _stop(self, message: m.Stop, _: Any) -> Iterator[Outgoing]:
        reason = "".join(c for c in message.reason[:300] if c.isprintable())
        log.info("stopped: %s", reason)
        self.finished = reason == m.OVER
        if self.state is State.GREETED and reason not in (m.OVER, m.INTERRUPTED, m.FAILED):
            self.turned_away = reason
        self.state = State.STOPPED
        yield from ()

    @property
    def _sum(self) -> SiloSum:
        if self._party is None:
            raise Refusal(
                "channel-downgrade", "a secure sum's message in a run without secure sums"
            )
        return self._party

    def _forget(self) -> None:
        self._told = self._header = self._answer = self._endorsed = None
