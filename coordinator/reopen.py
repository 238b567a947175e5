"""A sum that is being opened, on the coordinator's disk: written before shares are asked for,
removed when it is kept.

A coordinator that dies in between finds it here, asks the same silos the very same questions, and
they give the very same answers (silo/kept_shares.py): the round is not lost, and nothing is opened
twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from safetensors.numpy import load_file

from coordinator.exchange import Interrupted
from coordinator.membership import Membership
from coordinator.unmask import ASK_AGAIN
from coordinator.waiting import LACKS, Patience, Wait
from crypto.errors import Refusal
from crypto.sum.coordinator import OpenSum, SumFailed
from crypto.sum.coordinator_kept import freeze, thaw
from crypto.sum.coordinator_setup import CoordinatorSetup
from crypto.sum.params import Policy
from crypto.sum.records import ShareRelease
from methods.base import silo_name
from methods.common.arrays import save_arrays
from wire import messages as m
from wire.crowd import when_descriptors_are_free
from wire.router import Event, Received, Router

__all__ = ["KeptSum", "Reopened", "discard", "keep", "read"]

log = logging.getLogger("coordinator")
_FILE = "sum.safetensors"


@dataclass(frozen=True)
class KeptSum:
    round: int
    index: int  #: of the exchange in its round
    cohort: tuple[int, ...]  #: who was asked
    record: Any
    words: np.ndarray
    sealed: Mapping[int, Mapping[str, np.ndarray]]
    charged: Sequence[Mapping[str, Any]] = ()  #: what silos said their ledgers were charged for it


@dataclass(frozen=True)
class Reopened:
    round: int
    index: int
    cohort: tuple[int, ...]
    survivors: tuple[str, ...]
    sums: Sequence[np.ndarray]
    sealed: Mapping[int, Mapping[str, np.ndarray]]
    charged: Sequence[Mapping[str, Any]]


def keep(
    folder: Path,
    *,
    round: int,
    index: int,
    cohort: tuple[int, ...],
    opened: OpenSum,
    setup: CoordinatorSetup,
    sealed: Mapping[int, Mapping[str, np.ndarray]],
    charged: Sequence[Mapping[str, Any]],
) -> None:
    folder.mkdir(exist_ok=True)
    record, words = freeze(opened, setup)
    table = {"round": round, "index": index, "cohort": list(cohort), "record": record}
    about = msgpack.packb({**table, "charged": list(charged)}, use_bin_type=True)
    arrays = {f"sealed:{i}:{name}": a for i, table in sealed.items() for name, a in table.items()}
    arrays |= {"about": np.frombuffer(about, np.uint8), "words": words}
    when_descriptors_are_free(lambda: save_arrays(folder / _FILE, arrays))


def read(folder: Path) -> KeptSum | None:
    path = folder / _FILE
    if not path.exists():
        return None
    arrays = load_file(path)
    about = msgpack.unpackb(arrays.pop("about").tobytes(), raw=False)
    words = arrays.pop("words")
    sealed: dict[int, dict[str, np.ndarray]] = {}
    for key, value in arrays.items():
        _, index, name = key.split(":", 2)
        sealed.setdefault(int(index), {})[name] = value
    return KeptSum(
        round=about["round"],
        index=about["index"],
        cohort=tuple(about["cohort"]),
        record=about["record"],
        words=words,
        sealed=sealed,
        charged=about.get("charged", ()),
    )


def discard(folder: Path) -> None:
    (folder / _FILE).unlink(missing_ok=True)


class _Asking:
    """Who has said its shares, who may still say them, and who cannot."""

    def __init__(
        self,
        opened: OpenSum,
        router: Router,
        members: Membership,
        requests: Mapping[str, m.SumStep],
    ) -> None:
        self._opened, self._router, self._members = opened, router, members
        self._requests, self._pending = requests, set(requests)
        self._said: set[str] = set()
        self._later: dict[str, float] = {}  # whose disk was full -> when it is asked again

    def run(
        self, seconds: float, patience: Patience | None, should_stop: Callable[[], bool]
    ) -> None:
        until, soon = time.monotonic() + seconds, time.monotonic() + ASK_AGAIN
        wait: Wait | None = None
        for silo in self._members.here & self._pending:
            self._router.send(silo, self._requests[silo])
        while self._pending and not self._opened.released_enough:
            now = time.monotonic()
            if patience is None and now >= until:
                return
            if patience is not None and len(self._said | self._pending) < self._opened.needed:
                return
            if should_stop():
                raise Interrupted
            if patience is not None and now >= soon:
                wait = wait or patience.wait()
                wait.say(self._pending, len(self._said), self._opened.needed, LACKS)
                if wait.left <= 0:
                    raise patience.missed(self._pending)
            for silo in [s for s, when in self._later.items() if now >= when]:
                del self._later[silo]
                self._router.send(silo, self._requests[silo])
            if (event := self._router.receive(0.5)) is not None:
                self._take(event)
        if wait is not None:
            wait.over(len(self._said))

    def _take(self, event: Event) -> None:
        silo = event.silo
        message = event.message if isinstance(event, Received) else None
        if isinstance(message, m.SumStep) and message.step == "release":
            try:
                release = ShareRelease.from_record(message.record)
                if release.holder != silo:
                    raise Refusal("key-substitution", f"{silo} released in the name of another")
                self._opened.receive_release(release)
                self._said.add(silo)
            except Refusal as e:
                log.warning("refused (%s): %s: %s", e.attack, silo, e.detail)
            self._pending.discard(silo)
        elif isinstance(message, m.Refused):
            log.warning("%s cannot say its shares again: %s", silo, message.detail[:300])
            if message.attack == "disk":  # when it has room again, it can
                self._later[silo] = time.monotonic() + ASK_AGAIN
            else:
                self._pending.discard(silo)
        else:
            self._members.take(event)
            if isinstance(message, m.Hello) and silo in self._pending:
                self._router.send(silo, self._requests[silo])


def reopen(
    kept: KeptSum,
    router: Router,
    *,
    members: Membership,
    roster: Mapping[str, bytes],
    run_id: bytes,
    policy: Policy,
    seconds: float,
    patience: Patience | None = None,
    should_stop: Callable[[], bool],
) -> Reopened | None:
    """Ask whoever greets for the shares again. None when too few can say them, within `seconds`, or,
    with `patience`, when it is certain; WaitedInVain when that is at its end.
    """
    try:
        opened = thaw(kept.record, kept.words, roster, run_id, policy)
        requests = {
            h: m.SumStep("unmask", r.to_record()) for h, r in opened.unmask_requests().items()
        }
    except (Refusal, SumFailed) as e:
        log.error(
            "the sum of round %d that was being opened cannot be read back: %s", kept.round, e
        )
        return None
    asking = _Asking(opened, router, members, requests)
    asking.run(seconds, patience, should_stop)
    try:
        survivors, sums = opened.result()
    except (Refusal, SumFailed) as e:
        log.warning("round %d: the sum that was being opened stays closed: %s", kept.round, e)
        return None
    sealed = {i: table for i, table in kept.sealed.items() if silo_name(i) in survivors}
    return Reopened(
        round=kept.round,
        index=kept.index,
        cohort=kept.cohort,
        survivors=survivors,
        sums=sums,
        sealed=sealed,
        charged=kept.charged,
    )
