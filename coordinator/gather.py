"""One exchange over the network: tell the cohort, hand out cores and buffers, take the answers in, open the sum.

A silo is in one of the stages below; a message that does not fit its stage costs the silo this exchange and nobody
else anything. Cores (`slots`) limit how many compute at once, which a simulation needs and a consortium does not;
buffers (in `OpenSum`) limit how many upload at once, so that memory does not grow with the number of silos.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from coordinator.clear import ClearSum
from coordinator.runlog import RunLog, checked_charges
from coordinator.study import Call, Interrupted, Phases, RoundSpent
from crypto.coordinator_sum import CoordinatorSetup, OpenSum, SumFailed
from crypto.errors import Refusal
from crypto.records import Endorsement, ShareRelease, SumHeader, UploadRecord
from methods.base import Folded, silo_name
from wire import messages as m
from wire.bundle import Bundle, Inbox, pieces
from wire.router import Gone, Received, Router

__all__ = ["Gather"]

log = logging.getLogger("coordinator")
_SEALED_LIMIT = 1 << 30


class Stage(Enum):
    WAITING = "waiting"  # told, waits for a core
    COMPUTING = "computing"
    READY = "ready"  # waits for a buffer
    UPLOADING = "uploading"
    DONE = "done"
    OUT = "out"  # gone, refused or misbehaved


class Gather:
    def __init__(
        self,
        router: Router,
        call: Call,
        cohort: tuple[int, ...],
        number: int,
        setup: CoordinatorSetup | None,
        common: Bundle,
        broadcast: bytes,
        private: dict[int, Bundle],
        runlog: RunLog,
        phases: Phases,
        slots: int,
        deadline: float,
        should_stop: Callable[[], bool],
    ) -> None:
        self._router, self._call, self._number, self._runlog = router, call, number, runlog
        self._phases, self._slots, self._stop = phases, slots, should_stop
        self._until = time.monotonic() + deadline
        self._index = {silo_name(i): i for i in cohort}
        self._stage = dict.fromkeys(self._index, Stage.WAITING)
        self._since = dict.fromkeys(self._index, time.monotonic())
        self._sealed: dict[str, Inbox] = {}
        self._spent: set[str] = set()
        self.exhausted: set[str] = set()  #: silos whose privacy budget does not allow another answer
        self.charged: list[dict[str, Any]] = []  #: what silos say their ledgers were charged
        #: Whose fault it is that an opened sum was lost, so that it takes part in no other.
        self.blamed: tuple[str, Refusal] | None = None
        self._sum: OpenSum | ClearSum | None = None
        self._common, self._private = common, private
        self._encoding = call.encoding() if call.exchange.masked else None
        self._header: SumHeader | None = None
        if self._encoding is not None and setup is not None:
            self._header = SumHeader(
                sid=setup.sid,
                round=call.round,
                exchange=call.exchange.name,
                number=number,
                broadcast=broadcast,
                alive=tuple(sorted(self._index)),
                encoding=self._encoding,
                weight_cap=float(call.exchange.weight_cap),
            )
            self._sum = OpenSum(self._header, setup)
        elif self._encoding is not None:
            self._sum = ClearSum(self._encoding)

    def run(self) -> Folded:
        began = time.monotonic()
        self._tell()
        self._phases.add("telling", began)
        began = time.monotonic()
        self._collect()
        self._phases.add("collecting", began)
        began = time.monotonic()
        total: dict[str, np.ndarray] = {}
        survivors = tuple(s for s, stage in self._stage.items() if stage is Stage.DONE)
        try:
            if not survivors:
                raise SumFailed("no silo answered")
            if self._sum is not None:
                survivors, sums = self._unmask(self._sum) if isinstance(self._sum, OpenSum) else self._sum.result()
                total = self._call.total(sums)
        except SumFailed:
            # Not before: one silo's word that it already released must not spend everybody's round.
            if self._spent:
                raise RoundSpent(f"{len(self._spent)} silos released shares for it, and do so only once") from None
            raise
        self._phases.add("unmasking", began)
        order = sorted(self._index[s] for s in survivors)
        sealed = {i: self._sealed[silo_name(i)].arrays() for i in order if silo_name(i) in self._sealed}
        return Folded(self._call.round, tuple(order), total, sealed)

    def close(self, ok: bool) -> None:
        for silo in self._index:
            self._router.send(silo, m.Closed(self._number, ok))

    # Telling ---------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        call, empty = self._call, Bundle([], np.empty(0, np.uint8))
        for silo, i in self._index.items():
            private = self._private.get(i, empty)
            announced = m.Broadcast(
                number=self._number,
                round=call.round,
                exchange=call.index,
                cohort=list(self._index.values()),
                common=self._common.layout,
                private=private.layout,
                header=self._header.to_record() if self._header is not None else {},
                encoding=self._encoding.to_record() if self._encoding is not None else {},
            )
            self._router.send(silo, announced)
            for stream, bundle in (("common", self._common), ("private", private)):
                for k, piece in enumerate(pieces(bundle.buffer)):
                    self._router.send(silo, m.Chunk(self._number, stream, k), piece, channel="broadcast")

    # Collecting ------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        while any(s not in (Stage.DONE, Stage.OUT) for s in self._stage.values()):
            self._grant()
            left = self._until - time.monotonic()
            if left <= 0:
                for silo in self._in(Stage.WAITING, Stage.COMPUTING, Stage.READY, Stage.UPLOADING):
                    self._out(silo, "missed the deadline")
                return
            self._next(min(left, 1.0))

    def _to(self, silo: str, stage: Stage) -> Stage:
        """Into the next stage; the time spent in the last one is added up over the silos. Returns the last one."""
        was, now = self._stage[silo], time.monotonic()
        if was is not Stage.DONE:
            self._phases.add_silo(was.value, now - self._since[silo])
        self._stage[silo], self._since[silo] = stage, now
        if stage is Stage.DONE:
            self._runlog.event("answered", silo=silo, round=self._call.round, exchange=self._call.exchange.name)
        return was

    def _in(self, *stages: Stage) -> list[str]:
        return [s for s, stage in self._stage.items() if stage in stages]

    def _grant(self) -> None:
        """In order of silo: a core to whoever waits for one, a buffer to whoever is ready."""
        for silo in self._in(Stage.READY):
            if self._sum is not None and not self._sum.can_begin:
                break
            if len(self._in(Stage.UPLOADING)) >= 2:  # one arrives while the other is folded
                break
            self._to(silo, Stage.UPLOADING)
            self._router.send(silo, m.Send(self._number))
        for silo in self._in(Stage.WAITING):
            if len(self._in(Stage.COMPUTING, Stage.READY, Stage.UPLOADING)) >= self._slots:
                break
            self._to(silo, Stage.COMPUTING)
            self._runlog.event("computing", silo=silo, round=self._call.round, exchange=self._call.exchange.name)
            self._router.send(silo, m.Go(self._number))

    def _next(self, timeout: float) -> None:
        """One event from the network, whatever it is."""
        if self._stop():
            raise Interrupted
        event = self._router.receive(timeout)
        if isinstance(event, Gone):
            self._runlog.event("lost", silo=event.silo, round=self._call.round)
            log.warning("%s is gone", event.silo)
            if event.silo in self._stage:
                self._out(event.silo, "its connection closed")
        elif isinstance(event, Received) and event.silo in self._stage:
            try:
                self._heard(event.silo, event.message, event.payload)
            except (Refusal, m.BadMessage) as e:
                detail = e.detail if isinstance(e, Refusal) else str(e)
                culprit = (e.culprit if isinstance(e, Refusal) else None) or event.silo
                log.warning("refused (%s): %s: %s", e.attack, culprit, detail)
                self._runlog.event("refused", silo=culprit, attack=e.attack, detail=detail)
                self._out(culprit, f"refused ({e.attack})")

    def _heard(self, silo: str, message: m.Message, payload: Any) -> None:
        if isinstance(message, m.SumStep):
            self._sum_step(silo, message)
            return
        if isinstance(message, m.Hello):
            self._out(silo, "it began anew")
            return
        number = getattr(message, "number", self._number)
        if number != self._number:
            log.info("late: a %s of exchange %d from %s", message.kind, number, silo)
            return
        stage = self._stage[silo]
        if stage is Stage.OUT:
            return
        if isinstance(message, m.Refused):
            if message.attack == "second-sum":
                self._spent.add(silo)
            if message.attack == "budget-spent":
                self.exhausted.add(silo)
            self._runlog.event("refused-by-silo", silo=silo, attack=message.attack, detail=message.detail[:300])
            self._out(silo, f"it refused ({message.attack}): {message.detail[:300]}")
        elif isinstance(message, m.Ready) and stage is Stage.COMPUTING:
            self.charged += [{"silo": silo, **line} for line in checked_charges(message.charged)]
            owes = self._call.exchange.masked or self._call.exchange.sealed
            self._to(silo, Stage.READY if owes else Stage.DONE)
        elif isinstance(message, m.SealedStart) and stage is Stage.UPLOADING and silo not in self._sealed:
            self._sealed[silo] = self._sealed_inbox(message.arrays)
            self._finish_if_complete(silo)
        elif isinstance(message, m.SumStart) and stage is Stage.DONE:
            raise Refusal("second-sum", f"a second upload of {silo}")
        elif isinstance(message, m.SumStart) and stage is Stage.UPLOADING:
            if self._sum is None:
                raise Refusal("undeclared-upload", "words for a sum in an exchange without one")
            if not self._has_sealed(silo):  # once its words are in the sum, what else it owes could stay out
                raise Refusal("wrong-shape", "words for the sum before the sealed arrays")
            if isinstance(self._sum, OpenSum):
                record = UploadRecord.from_record(message.record)
                if record.silo != silo:
                    raise Refusal("key-substitution", f"{silo} sent an upload in the name of {record.silo}")
                self._sum.begin_upload(record)
            else:
                self._sum.begin(silo)
        elif isinstance(message, m.Chunk) and stage is Stage.UPLOADING and payload is not None:
            self._chunk(silo, message, payload)
        else:
            raise Refusal("wrong-shape", f"a {message.kind} message while {stage.value}")

    def _sealed_inbox(self, layout: list) -> Inbox:
        declared = self._call.exchange.sealed
        inbox = Inbox(layout, _SEALED_LIMIT)
        if [entry[0] for entry in layout] != list(declared):
            raise Refusal("undeclared-upload", "sealed arrays other than the declared ones")
        for (_, dtype, shape), spec in zip(layout, declared.values()):
            fits = len(shape) == len(spec.shape) and all(w is None or w == g for w, g in zip(spec.shape, shape))
            if not fits or np.dtype(dtype) != np.dtype(spec.dtype):
                raise Refusal("wrong-shape", "a sealed array of another shape or type than declared")
        return inbox

    def _chunk(self, silo: str, message: m.Chunk, payload: Any) -> None:
        if len(payload) > m.FRAME_BYTES:
            raise Refusal("oversize", f"a piece of {len(payload)} bytes, more than {m.FRAME_BYTES}")
        if message.stream == "sealed" and silo in self._sealed:
            self._sealed[silo].add(message.index, payload)
        elif message.stream == "masked" and self._sum is not None and self._encoding is not None:
            if len(payload) % 8:
                raise Refusal("wrong-shape", "a frame that is not whole words")
            self._sum.add_frame(silo, message.index, np.frombuffer(payload, "<u8"))
            if message.index == self._encoding.frames - 1:
                self._sum.finish_upload(silo)
        else:
            raise Refusal("wrong-shape", f"a piece of {message.stream[:20]!r} that was not announced")
        self._finish_if_complete(silo)

    def _finish_if_complete(self, silo: str) -> None:
        if self._has_sealed(silo) and (self._sum is None or silo in self._sum.uploaded):
            self._to(silo, Stage.DONE)

    def _has_sealed(self, silo: str) -> bool:
        return not self._call.exchange.sealed or (silo in self._sealed and self._sealed[silo].complete)

    def _out(self, silo: str, why: str) -> None:
        if self._stage.get(silo) in (None, Stage.OUT):
            return
        was = self._to(silo, Stage.OUT)
        log.warning("round %d, %s: %s is out: %s", self._call.round, self._call.exchange.name, silo, why)
        self._runlog.event("out", silo=silo, round=self._call.round, why=why, stage=was.value)
        if self._sum is not None:
            self._sum.lost(silo)

    # Opening the sum -------------------------------------------------------------------------------------------

    def _unmask(self, opened: OpenSum) -> tuple[tuple[str, ...], list[np.ndarray]]:
        proposal = m.SumStep("propose", opened.propose().to_record())
        for silo in opened.reachable:
            self._router.send(silo, proposal)
        self._wait(opened, lambda: opened.endorsed_enough, "too few silos signed the set of survivors")
        for holder, request in opened.unmask_requests().items():
            self._router.send(holder, m.SumStep("unmask", request.to_record()))
        # From here a stop would lose the round: shares are out and may be asked for only once. It takes milliseconds.
        self._stop = lambda: False
        self._wait(opened, lambda: opened.released_enough, "too few silos released their shares")
        try:
            return opened.result()
        except Refusal as e:  # a dealer's commitments do not fit what it dealt: known only now, when shares are out
            self.blamed = (e.culprit or "", e)
            raise RoundSpent(f"its sum cannot be opened: {e.detail}") from None

    def _wait(self, opened: OpenSum, enough: Callable[[], bool], otherwise: str) -> None:
        """Until enough have answered, or it is certain (nobody is left, or the time is up) that they will not."""
        while not enough():
            if time.monotonic() > self._until or len(opened.reachable) < opened.needed:
                raise SumFailed(otherwise)
            self._next(0.5)

    def _sum_step(self, silo: str, message: m.SumStep) -> None:
        if not isinstance(self._sum, OpenSum) or message.record.get("h") != self._sum.header.h:
            # The threshold was met without it and the sum is closed; nobody reads it.
            log.debug("refused (late-share): a %s of an earlier sum from %s", message.step[:20], silo)
            return
        if message.step == "endorse":
            endorsement = Endorsement.from_record(message.record)
            if endorsement.silo != silo:
                raise Refusal("key-substitution", f"{silo} signed in the name of another")
            self._sum.receive_endorsement(endorsement)
        elif message.step == "release":
            release = ShareRelease.from_record(message.record)
            if release.holder != silo:
                raise Refusal("key-substitution", f"{silo} released in the name of another")
            self._sum.receive_release(release)
        else:
            raise Refusal("wrong-shape", "an unknown step of the secure sum")
