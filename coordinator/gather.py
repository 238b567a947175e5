"""One exchange over the network: tell the cohort, hand out cores and buffers, take the answers in,
open the sum.

A silo is in one of the stages of coordinator.stages. A message that does not fit its stage costs
the silo this exchange and nobody else anything. A silo whose connection ends has `grace` seconds to greet again,
and then goes on where it was, unless it was uploading: an upload that is cut is not resumed, since
nothing of it may be repeated under the same masks. One that has signed the survivors of a sum has
longer, where silos are waited for (coordinator.unmask). Cores and buffers are handed out by
coordinator.turns, so that memory does not grow with the number of silos.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coordinator.announcement import Announcement
from coordinator.exchange import Interrupted, Phases, RoundFailed, RoundSpent
from coordinator.intake import Intake
from coordinator.membership import Membership
from coordinator.runlog import RunLog, checked_charges
from coordinator.stages import Stage, Stages
from coordinator.turns import Slots, Turns
from coordinator.unmask import Unmasking
from coordinator.unmasked import ClearSum
from coordinator.waiting import Patience
from crypto.errors import Refusal
from crypto.sum.coordinator import OpenSum, SumFailed
from methods.base import Folded, silo_name
from report import events
from wire import messages as m
from wire.router import Bad, Gone, Received, Router

__all__ = ["Gather"]

log = logging.getLogger("coordinator")


class Gather:
    def __init__(
        self,
        router: Router,
        members: Membership,
        *,
        announcement: Announcement,
        runlog: RunLog,
        phases: Phases,
        slots: Slots,
        deadline: float,
        quorum: float,
        grace: float,
        patience: float = 0.0,
        should_stop: Callable[[], bool],
        keep: Callable[[OpenSum, dict[str, dict[str, np.ndarray]]], None] = lambda opened, sealed: (
            None
        ),
    ) -> None:
        """`patience`: seconds for which holders are waited for once shares are asked for. `keep` is
        called before they are, with all that is needed to open the sum after a crash.
        """
        self._router, self._members, self._runlog = router, members, runlog
        self._announcement, self._phases = announcement, phases
        self._call, self._number = announcement.call, announcement.number
        self._quorum, self._grace = quorum, grace
        self._stop, self._keep = should_stop, keep
        self._until = time.monotonic() + deadline
        setup = members.setup
        self._away: dict[str, float] = {}  # silo -> until when it may come back
        self._index = {silo_name(i): i for i in announcement.cohort}
        self._stages = Stages(self._index, phases)
        self._spent: set[str] = set()
        # restarted after they uploaded, and asked for their shares once more
        self._anew: set[str] = set()
        #: silos whose privacy budget does not allow another answer
        self.exhausted: set[str] = set()
        self.charged: list[dict[str, Any]] = []  #: what silos say their ledgers were charged
        #: Whose fault it is that an opened sum was lost, so that it takes part in no other.
        self.blamed: tuple[str, Refusal] | None = None
        self._sum: OpenSum | ClearSum | None = None
        header, encoding = announcement.header, announcement.encoding
        if header is not None and setup is not None:
            self._sum = OpenSum(header, setup)
        elif encoding is not None:
            self._sum = ClearSum(encoding)
        self._intake = Intake(self._call.exchange, self._sum, encoding)
        self._turns = Turns(self._stages, slots, self._sum)
        self._unmasking: Unmasking | None = None
        if isinstance(self._sum, OpenSum):
            waits = Patience(patience, runlog, self._call.round) if patience > 0 else None
            self._unmasking = Unmasking(self._sum, router, grace, waits)

    def run(self) -> Folded:
        began = time.monotonic()
        for silo, i in self._index.items():
            self._announcement.tell(self._router, silo, i, self._members.has[silo])
        self._phases.add("telling", began)
        began = time.monotonic()
        self._collect()
        self._phases.add("collecting", began)
        began = time.monotonic()
        total: Mapping[str, np.ndarray] = {}
        survivors = tuple(self._stages.within(Stage.DONE))
        try:
            if not survivors:
                raise SumFailed("no silo answered")
            if self._sum is not None:
                if self._unmasking is not None and isinstance(self._sum, OpenSum):
                    survivors, sums = self._open(self._unmasking, self._sum)
                else:
                    survivors, sums = self._sum.result()
                total = self._call.total(sums)
        except SumFailed:
            # Not before: one silo's word that it already released must not spend everybody's round.
            if self._spent:
                raise RoundSpent(
                    f"{len(self._spent)} silos released shares for it, and do so only once"
                ) from None
            raise
        self._phases.add("unmasking", began)
        order = sorted(self._index[s] for s in survivors)
        arrived = self._intake.sealed(survivors)  # folded in order of silo, whoever came first
        sealed = {i: arrived[silo_name(i)] for i in order if silo_name(i) in arrived}
        return Folded(self._call.round, tuple(order), total, sealed)

    def close(self, ok: bool) -> None:
        # not to one that began anew
        for silo in sorted(self._index.keys() & self._members.connected):
            self._router.send(silo, m.Closed(self._number, ok))

    # Collecting

    def _collect(self) -> None:
        while not self._stages.all_ended:
            self._grant()
            left = self._until - time.monotonic()
            if left <= 0 or self._enough():
                for silo in self._stages.within(
                    Stage.WAITING, Stage.COMPUTING, Stage.READY, Stage.UPLOADING
                ):
                    if self._stages[silo] is Stage.COMPUTING:
                        self._members.fall_behind(silo)
                    self._out(silo, "missed the deadline" if left <= 0 else "enough others were in")
                return
            self._next(min(left, 1.0))

    def _enough(self) -> bool:
        """Whether so many are in that the rest need not be waited for; a sum has its own least
        number.
        """
        if self._quorum >= 1 or self._stages.within(Stage.UPLOADING):
            return False
        need = math.ceil(self._quorum * len(self._stages))
        if isinstance(self._sum, OpenSum):
            need = max(need, self._sum.topology.parameters.n_min, self._sum.needed)
        return len(self._stages.within(Stage.DONE)) >= need

    def _to(self, silo: str, stage: Stage) -> Stage:
        """Into the next stage. Returns the last one."""
        was = self._stages.move(silo, stage)
        if stage is Stage.DONE:
            self._runlog.event(
                events.Answered(
                    silo=silo, round=self._call.round, exchange=self._call.exchange.name
                )
            )
        return was

    def _grant(self) -> None:
        """A core to whoever waits for one, a buffer to whoever is ready."""
        while (silo := self._turns.upload(self._away)) is not None:
            self._to(silo, Stage.UPLOADING)
            self._router.send(silo, m.Send(self._number))
        while (silo := self._turns.compute(self._away)) is not None:
            self._to(silo, Stage.COMPUTING)
            self._runlog.event(
                events.Computing(
                    silo=silo, round=self._call.round, exchange=self._call.exchange.name
                )
            )
            self._router.send(silo, m.Go(self._number))

    def _next(self, timeout: float) -> None:
        """One event from the network, whatever it is."""
        if self._stop():
            raise Interrupted
        event = self._router.receive(
            min(timeout, *(t - time.monotonic() for t in self._away.values()), timeout)
        )
        for silo in [silo for silo, until in self._away.items() if time.monotonic() >= until]:
            self._away[silo] = math.inf
            if not self._counts_on(silo):
                del self._away[silo]
                self._out(silo, "its connection closed")
        if event is None:
            return
        if isinstance(event, Gone):
            self._runlog.event(events.Lost(silo=event.silo, round=self._call.round))
            self._members.take(event)
            self._lost(event.silo)
        elif isinstance(event, Bad) and self._stages[event.silo] is not Stage.OUT:
            self._runlog.event(
                events.Refused(silo=event.silo, attack=event.attack, detail=event.detail)
            )
            self._out(event.silo, f"refused ({event.attack})")
        elif isinstance(event, Received) and event.silo in self._stages:
            try:
                self._heard(event.silo, event.message, event.payload)
            except (Refusal, m.BadMessage) as e:
                detail = e.detail if isinstance(e, Refusal) else str(e)
                culprit = (e.culprit if isinstance(e, Refusal) else None) or event.silo
                log.warning("refused (%s): %s: %s", e.attack, culprit, detail)
                self._runlog.event(events.Refused(silo=culprit, attack=e.attack, detail=detail))
                self._out(culprit, f"refused ({e.attack})")
            except (SumFailed, RoundFailed, RoundSpent, Interrupted, OSError):
                raise  # about the round, or this machine's disk, and no silo's message
            except Exception as e:
                self._unforeseen(event, e)
        else:
            self._members.take(event)

    def _unforeseen(self, event: Received, error: Exception) -> None:
        """Whatever a message makes of this program, its sender is out, and the program goes on."""
        what = f"a {event.message.kind} message that cannot be worked with"
        detail = f"{what} ({type(error).__name__})"
        log.exception("refused (bad-field): %s: %s", event.silo, detail)
        self._runlog.event(events.Refused(silo=event.silo, attack="bad-field", detail=detail))
        self._out(event.silo, "refused (bad-field)")

    def _lost(self, silo: str) -> None:
        stage = self._stages[silo]
        if stage is Stage.OUT:
            return
        if stage is not Stage.UPLOADING and (self._grace > 0 or self._counts_on(silo)):
            self._away.setdefault(silo, time.monotonic() + self._grace)
        else:
            self._out(silo, "its connection closed")

    def _counts_on(self, silo: str) -> bool:
        return self._unmasking is not None and self._unmasking.counts_on(silo)

    def _greets(self, silo: str, hello: m.Hello) -> None:
        """A new connection of a silo that is in this exchange."""
        self._away.pop(silo, None)
        stage = self._stages[silo]
        if not self._members.greeted(silo, hello):
            let_in = stage is Stage.DONE and silo in self._members.newcomers
            if let_in and self._unmasking and self._unmasking.again(silo, restarted=True):
                self._anew.add(silo)  # what it was about to release may be on its disk
            else:
                self._out(silo, "it began anew")
        elif stage is Stage.OUT:
            return
        elif stage is Stage.DONE:
            if self._unmasking is not None:
                self._unmasking.again(silo)
        elif (
            hello.number == self._number
            and stage is not Stage.UPLOADING
            and hello.state in ("told", "ready")
        ):
            # Told: it never heard that it may compute. Ready: it says so again, next.
            self._to(silo, Stage.WAITING if hello.state == "told" else Stage.COMPUTING)
        else:
            self._out(silo, "its connection closed in the middle of something")

    def _heard(self, silo: str, message: m.Message, payload: Any) -> None:
        opening = self._unmasking
        if isinstance(message, m.SumStep):
            if opening is not None:
                opening.hear(silo, message)
            else:
                log.debug(
                    "refused (late-share): a %s of an earlier sum from %s", message.step[:20], silo
                )
            return
        if isinstance(message, m.Hello):
            self._greets(silo, message)
            return
        if isinstance(message, m.Refused) and opening and opening.busy(silo, message):
            return
        if isinstance(message, m.Refused) and silo in self._anew:
            self._out(silo, "it began anew, and has nothing to release")
            return
        number = getattr(message, "number", self._number)
        if number != self._number:
            log.info("late: a %s of exchange %d from %s", message.kind, number, silo)
            self._members.take(Received(silo, message, None))
            return
        stage = self._stages[silo]
        if stage is Stage.OUT:
            return
        if isinstance(message, m.Refused):
            if message.attack == "second-sum":
                self._spent.add(silo)
            if message.attack == "budget-spent":
                self.exhausted.add(silo)
            self._runlog.event(
                events.RefusedBySilo(silo=silo, attack=message.attack, detail=message.detail[:300])
            )
            self._members.resting.refused(silo, message.attack)
            self._out(silo, f"it refused ({message.attack}): {message.detail[:300]}")
        elif isinstance(message, m.Ready) and stage is Stage.COMPUTING:
            self.charged += [{"silo": silo, **line} for line in checked_charges(message.charged)]
            owes = self._call.exchange.masked or self._call.exchange.sealed
            self._to(silo, Stage.READY if owes else Stage.DONE)
        elif isinstance(message, m.SumStart) and stage is Stage.DONE:
            raise Refusal("second-sum", f"a second upload of {silo}")
        elif stage is Stage.UPLOADING and self._intake.take(silo, message, payload):
            if self._intake.complete(silo):
                self._to(silo, Stage.DONE)
        else:
            raise Refusal("wrong-shape", f"a {message.kind} message while {stage.value}")

    def _out(self, silo: str, why: str) -> None:
        if self._stages[silo] is Stage.OUT:
            return
        was = self._to(silo, Stage.OUT)
        log.warning(
            "round %d, %s: %s is out: %s", self._call.round, self._call.exchange.name, silo, why
        )
        self._runlog.event(events.Out(silo=silo, round=self._call.round, why=why, stage=was.value))
        if self._sum is not None:
            self._sum.lost(silo)

    # Opening the sum

    def _open(
        self, unmasking: Unmasking, opened: OpenSum
    ) -> tuple[tuple[str, ...], Sequence[np.ndarray]]:
        def keep() -> None:
            self._keep(opened, self._intake.sealed(opened.survivors))

        def asked() -> None:
            # For some milliseconds: shares are out for this question. Where that takes longer, the
            # sum is on disk, and whoever goes on with the run opens it.
            stop = self._stop
            self._stop = lambda: unmasking.waits and stop()

        try:
            return unmasking.run(self._next, keep, asked)
        finally:
            self.blamed = unmasking.blamed
