"""The carrier over ZeroMQ: exchanges with whoever is here, tried again when a sum fails, gone on
with after a crash.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from config.settings import Settings
from coordinator import reopen
from coordinator.admission import Admission
from coordinator.announcement import Announcement
from coordinator.attendance import Attendance
from coordinator.cohorts import draws, select
from coordinator.exchange import (
    Call,
    CohortLost,
    Interrupted,
    Phases,
    RoundFailed,
    RoundSpent,
    TooFew,
)
from coordinator.gather import Gather
from coordinator.membership import Membership
from coordinator.runlog import RunLog
from coordinator.turns import Slots
from coordinator.waiting import Patience
from crypto.errors import SumFailed, TooFewContribute
from crypto.sum.coordinator import OpenSum
from crypto.sum.params import policy_for
from methods.base import Folded, silo_name
from report import events
from wire import messages as m
from wire.bundle import Bundle, broadcast_digest, pack
from wire.router import Router

__all__ = ["NetworkCarrier"]

log = logging.getLogger("coordinator")
_ATTEMPTS = 3


class NetworkCarrier:
    def __init__(
        self,
        router: Router,
        settings: Settings,
        *,
        identities: Mapping[str, bytes],
        run_id: bytes,
        study: bytes,
        runlog: RunLog,
        slots: Slots,
        should_stop: Callable[[], bool],
        content: Mapping[str, str],
        grace: float = 0.0,
        patience: float = 0.0,
        folder: Path | None = None,
        cohort_source: bytes = b"",
    ) -> None:
        """`grace`: seconds in which a silo whose connection ended may come back into the same
        exchange. `patience`: seconds for which a round that lacks silos waits for them. Both are 0
        where silos are not restarted: a silo that is gone is gone. `folder`: where an open sum is
        kept. `cohort_source`: what a simulation draws small cohorts from; everywhere else each
        session's nonces decide.
        """
        self.counter, self.phases = router.counter, Phases()
        self.members = Membership(
            router,
            settings,
            identities=identities,
            run_id=run_id,
            study=study,
            runlog=runlog,
            should_stop=should_stop,
            content=content,
            waits=patience > 0,
        )
        self._router, self._settings, self._identities, self._run_id = (
            router,
            settings,
            identities,
            run_id,
        )
        self._runlog, self._slots, self._should_stop = runlog, slots, should_stop
        self._grace, self._patience, self.patient = grace, patience, patience > 0
        self._admission = Admission(self.members, settings, runlog, patience)
        self._attendance = Attendance(self.members, settings, runlog, patience)
        self._folder, self._cohort_source = folder, cohort_source
        self.spent: set[int] = set()
        self.charged: list[dict[str, Any]] = []
        # Above every number of an earlier process of this run: silos refuse any that is not above
        # the last. They say which that was, in case this machine's clock is behind the earlier
        # one's.
        self._number = time.time_ns() // 1_000_000
        # exchange of this round -> (round, digest) of its broadcast
        self._said: dict[int, tuple[int, bytes]] = {}
        self._reopened: reopen.Reopened | None = None

    # Enrolment
    # -------------------------------------------------------------------------------------------------

    def enrol(self, seconds: float, round: int, wanted: Collection[str] = ()) -> None:
        self._admission.enrol(seconds, round, wanted)

    def reopen(self, seconds: float, kept: reopen.KeptSum) -> None:
        """Before anybody agrees on new keys: a sum whose shares an earlier process had asked
        for.
        """
        self._runlog.event(events.Reopening(round=kept.round, exchange=kept.index))
        policy = policy_for(self._settings.fraction, self._settings.silos)
        waits = Patience(self._patience, self._runlog, kept.round) if self.patient else None
        self._reopened = reopen.reopen(
            kept,
            self._router,
            members=self.members,
            roster=self._identities,
            run_id=self._run_id,
            policy=policy,
            seconds=seconds,
            patience=waits,
            should_stop=self._should_stop,
        )
        self._runlog.event(
            events.Reopened(round=kept.round, exchange=kept.index, ok=self._reopened is not None)
        )

    def begin_round(self, round: int) -> tuple[int, ...]:
        """Let newcomers in. Returns the cohort of a sum of this round's first exchange that was
        reopened, if any.
        """
        if (
            self._reopened is not None
            and self._reopened.round == round
            and self._reopened.index == 0
        ):
            return self._reopened.cohort
        self._said.clear()
        self.members.settle()
        self._admission.wait(round)
        if self.members.newcomers:
            self.renew(round)
        return ()

    def renew(self, round: int) -> None:
        self._admission.let_in(round, self.spent)

    def go_on(self, round: int, index: int, said: Mapping[str, str]) -> tuple[int, ...]:
        """After a crash, with exchange `index` next: who still has what the exchanges before it
        left.
        """
        self._said = {int(k): (round, bytes.fromhex(digest)) for k, digest in said.items()}
        if self._reopened is not None and (self._reopened.round, self._reopened.index) == (
            round,
            index,
        ):
            return self._reopened.cohort
        able = {
            self.members.names[s]
            for s in self.members.remembered.carrying(self.members.present, round, self._said)
        }
        if draws(self._settings):  # new keys may mean another draw, and silos refuse all others
            able &= set(select(self._settings, round, self.session(), self.source))
        return tuple(sorted(able - self.spent))

    @property
    def said(self) -> dict[str, str]:
        """Digests of this round's broadcasts, for a checkpoint between two exchanges."""
        return {str(k): digest.hex() for k, (_, digest) in self._said.items()}

    # Exchanges
    # -------------------------------------------------------------------------------------------------

    def present(self) -> tuple[int, ...]:
        return tuple(sorted({self.members.names[s] for s in self.members.present} - self.spent))

    def session(self) -> tuple[int, ...]:
        return tuple(sorted(self.members.names[s] for s in self.members.session))

    @property
    def source(self) -> bytes:
        setup = self.members.setup
        return self._cohort_source or (setup.beacon if setup is not None else b"")

    def perform(self, call: Call) -> Folded:
        common = pack(call.broadcast.common)
        private = {i: pack(arrays) for i, arrays in call.broadcast.private.items()}
        # also of a sum that is opened again: later sums of the round stand on what was said in it
        self._said = {k: v for k, v in self._said.items() if k < call.index} | {
            call.index: (call.round, common.digest)
        }
        if (opened := self._reopened) is not None:
            self._reopened = None
            if (opened.round, opened.index) == (call.round, call.index):
                order = sorted(self.members.names[s] for s in opened.survivors)
                self.charged += [dict(line) for line in opened.charged]
                return Folded(call.round, tuple(order), call.total(opened.sums), opened.sealed)
        reason, attempt = "", 0
        until = time.monotonic() + (self._settings.deadline if self._grace > 0 else 0.0)
        if self.patient and call.opened:
            until = math.inf
        while attempt < _ATTEMPTS:
            cohort = self._attendance.gathered(call, self._said, until, self.spent)
            if len(cohort) < self._attendance.least(call):
                reason = f"only {len(cohort)} of the {len(call.cohort)} participants are left"
                break
            try:
                gather = self._gather(call, cohort, common, private)
            except SumFailed as e:  # so few are left that no sum over them could hide anybody
                reason = str(e)
                if time.monotonic() >= until or self._attendance.nobody_else(call, self._said):
                    break
                self.members.one(0.5)
                continue
            try:
                try:
                    folded = gather.run()
                finally:
                    self.spent |= {self.members.names[s] for s in gather.exhausted}
                    self.charged += gather.charged
            except RoundSpent:
                gather.close(ok=False)
                if gather.blamed is not None:
                    silo, refusal = gather.blamed
                    self.members.drop(silo, refusal.attack, refusal.detail, for_good=True)
                raise
            except TooFewContribute as e:  # asked again, each would answer the same
                gather.close(ok=False)
                raise RoundSpent(f"its sum stays closed: {e}") from None
            except SumFailed as e:
                gather.close(ok=False)
                reason = str(e)
                log.warning(
                    "round %d, %s: the sum failed: %s", call.round, call.exchange.name, reason
                )
                self._runlog.event(events.SumFailed(round=call.round, attempt=attempt, why=reason))
                # Who waits has nothing to count where silos were lost: each attempt follows a return.
                lost = call.opened and not set(cohort) <= set(self.present())
                attempt += not (self.patient and lost)
                continue
            gather.close(ok=True)
            # those who were restarted meanwhile have said in their greeting what they remember
            kept = set(map(silo_name, folded.survivors)) - self.members.anew
            self.members.remembered.note(call.round, call.index, kept)
            return folded
        kind = RoundFailed
        if self.patient and not set(call.cohort) <= set(self.present()):
            kind = TooFew
        elif self._first(call) and draws(self._settings):
            # Whoever was drawn and is gone has no substitute: the round begins again, with another
            # draw.
            kind = CohortLost
        raise kind(
            f"Round {call.round + 1} ({call.exchange.name}) could not be completed: {reason}."
        )

    def _first(self, call: Call) -> bool:
        """Whether nothing was said in this round before: exchanges may be passed over."""
        return min(self._said, default=call.index) == call.index

    def _gather(
        self, call: Call, cohort: tuple[int, ...], common: Bundle, private: dict[int, Bundle]
    ) -> Gather:
        self._number = max(self._number, self.members.highest) + 1
        made: list[Gather] = []

        def keep(opened: OpenSum, sealed: dict[str, dict[str, np.ndarray]]) -> None:
            if self._folder is not None and self.members.setup is not None:
                numbered = {self.members.names[s]: arrays for s, arrays in sealed.items()}
                reopen.keep(
                    self._folder,
                    round=call.round,
                    index=call.index,
                    cohort=call.cohort,
                    opened=opened,
                    setup=self.members.setup,
                    sealed=numbered,
                    charged=[*self.charged, *made[0].charged],
                )

        announcement = Announcement.of(
            call,
            self.members.setup,
            number=self._number,
            cohort=cohort,
            common=common,
            private=private,
            broadcast=broadcast_digest(self._said),
        )
        gather = Gather(
            self._router,
            self.members,
            announcement=announcement,
            runlog=self._runlog,
            phases=self.phases,
            slots=self._slots,
            deadline=self._settings.deadline,
            quorum=1.0 if call.exchange.patient else self._settings.quorum,
            grace=self._grace,
            patience=self._patience,
            should_stop=self._should_stop,
            keep=keep,
        )
        made.append(gather)
        return gather

    def kept(self) -> None:
        """What was folded is on disk: a sum that was kept in case it was not is no longer
        needed.
        """
        if self._folder is not None:
            reopen.discard(self._folder)

    def end_round(self, round: int) -> None:
        self._said.clear()
        self.members.has.clear()
        for silo in sorted(self.members.connected):
            self._router.send(silo, m.RoundOver(round))

    def stop(self, reason: str) -> None:
        """Tell everybody, also those who are just coming back: whoever does not hear it dials for a
        long time.
        """
        with suppress(Interrupted):  # an operator who stops the run does not wait for the missing
            self.members.wait(min(self._grace, 5.0), lambda: self.members.complete)
        for silo in sorted(self._router.connected):
            self._router.send(silo, m.Stop(reason))

    def settle(self) -> None:
        self.members.ended = True
        # Who has hung up has nothing on its way any more: its count of bytes and ours are the same.
        self.members.wait(min(self._grace, 5.0), lambda: not self._router.connected)
        self.members.settle()
        left = tuple(sorted(self._router.connected))
        if left and self._grace > 0:  # the silos of a simulation make no documents
            self._runlog.event(events.StillConnected(silos=left))
