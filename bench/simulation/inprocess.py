"""The same silos and the same rounds in one process, in a plain loop: for tests, debugging, and as
the yardstick.

Fixed point is applied here exactly as on the wire, so the model equals that of the multi-process
run bit for bit. `absent` plays silos that are lost: (round, exchange) -> indices whose answer never
arrives.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coordinator import checkpoint
from coordinator.exchange import Call, Interrupted, Phases, RoundFailed, RoundSpent
from coordinator.loop import run_study
from coordinator.process import INTERRUPTED
from coordinator.rundir import shared_secret
from coordinator.runlog import RunLog
from coordinator.scores import first_unscored
from crypto.errors import Refusal
from crypto.oprf.peers import Peers
from crypto.sum.contribution import too_few
from crypto.sum.params import parameters, policy_for
from crypto.sum.plain import PlainSum
from methods.base import Arrays, Folded, Heard, SiloView, silo_name
from methods.common.contribution import contributors_of
from methods.outside import blamed
from models.device import use_device
from report import events
from silo.gate import Gate
from silo.ledger import BudgetSpent, Ledger
from silo.memory import MemoryFile
from silo.process import open_ledger
from study.agreement import cohort_source, rounding_seed, study_hash, sum_assumption
from study.prepare import Study
from study.public_start import start_publicly
from wire.counter import ByteCounter
from wire.stored import keep_freed

__all__ = ["InProcessCarrier", "run_inprocess"]


class InProcessCarrier:
    def __init__(
        self,
        study: Study,
        runlog: RunLog,
        absent: Mapping[tuple[int, int], frozenset[int]] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.counter, self.phases = ByteCounter(), Phases()
        self._settings, self._runlog, self._absent, self._stop = (
            study.settings,
            runlog,
            absent or {},
            should_stop,
        )
        self._gone: set[int] = set()
        self._session = tuple(range(study.settings.silos))
        self.source = cohort_source(study.settings)
        self.spent: set[int] = set()
        self.patient = False
        self.said: dict[str, str] = {}
        self.charged: list[dict[str, Any]] = []
        self._gates: list[Gate] = []
        self._ledgers: list[Ledger] = []
        if not study.settings.features:
            study.task.keep_features_in(runlog.path / "features")
        which = study_hash(study.settings, study.agreement, study.task.name).hex()
        for i, indices in enumerate(study.partition.indices):
            home = runlog.path / "silos" / silo_name(i)
            home.mkdir(parents=True, exist_ok=True)
            view = SiloView(
                i,
                study.task,
                study.task.subset(indices),
                study.settings,
                shared_secret(study.settings),
                peers=Peers.simulated(study.settings.seed, i, study.settings.silos),
            )
            ledger = open_ledger(home, silo_name(i), view, study.method)
            self._ledgers.append(ledger)
            self._gates.append(
                Gate(view, study.method, MemoryFile(home / "memory.safetensors", which), ledger)
            )

    def begin_round(self, round: int) -> tuple[int, ...]:
        return ()

    def go_on(self, round: int, index: int, said: Mapping[str, str]) -> tuple[int, ...]:
        """Nobody: what an exchange leaves for the next is in memory, and this is another
        process.
        """
        return ()

    def settle(self) -> None:
        """Nothing crossed a wire."""

    def kept(self) -> None:
        """Nothing else is kept."""

    def present(self) -> tuple[int, ...]:
        return tuple(i for i in range(self._settings.silos) if i not in self._gone)

    def session(self) -> tuple[int, ...]:
        return self._session

    def renew(self, round: int) -> None:
        self._session = self.present()

    def perform(self, call: Call) -> Folded:
        began = time.monotonic()
        self._gone |= self._absent.get((call.round, call.index), frozenset())
        here = [i for i in call.cohort if i not in self._gone]
        alive = len(here)
        encoding = call.encoding() if call.exchange.masked else None
        plain = PlainSum(encoding) if encoding is not None else None
        if not here:
            raise RoundFailed(
                f"Round {call.round + 1} ({call.exchange.name}) has no participants left."
            )
        sealed: dict[int, Arrays] = {}
        contribute = 0
        for i in here:
            if self._stop():
                raise Interrupted
            self._runlog.event(
                events.Computing(silo=silo_name(i), round=call.round, exchange=call.exchange.name)
            )
            since = time.monotonic()
            private = call.broadcast.private.get(i, {})
            context = f"{call.round}/{call.index}".encode()
            heard = Heard(call.round, call.cohort, call.broadcast.common, private, context)
            try:
                answer = self._gates[i].answer(call.index, heard, context, encoding)
            except BudgetSpent as e:
                who = silo_name(i)
                self._runlog.event(
                    events.RefusedBySilo(
                        silo=who, round=call.round, attack=e.attack, detail=e.detail
                    )
                )
                self.spent.add(i)
                continue
            except Refusal as e:
                # real silos drop out of the round one by one; here the first one ends the run
                raise RoundFailed(
                    f"Round {call.round + 1}: {silo_name(i)} sent nothing: {e.detail}."
                ) from None
            except Exception as e:
                raise blamed(self._settings.method, "answer", e) from None
            self.phases.add_silo("computing", time.monotonic() - since)
            self.charged += [{"silo": silo_name(i), **line} for line in self._gates[i].charged()]
            if plain is not None and encoding is not None:
                seed = rounding_seed(self._settings, i, call.round, call.index)
                plain.add(encoding.encode(list(answer.masked.values()), seed))
            sealed[i] = answer.sealed
            contribute += answer.contributes
            self._runlog.event(
                events.Answered(silo=silo_name(i), round=call.round, exchange=call.exchange.name)
            )
        self._gone |= self.spent
        here = [i for i in here if i not in self._gone]
        if not here:
            raise RoundFailed(
                f"Round {call.round + 1} ({call.exchange.name}) has no participants left."
            )
        if self._settings.dp == "silo" and len(here) < self._least(len(call.cohort)):
            what = f"Round {call.round + 1} ({call.exchange.name})"
            raise RoundFailed(
                f"{what} is not opened: {len(here)} silos make less noise than promised."
            )
        if call.exchange.contributors and contribute < (least := self._contributors(alive)):
            raise RoundSpent(f"its sum stays closed: {too_few(contribute, len(here), least)}")
        total = call.total(plain.result(len(here))) if plain is not None else {}
        for i in here if plain is not None else ():
            self._gates[i].certified(call.index, [silo_name(k) for k in here])
        self.phases.add("collecting", began)
        return Folded(call.round, tuple(here), total, sealed)

    def _least(self, cohort: int) -> int:
        """Survivors below which a secure sum opens nothing. Without DP=silo this loop is laxer, for
        its tests.
        """
        return parameters(
            cohort, policy_for(self._settings.fraction, self._settings.silos), self._settings.silos
        ).n_min

    def _contributors(self, alive: int) -> int:
        """As silos of a secure sum count them; without one nobody is hidden."""
        return contributors_of(self._settings, alive) if self._settings.secagg else 0

    def end_round(self, round: int) -> None:
        for gate in self._gates:
            gate.end_round()

    def stop(self, reason: str) -> None:
        """Nobody to tell."""

    def compare(self) -> None:
        """The ledgers with Opacus's accountant, as silos do when they are told to stop. A
        `Disagreement` is raised when all else is on disk.
        """
        for ledger in self._ledgers:
            ledger.settle()

    def close(self) -> None:
        for ledger in self._ledgers:
            ledger.close()


def run_inprocess(
    run: Path,
    study: Study,
    absent: Mapping[tuple[int, int], frozenset[int]] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> int:
    use_device(study.settings.device)
    keep_freed()
    runlog = RunLog(run)
    resume = checkpoint.read(run / "checkpoint")
    if resume is not None:
        runlog.truncate_rounds(first_unscored(run, resume))
    settings = study.settings
    carrier = InProcessCarrier(study, runlog, absent, should_stop)
    start_publicly(run, settings, study.task)
    runlog.disclosures(study.method, settings.secagg, sum_assumption(settings))
    # every silo's turn ends with a collection: what is here before the first need not be looked
    # through each time (six sevenths of a run with a small head)
    gc.freeze()
    try:
        run_study(
            study.method,
            study.task,
            settings=study.settings,
            carrier=carrier,
            runlog=runlog,
            resume=resume,
            should_stop=should_stop,
        )
        runlog.event(events.Finished())
        carrier.compare()
        return 0
    except Interrupted:
        runlog.event(events.Interrupted())
        return INTERRUPTED
    finally:
        gc.unfreeze()
        carrier.close()
        runlog.close()
