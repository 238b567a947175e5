"""Opening one secure sum over the network: the survivors are signed, shares released, and each
question put again to a silo whose connection was cut before it answered.

Once shares are asked for, the sum cannot be had in another way: those who released join no second
one over the same payload. So a coordinator that waits for silos waits here too, for as long as it
said, for holders who are gone: what they will say has been on their disks since they signed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

from coordinator.exchange import RoundSpent
from coordinator.waiting import LACKS, Patience, Wait
from crypto.errors import Refusal
from crypto.sum.coordinator import OpenSum, SumFailed
from crypto.sum.records import Endorsement, ShareRelease
from wire import messages as m
from wire.router import Router

__all__ = ["ASK_AGAIN", "Unmasking"]

log = logging.getLogger("coordinator")
_SECONDS = 60.0  #: to sign and release, which is a small message each way
ASK_AGAIN = 5.0  #: seconds after which a holder whose disk was full is asked for its shares again


class Unmasking:
    def __init__(
        self,
        opened: OpenSum,
        router: Router,
        grace: float,
        patience: Patience | None = None,
    ) -> None:
        """`grace`: seconds more for whoever must dial again. `patience`: None where silos are not
        waited for.
        """
        self._opened, self._router, self._grace = opened, router, grace
        self._patience = patience
        self._questions: dict[str, m.SumStep] = {}  # of the step at hand, by whom it is put to
        self._answered: set[str] = set()
        self._later: dict[str, float] = {}  # whose disk was full -> when it is asked again
        #: Whether holders are waited for whose shares are missing: the operator may end that.
        self.waits = False
        #: Whose fault it is that an opened sum was lost, so that it takes part in no other.
        self.blamed: tuple[str, Refusal] | None = None

    def run(
        self, pump: Callable[[float], None], keep: Callable[[], None], asked: Callable[[], None]
    ) -> tuple[tuple[str, ...], Sequence[np.ndarray]]:
        """`pump` takes the next event; `keep` makes the sum survive a crash; `asked` is called when
        shares are.
        """
        opened = self._opened
        self._put({h: m.SumStep("propose", p.to_record()) for h, p in opened.propose().items()})
        self._wait(
            pump, lambda: opened.endorsed_enough, "too few silos signed the set of survivors"
        )
        requests = {
            h: m.SumStep("unmask", r.to_record()) for h, r in opened.unmask_requests().items()
        }
        keep()
        asked()
        self._put(requests)
        self._wait(pump, lambda: opened.released_enough, "too few silos released their shares")
        try:
            return opened.result()
        except Refusal as e:  # a dealer's commitments do not fit what it dealt: known only now, when shares are out
            self.blamed = (e.culprit or "", e)
            raise RoundSpent(f"its sum cannot be opened: {e.detail}") from None

    def _put(self, questions: dict[str, m.SumStep]) -> None:
        self._questions, self._answered = questions, set()
        for silo, question in questions.items():
            self._router.send(silo, question)

    def again(self, silo: str, restarted: bool = False) -> bool:
        """It is back: what it was asked last may never have reached it. One that was restarted
        cannot sign any more; if it had signed, its shares are on its disk. False where nothing more
        is to be had from it.
        """
        question = self._questions.get(silo)
        if question is None:
            return False
        if silo in self._answered:
            return question.step == "propose"
        if restarted and question.step == "propose":
            return False
        # should it be gone again, its end is heard of, and it may come back again
        self._router.send(silo, question)
        return True

    def counts_on(self, silo: str) -> bool:
        """Whether what it has to say is on its disk, or may be: such a silo is waited for."""
        question = self._questions.get(silo)
        if self._patience is None or question is None:
            return False
        return question.step == "unmask" or silo in self._answered

    def busy(self, silo: str, refused: m.Refused) -> bool:
        """Whether a refusal means: later. Its disk is full, so that it cannot note what it says; its
        answer is still there.
        """
        question = self._questions.get(silo)
        if refused.attack != "disk" or question is None or question.step != "unmask":
            return False
        if not self.counts_on(silo) or silo in self._answered:
            return False
        log.warning("%s: %s; it is asked again", silo, refused.detail[:300])
        self._later[silo] = time.monotonic() + ASK_AGAIN
        return True

    def _wait(
        self, pump: Callable[[float], None], enough: Callable[[], bool], otherwise: str
    ) -> None:
        """Until enough have answered, or it is certain (nobody is left, or the time is up) that
        they will not.
        """
        until = time.monotonic() + _SECONDS + self._grace
        asked = any(q.step == "unmask" for q in self._questions.values())
        patience = self._patience if asked else None
        wait: Wait | None = None
        while not enough():
            # Whoever answered counts, also when it is gone by now.
            if len(self._answered.union(self._opened.reachable)) < self._opened.needed:
                raise SumFailed(otherwise)
            late = time.monotonic() > until
            if patience is None and late:
                raise SumFailed(otherwise)
            if patience is not None:
                wait = self._lacking(patience, wait, late)
            pump(0.5)
        if wait is not None:
            wait.over(len(self._here))

    @property
    def _here(self) -> set[str]:
        return self._answered | (self._questions.keys() & self._router.connected)

    def _lacking(self, patience: Patience, wait: Wait | None, late: bool) -> Wait | None:
        """Say who is missing, if the sum cannot be opened without; WaitedInVain when the stated
        time is up.
        """
        for silo in [s for s, when in self._later.items() if time.monotonic() >= when]:
            del self._later[silo]
            self._router.send(silo, self._questions[silo])
        here, needed = self._here, self._opened.needed
        if len(here) >= needed and not late:
            return wait
        missing = self._questions.keys() - (self._answered if late else here)
        wait, self.waits = wait or patience.wait(), True
        wait.say(missing, len(here), needed, LACKS)
        if wait.left <= 0:
            raise patience.missed(missing)
        return wait

    def hear(self, silo: str, message: m.SumStep) -> None:
        if message.record.get("h") != self._opened.header.h:
            # The threshold was met without it and the sum is closed; nobody reads it.
            log.debug(
                "refused (late-share): a %s of an earlier sum from %s", message.step[:20], silo
            )
            return
        if message.step == "endorse":
            endorsement = Endorsement.from_record(message.record)
            if endorsement.silo != silo:
                raise Refusal("key-substitution", f"{silo} signed in the name of another")
            self._opened.receive_endorsement(endorsement)
            self._note(silo, "propose")
        elif message.step == "release":
            release = ShareRelease.from_record(message.record)
            if release.holder != silo:
                raise Refusal("key-substitution", f"{silo} released in the name of another")
            self._opened.receive_release(release)
            self._note(silo, "unmask")
        else:
            raise Refusal("wrong-shape", "an unknown step of the secure sum")

    def _note(self, silo: str, question: str) -> None:
        if silo in self._questions and self._questions[silo].step == question:
            self._answered.add(silo)
