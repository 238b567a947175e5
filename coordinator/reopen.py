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
from wire.router import Received, Router

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


def reopen(
    kept: KeptSum,
    router: Router,
    *,
    members: Membership,
    roster: Mapping[str, bytes],
    run_id: bytes,
    policy: Policy,
    seconds: float,
    should_stop: Callable[[], bool],
) -> Reopened | None:
    """Ask whoever greets for the shares again. None when too few can say them, within `seconds`."""
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
    pending, until = set(requests), time.monotonic() + seconds
    for silo in members.here & pending:
        router.send(silo, requests[silo])
    while pending and not opened.released_enough and time.monotonic() < until:
        if should_stop():
            raise Interrupted
        event = router.receive(0.5)
        if event is None:
            continue
        if (
            isinstance(event, Received)
            and isinstance(event.message, m.SumStep)
            and event.message.step == "release"
        ):
            try:
                release = ShareRelease.from_record(event.message.record)
                if release.holder != event.silo:
                    raise Refusal(
                        "key-substitution", f"{event.silo} released in the name of another"
                    )
                opened.receive_release(release)
            except Refusal as e:
                log.warning("refused (%s): %s: %s", e.attack, event.silo, e.detail)
            pending.discard(event.silo)
        elif isinstance(event, Received) and isinstance(event.message, m.Refused):
            log.warning(
                "%s cannot say its shares again: %s", event.silo, event.message.detail[:300]
            )
            pending.discard(event.silo)
        else:
            members.take(event)
            if (
                isinstance(event, Received)
                and isinstance(event.message, m.Hello)
                and event.silo in pending
            ):
                router.send(event.silo, requests[event.silo])
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
