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

from coordinator.runlog import RunLog
from coordinator.study import Call, Interrupted, Phases, silo_name
from crypto.coordinator_sum import CoordinatorSetup, OpenSum, SumFailed
from crypto.errors import Refusal
from crypto.plain_sum import PlainSum
from crypto.records import Endorsement, ShareRelease, SumHeader, UploadRecord
from methods.base import Folded
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
        self._stage = {silo: Stage.WAITING for silo in self._index}
        self._sealed: dict[str, Inbox] = {}
        self._sum: OpenSum | None = None
        self._plain: PlainSum | None = None
        self._plain_frames: dict[str, list[np.ndarray]] = {}
        self._common, self._private = common, private
        self._encoding = call.encoding(len(cohort)) if call.exchange.masked else None
        self._header: SumHeader | None = None
        if self._encoding is not None and setup is not None:
            self._header = SumHeader(
                sid=setup.sid,
                round=call.round,
                exchange=call.index,
                number=number,
                broadcast=common.digest,
                alive=tuple(sorted(self._index)),
                encoding=self._encoding,
                weight_cap=1.0,
            )
            self._sum = OpenSum(self._header, setup)
        elif self._encoding is not None:
            self._plain = PlainSum(self._encoding)

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
        if self._sum is not None:
            survivors, sums = self._unmask(self._sum)
            total = self._call.total(sums)
        elif self._plain is not None:
            if not survivors:
                raise SumFailed("no silo answered")
            total = self._call.total(self._plain.result(len(survivors)))
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

    def _in(self, *stages: Stage) -> list[str]:
        return [s for s, stage in self._stage.items() if stage in stages]

    def _grant(self) -> None:
        """In order of silo: a core to whoever waits for one, a buffer to whoever is ready."""
        for silo in self._in(Stage.READY):
            if self._sum is not None and not self._sum.can_begin:
                break
            if len(self._in(Stage.UPLOADING)) >= 2:  # one arrives while the other is folded
                break
            self._stage[silo] = Stage.UPLOADING
            self._router.send(silo, m.Send(self._number))
        for silo in self._in(Stage.WAITING):
            if len(self._in(Stage.COMPUTING, Stage.READY, Stage.UPLOADING)) >= self._slots:
                break
            self._stage[silo] = Stage.COMPUTING
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
                attack, detail = (e.attack, e.detail) if isinstance(e, Refusal) else ("wrong-shape", str(e))
                culprit = (e.culprit if isinstance(e, Refusal) else None) or event.silo
                log.warning("refused (%s): %s: %s", attack, culprit, detail)
                self._runlog.event("refused", silo=culprit, attack=attack, detail=detail)
                self._out(culprit, f"refused ({attack})")

    def _heard(self, silo: str, message: m.Message, payload: Any) -> None:
        if isinstance(message, m.SumStep):
            self._sum_step(silo, message)
            return
        if isinstance(message, m.Hello):
            return
        number = getattr(message, "number", self._number)
        if number != self._number:
            log.info("late: a %s of exchange %d from %s", message.kind, number, silo)
            return
        stage = self._stage[silo]
        if stage is Stage.OUT:
            return
        if isinstance(message, m.Refused):
            self._runlog.event("refused-by-silo", silo=silo, attack=message.attack, detail=message.detail[:300])
            self._out(silo, f"it refused ({message.attack}): {message.detail[:300]}")
        elif isinstance(message, m.Ready) and stage is Stage.COMPUTING:
            self._stage[silo] = Stage.READY
        elif isinstance(message, m.SealedStart) and stage is Stage.UPLOADING and silo not in self._sealed:
            self._sealed[silo] = self._sealed_inbox(message.arrays)
            self._finish_if_complete(silo)
        elif isinstance(message, m.SumStart) and stage is Stage.UPLOADING:
            if self._sum is not None:
                record = UploadRecord.from_record(message.record)
                if record.silo != silo:
                    raise Refusal("key-substitution", f"{silo} sent an upload in the name of {record.silo}")
                self._sum.begin_upload(record)
            elif self._plain is not None:
                self._plain_frames[silo] = []
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
        if message.stream == "sealed" and silo in self._sealed:
            self._sealed[silo].add(message.index, payload)
        elif message.stream == "masked" and self._encoding is not None:
            if len(payload) % 8:
                raise Refusal("wrong-shape", "a frame that is not whole words")
            words = np.frombuffer(payload, "<u8")
            if self._sum is not None:
                self._sum.add_frame(silo, message.index, words)
                if message.index == self._encoding.frames - 1:
                    self._sum.finish_upload(silo)
            elif self._plain is not None:
                frames = self._plain_frames.get(silo)
                if frames is None or message.index != len(frames) or message.index >= self._encoding.frames:
                    raise Refusal("wrong-shape", "a frame out of order")
                if len(words) != self._encoding.frame_words(message.index):
                    raise Refusal("wrong-shape", "a frame of the wrong size")
                frames.append(words.copy())
                if len(frames) == self._encoding.frames:
                    self._plain.add(frames)
                    self._plain_frames[silo] = []
                    self._plain_done(silo)
        else:
            raise Refusal("wrong-shape", f"a piece of {message.stream[:20]!r} that was not announced")
        self._finish_if_complete(silo)

    def _plain_done(self, silo: str) -> None:
        self._plain_frames[silo] = [np.empty(0, np.uint64)]  # marks it complete; any further frame is out of order

    def _finish_if_complete(self, silo: str) -> None:
        sealed = not self._call.exchange.sealed or (silo in self._sealed and self._sealed[silo].complete)
        if self._sum is not None:
            summed = silo in self._sum.uploaded
        elif self._plain is not None:
            frames = self._plain_frames.get(silo)
            summed = bool(frames) and frames is not None and len(frames[0]) == 0
        else:
            summed = True
        if sealed and summed:
            self._stage[silo] = Stage.DONE

    def _out(self, silo: str, why: str) -> None:
        if self._stage.get(silo) in (None, Stage.OUT):
            return
        was, self._stage[silo] = self._stage[silo], Stage.OUT
        log.warning("round %d, %s: %s is out: %s", self._call.round, self._call.exchange.name, silo, why)
        self._runlog.event("out", silo=silo, round=self._call.round, why=why, stage=was.value)
        if self._sum is not None:
            self._sum.lost(silo)

    # Opening the sum -------------------------------------------------------------------------------------------

    def _unmask(self, opened: OpenSum) -> tuple[tuple[str, ...], list[np.ndarray]]:
        proposal = m.SumStep("propose", opened.propose().to_record())
        for silo in opened.uploaded:
            self._router.send(silo, proposal)
        self._wait(lambda: opened.endorsed_enough, "too few silos signed the set of survivors")
        for holder, request in opened.unmask_requests().items():
            self._router.send(holder, m.SumStep("unmask", request.to_record()))
        # From here a stop would lose the round: shares are out and may be asked for only once. It takes milliseconds.
        self._stop = lambda: False
        self._wait(lambda: opened.released_enough, "too few silos released their shares")
        return opened.result()

    def _wait(self, enough: Callable[[], bool], otherwise: str) -> None:
        while not enough():
            if time.monotonic() > self._until or not self._in(Stage.DONE):
                raise SumFailed(otherwise)
            if self._hopeless():
                raise SumFailed(otherwise)
            self._next(0.5)

    def _hopeless(self) -> bool:
        """Even if everybody who is left answers, it will not be enough."""
        assert self._sum is not None
        return len(self._in(Stage.DONE)) < self._sum.threshold

    def _sum_step(self, silo: str, message: m.SumStep) -> None:
        if self._sum is None:
            raise Refusal("channel-downgrade", "a secure sum's message in an exchange without one")
        if message.record.get("h") != self._sum.header.h:
            log.info("late-share: a %s of an earlier sum from %s", message.step[:20], silo)
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
