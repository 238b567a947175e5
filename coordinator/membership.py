"""Who is here: greetings at any time, who may take part in the next round, and the keys that all
agree on.

A silo whose connection was cut greets again and goes on where it was, if it has forgotten nothing
(the same `life`, the same session). One that was restarted, or that comes late, is a newcomer: it
is let in when the next round begins, and everybody agrees on keys anew. A silo that is still
computing is skipped until it sends a message.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from config.settings import Settings
from coordinator.cohorts import least_in_a_session
from coordinator.exchange import Interrupted, RoundFailed
from coordinator.remembered import Remembered
from coordinator.resting import Resting
from coordinator.runlog import RunLog
from crypto.errors import Refusal
from crypto.sum.coordinator import CoordinatorSetup
from crypto.sum.params import policy_for
from crypto.sum.records import KeyOffer, NonceReveal
from crypto.sum.silo_limits import tomorrow
from methods.base import silo_name
from report import events
from wire import messages as m
from wire.router import Bad, Event, Gone, Received, Router

__all__ = ["Membership"]

log = logging.getLogger("coordinator")
_SETUP_SECONDS = 60.0
#: More for each pair of silos: every silo computes something for every other, and the silos of a
#: simulation share the cores of one machine.
_SETUP_PAIR_SECONDS = 1e-3


class Membership:
    def __init__(
        self,
        router: Router,
        settings: Settings,
        *,
        identities: Mapping[str, bytes],
        run_id: bytes,
        study: bytes,
        runlog: RunLog,
        should_stop: Callable[[], bool],
        content: Mapping[str, str],
        waits: bool = False,
    ) -> None:
        """`waits`: whether silos that cannot be asked are waited for."""
        self._router, self._settings, self._runlog = router, settings, runlog
        self._identities, self._run_id, self._study = identities, run_id, study
        self._should_stop, self._content = should_stop, content
        self.names = {silo_name(i): i for i in range(settings.silos)}
        self.setup: CoordinatorSetup | None = None
        self.ended = False  #: whether silos were told that the run is over: they may go
        self.highest = 0  #: of the numbers that silos have heard of: the next must be above
        #: silo -> digests of the broadcasts it holds
        self.has: dict[str, set[bytes]] = defaultdict(set)
        self._members: dict[str, bytes] = {}  # silo -> its life
        self._newcomers: dict[str, bytes] = {}
        self._behind: set[str] = set()
        self._hung_up: set[str] = set()  # after the run's end
        self.banned: set[str] = set()  #: who spoiled a sum of this run
        self.remembered, self.resting = Remembered(), Resting(waits)

    # Who is here
    # -----------------------------------------------------------------------------------------------

    @property
    def present(self) -> set[str]:
        """Those who can be asked now."""
        return (self._members.keys() & self._router.connected) - self._later

    @property
    def _later(self) -> set[str]:
        """Those who are still computing, or said that they cannot be asked now."""
        return self._behind | self.resting.silos

    @property
    def connected(self) -> set[str]:
        """Members, also slow ones, as long as something can be sent to them."""
        return self._members.keys() & self._router.connected

    @property
    def complete(self) -> bool:
        """Whether nobody of the session is cut off."""
        return self._members.keys() <= self._router.connected

    @property
    def session(self) -> set[str]:
        """Members, also those who are cut off or slow and may come back into the exchange that they
        were in.
        """
        return set(self._members)

    @property
    def here(self) -> set[str]:
        """Those who are connected and let in, or could be."""
        return ({*self._members, *self._newcomers} & self._router.connected) - self._later

    @property
    def newcomers(self) -> set[str]:
        return (self._newcomers.keys() & self._router.connected) - self._later

    @property
    def anew(self) -> set[str]:
        """Those who came after the session was made, or restarted; they may be gone again."""
        return set(self._newcomers)

    def fall_behind(self, silo: str) -> None:
        self._behind.add(silo)

    def take(self, event: Event) -> None:
        """Anything that happens while no exchange waits for it."""
        if isinstance(event, Gone):
            if self.ended:
                self._hung_up.add(event.silo)
                return
            self._lost(event.silo)
        elif isinstance(event, Received) and isinstance(event.message, m.Hello):
            if event.silo in self._hung_up:  # it was killed, and did not hear the last words
                self._lost(event.silo)
            self.greeted(event.silo, event.message)
            if self.ended:
                self._router.send(event.silo, m.Stop(m.OVER))
        elif isinstance(event, Received):
            self._behind.discard(event.silo)

    def _lost(self, silo: str) -> None:
        log.warning("%s is gone", silo)
        self._hung_up.discard(silo)
        self._runlog.event(events.Lost(silo=silo, round=self._router.counter.round))

    def greeted(self, silo: str, hello: m.Hello) -> bool:
        """Take a greeting; True when the silo is a member that was cut off and has forgotten
        nothing.
        """
        if silo in self.banned:
            self._turn_away(silo, "it spoiled a sum of this run")
            return False
        if silo not in self.names:
            self._turn_away(silo, "this study has no such silo")
            return False
        if hello.study != self._study:
            why = self._difference(hello)
            log.warning("refused (wrong-shape): %s has %s", silo, why)
            self._runlog.event(events.Refused(silo=silo, attack="wrong-shape", detail=why))
            self._turn_away(silo, f"it has {why}")
            return False
        # Taken for true, it would be every silo's last number for good.
        if hello.last > tomorrow():
            why = f"it says that it heard of a sum with the number {hello.last}, which is not of this day's clock"
            log.warning("refused (far-number): %s: %s", silo, why)
            self._runlog.event(events.Refused(silo=silo, attack="far-number", detail=why))
            self._turn_away(silo, why)
            return False
        self._behind.discard(silo)
        self.resting.greeted(silo)
        self.highest = max(self.highest, hello.last)
        self.has[silo] = {d for d in hello.have if isinstance(d, bytes)}
        self.remembered.greeted(silo, hello.answered)
        session = self.setup.sid if self.setup is not None else b""
        if hello.life and self._members.get(silo) == hello.life and hello.session == session:
            self._runlog.event(events.Back(silo=silo))
            return True
        self._members.pop(silo, None)
        self._newcomers[silo] = hello.life
        self._runlog.event(events.Hello(silo=silo))
        return False

    def _turn_away(self, silo: str, why: str) -> None:
        self._router.send(silo, m.Stop(why))
        self._router.forget(silo)

    def _difference(self, hello: m.Hello) -> str:
        """What of a silo's study is not this one's, for its operator. Our own hashes are public:
        all have the same.
        """
        other = [name for name, value in self._content.items() if hello.content.get(name) != value]
        if not other:
            return "settings other than this study's; compare the two configurations"
        mine = ", ".join(f"{name} {self._content[name][:12]}" for name in other)
        return f"another {' and another '.join(other)} than this study ({mine}…)"

    def wait(self, seconds: float, enough: Callable[[], bool]) -> None:
        until = time.monotonic() + seconds
        while not enough() and (left := until - time.monotonic()) > 0:
            self.one(left)

    def one(self, seconds: float) -> None:
        """Whatever happens next, within `seconds`."""
        if self._should_stop():
            raise Interrupted
        if (event := self._router.receive(min(seconds, 0.5))) is not None:
            self.take(event)

    def settle(self) -> None:
        """Take what has already happened, without waiting for more."""
        while (event := self._router.receive(0)) is not None:
            self.take(event)

    # Keys
    # ------------------------------------------------------------------------------------------------------

    def agree(self, round: int, without: Collection[str] = ()) -> None:
        """Keys, then nonces, with everybody here. A silo lost on the way means: again, without
        it.
        """
        skipped, need = set(without), least_in_a_session(self._settings)
        while True:
            silos = self.here - skipped
            if len(silos) < need:
                raise RoundFailed(
                    f"Only {len(silos)} silos are here and a run needs at least {need}."
                )
            setup = CoordinatorSetup(
                self._identities,
                self._run_id,
                policy_for(self._settings.fraction, self._settings.silos),
            )
            if not self._settings.secagg:
                lost = {
                    silo
                    for silo in silos
                    if not self._router.send(silo, m.Welcome(self._run_id, round))
                }
            else:
                lost = self._set_up(setup, silos, m.Welcome(self._run_id, round))
            if not lost:
                break
            skipped |= lost
        self.setup = setup if self._settings.secagg else None
        self._members = {
            silo: self._newcomers.get(silo, self._members.get(silo, b"")) for silo in silos
        }
        for silo in silos:
            self._newcomers.pop(silo, None)

    def _set_up(
        self, setup: CoordinatorSetup, silos: Collection[str], welcome: m.Welcome
    ) -> set[str]:
        def offer(record: dict) -> None:
            setup.receive_offer(KeyOffer.from_record(record))

        def reveal(record: dict) -> None:
            setup.receive_reveal(NonceReveal.from_record(record))

        if lost := self._ask(silos, welcome, "offer", offer):
            return lost
        if lost := self._ask(
            silos, m.SumStep("keys", setup.key_list().to_record()), "reveal", reveal
        ):
            return lost
        nonces = m.SumStep("nonces", setup.nonce_list().to_record())
        return {silo for silo in sorted(silos) if not self._router.send(silo, nonces)}

    def _ask(
        self, silos: Collection[str], question: m.Message, step: str, take: Callable[[dict], None]
    ) -> set[str]:
        """Ask everybody and take every answer; returns who was lost.

        Also then everybody is heard out: an answer left in the queue would be taken for one to the
        next question.
        """
        lost = {silo for silo in sorted(silos) if not self._router.send(silo, question)}
        waiting = set(silos) - lost
        seconds = _SETUP_SECONDS + _SETUP_PAIR_SECONDS * len(silos) ** 2
        until = time.monotonic() + seconds
        while waiting := waiting - lost:
            if self._should_stop():
                raise Interrupted
            event = self._router.receive(0.5)
            if event is not None:
                self._answer(event, waiting, lost, step, take)
            if time.monotonic() > until:
                for silo in sorted(waiting):
                    log.warning(
                        "refused (late-share): %s: no %s within %.0f s", silo, step, seconds
                    )
                    self._behind.add(silo)
                lost |= waiting
        return lost

    def _answer(
        self,
        event: Event,
        waiting: set[str],
        lost: set[str],
        step: str,
        take: Callable[[dict], None],
    ) -> None:
        silo = event.silo
        if isinstance(event, Gone) or (
            isinstance(event, Received) and isinstance(event.message, m.Hello)
        ):
            lost.add(silo)
            self.take(event)
        elif isinstance(event, Bad):
            self.drop(silo, event.attack, event.detail)
            lost.add(silo)
        elif silo in self._behind:
            # an answer to an earlier question: it is awake again, and asked next time
            self.take(event)
        elif isinstance(event.message, m.SumStep) and (
            silo in lost or event.message.step in ("endorse", "release")
        ):
            late = event.message.step[:20]
            log.debug("refused (late-share): a %s of an earlier sum from %s", late, silo)
        elif isinstance(event.message, m.SumStep):
            record, said = event.message.record, event.message.step[:20]
            try:
                if event.message.step != step or silo not in waiting:
                    raise Refusal("replay", f"a {said} where {step} was asked for")
                if record.get("silo") != silo:
                    raise Refusal("key-substitution", f"{silo} sent its {step} in another's name")
                take(record)
                waiting.discard(silo)
            except Refusal as e:
                self.drop(silo, e.attack, e.detail)
                lost.add(silo)
            except Exception as e:
                log.exception("refused (bad-field): %s: its %s", silo, step)
                self.drop(silo, "bad-field", f"its {step} cannot be read ({type(e).__name__})")
                lost.add(silo)
        elif isinstance(event.message, m.Refused) and silo in waiting:
            # its own trouble, which may be over by the next round
            if event.message.attack == "disk":
                log.warning("%s: %s", silo, event.message.detail[:300])
                self._newcomers[silo] = self._members.pop(silo, b"")
                self.resting.refused(silo, event.message.attack)
            else:
                self.drop(silo, event.message.attack, event.message.detail)
            lost.add(silo)

    def drop(self, silo: str, attack: str, detail: str, for_good: bool = False) -> None:
        if for_good:
            self.banned.add(silo)
        log.warning("refused (%s): %s: %s", attack, silo, detail)
        self._runlog.event(events.Refused(silo=silo, attack=attack, detail=detail[:300]))
        self._router.send(silo, m.Stop(f"refused ({attack})"))
        self._members.pop(silo, None)
        self._newcomers.pop(silo, None)
