"""The chorus over ZeroMQ: enrolment, the secure sum's set-up, and exchanges tried again when a sum fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from config.settings import Settings
from coordinator.gather import Gather
from coordinator.runlog import RunLog
from coordinator.study import Call, Interrupted, Phases, RoundFailed, RoundSpent
from crypto.coordinator_sum import CoordinatorSetup, SumFailed
from crypto.errors import Refusal
from crypto.params import policy_for
from crypto.records import KeyOffer, NonceReveal
from methods.base import Folded, silo_name
from wire import messages as m
from wire.bundle import broadcast_digest, pack
from wire.router import Gone, Received, Router

__all__ = ["NetworkChorus"]

log = logging.getLogger("coordinator")
_ATTEMPTS = 3
_SETUP_SECONDS = 60.0


class NetworkChorus:
    def __init__(
        self,
        router: Router,
        settings: Settings,
        identities: Mapping[str, bytes],
        run_id: bytes,
        study: bytes,
        runlog: RunLog,
        slots: int,
        should_stop: Callable[[], bool],
        content: Mapping[str, str],
    ) -> None:
        self.counter, self.phases = router.counter, Phases()
        self._router, self._settings, self._identities, self._run_id = router, settings, identities, run_id
        self._study, self._runlog, self._slots, self._should_stop = study, runlog, slots, should_stop
        self._content = content
        self._names = {silo_name(i): i for i in range(settings.silos)}
        self._members: set[str] = set()
        self.spent: set[int] = set()
        self.charged: list[dict[str, Any]] = []
        # Above every number of an earlier process of this run: silos refuse any that is not above the last.
        self._number = time.time_ns() // 1_000_000
        self._setup: CoordinatorSetup | None = None
        self._said: dict[int, tuple[int, bytes]] = {}  # exchange of this round -> (round, digest) of its broadcast

    # Enrolment -------------------------------------------------------------------------------------------------

    def enrol(self, seconds: float, round: int) -> None:
        """Wait for everybody, or for `seconds`; then agree on keys with whoever came."""
        began = time.monotonic()
        while len(self._members) < len(self._names) and time.monotonic() - began < seconds:
            self._enrol_one(min(1.0, seconds))
        absent = sorted(set(self._names) - self._members)
        if absent:
            log.warning("starting without %s", ", ".join(absent))
            self._runlog.event("absent", silos=absent)
        self._check_enough()
        self._agree(round)
        self._runlog.event("enrolled", silos=len(self._members), seconds=time.monotonic() - began)

    def _enrol_one(self, timeout: float) -> None:
        if self._should_stop():
            raise Interrupted
        event = self._router.receive(timeout)
        if isinstance(event, Gone):
            self._members.discard(event.silo)
        elif isinstance(event, Received) and isinstance(event.message, m.Hello):
            if event.silo not in self._names:
                self._router.send(event.silo, m.Stop("this study has no such silo"))
            elif event.message.study != self._study:
                why = self._difference(event.message)
                log.warning("refused (wrong-shape): %s has %s", event.silo, why)
                self._runlog.event("refused", silo=event.silo, attack="wrong-shape", detail=why)
                self._router.send(event.silo, m.Stop(f"it has {why}"))
                self._router.forget(event.silo)
            else:
                self._members.add(event.silo)
                self._runlog.event("hello", silo=event.silo)

    def _difference(self, hello: m.Hello) -> str:
        """What of a silo's study is not this one's, for its operator. Our own hashes are public: all have the same."""
        other = [name for name, value in self._content.items() if hello.content.get(name) != value]
        if not other:
            return "settings other than this study's; compare the two configurations"
        mine = ", ".join(f"{name} {self._content[name][:12]}" for name in other)
        return f"another {' and another '.join(other)} than this study ({mine}…)"

    def _agree(self, round: int) -> None:
        """Keys, then nonces, with everybody present. A silo lost on the way means: again, without it."""
        welcome = m.Welcome(self._run_id, round)
        if not self._settings.secagg:
            for silo in sorted(self._members):
                self._router.send(silo, welcome)
            return
        while True:
            self._check_enough()
            setup = CoordinatorSetup(self._identities, self._run_id, policy_for(self._settings.fraction))
            members = set(self._members)
            if not self._ask(members, welcome, "offer", lambda r: setup.receive_offer(KeyOffer.from_record(r))):  # noqa: B023
                continue
            keys = m.SumStep("keys", setup.key_list().to_record())
            if not self._ask(members, keys, "reveal", lambda r: setup.receive_reveal(NonceReveal.from_record(r))):  # noqa: B023
                continue
            nonces = m.SumStep("nonces", setup.nonce_list().to_record())
            for silo in sorted(members):
                self._router.send(silo, nonces)
            self._setup = setup
            return

    def _ask(self, members: set[str], question: m.Message, step: str, take: Callable[[dict], None]) -> bool:
        """Ask everybody and take every answer; False when somebody was lost.

        Also then everybody is heard out: an answer left in the queue would be taken for one to the next question.
        """
        waiting = {silo for silo in sorted(members) if self._router.send(silo, question)}
        self._members -= members - waiting
        until = time.monotonic() + _SETUP_SECONDS
        while waiting := waiting & self._members:
            if self._should_stop():
                raise Interrupted
            event = self._router.receive(0.5)
            if isinstance(event, Gone):
                self._members.discard(event.silo)
            elif isinstance(event, Received) and isinstance(event.message, m.SumStep):
                record = event.message.record
                try:
                    if event.message.step != step or event.silo not in waiting:
                        raise Refusal("replay", f"a {event.message.step[:20]} where {step} was asked for")
                    if record.get("silo") != event.silo:
                        raise Refusal("key-substitution", f"{event.silo} sent its {step} in the name of another")
                    take(record)
                    waiting.discard(event.silo)
                except Refusal as e:
                    self._drop(event.silo, e.attack, e.detail)
            elif isinstance(event, Received) and isinstance(event.message, m.Refused):
                self._drop(event.silo, event.message.attack, event.message.detail)
            if time.monotonic() > until:
                for silo in sorted(waiting):
                    self._drop(silo, "late-share", f"no {step} within {_SETUP_SECONDS:.0f} s")
        return members <= self._members

    def _drop(self, silo: str, attack: str, detail: str) -> None:
        log.warning("refused (%s): %s: %s", attack, silo, detail)
        self._runlog.event("refused", silo=silo, attack=attack, detail=detail[:300])
        self._router.send(silo, m.Stop(f"refused ({attack})"))
        self._members.discard(silo)

    def _check_enough(self) -> None:
        need = max(3 if self._settings.secagg else 1, self._settings.minimum)
        if len(self._members) < need:
            raise RoundFailed(f"Only {len(self._members)} silos are here and a run needs at least {need}.")

    # Exchanges -------------------------------------------------------------------------------------------------

    def present(self) -> tuple[int, ...]:
        here = {self._names[s] for s in self._members & self._router.connected}
        return tuple(sorted(here - self.spent))

    def perform(self, call: Call) -> Folded:
        common = pack(call.broadcast.common)
        private = {i: pack(arrays) for i, arrays in call.broadcast.private.items()}
        self._said[call.index] = (call.round, common.digest)
        reason = ""
        for attempt in range(_ATTEMPTS):
            here = set(self.present())
            cohort = tuple(i for i in call.cohort if i in here)
            if len(cohort) < (3 if self._setup is not None and call.exchange.masked else 1):
                reason = f"only {len(cohort)} of the {len(call.cohort)} participants are left"
                break
            self._number += 1
            try:
                gather = Gather(
                    router=self._router,
                    call=call,
                    cohort=cohort,
                    number=self._number,
                    setup=self._setup,
                    common=common,
                    broadcast=broadcast_digest(self._said),
                    private=private,
                    runlog=self._runlog,
                    phases=self.phases,
                    slots=self._slots,
                    deadline=self._settings.deadline,
                    should_stop=self._should_stop,
                )
            except SumFailed as e:  # so few are left that no sum over them could hide anybody
                reason = str(e)
                break
            try:
                try:
                    folded = gather.run()
                finally:
                    self.spent |= {self._names[s] for s in gather.exhausted}
                    self.charged += gather.charged
            except RoundSpent:
                gather.close(ok=False)
                if gather.blamed is not None:
                    silo, refusal = gather.blamed
                    self._drop(silo, refusal.attack, refusal.detail)
                raise
            except SumFailed as e:
                gather.close(ok=False)
                reason = str(e)
                log.warning("round %d, %s: the sum failed: %s", call.round, call.exchange.name, reason)
                self._runlog.event("sum-failed", round=call.round, attempt=attempt, why=reason)
                continue
            gather.close(ok=True)
            return folded
        raise RoundFailed(f"Round {call.round} ({call.exchange.name}) could not be completed: {reason}.")

    def end_round(self, round: int) -> None:
        self._said.clear()
        for silo in sorted(self._members):
            self._router.send(silo, m.RoundOver(round))

    def stop(self, reason: str) -> None:
        for silo in sorted(self._router.connected):
            self._router.send(silo, m.Stop(reason))
