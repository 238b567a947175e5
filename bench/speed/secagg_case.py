"""One secure sum of a stated size, measured: what `python -m bench.speed.secagg` prints a row of.

One sum over n silos of d parameters, in one process, every message made and checked, with silos
killed at random steps. The clock is CPU time (all silos and the coordinator together). Beside it
stands the limit, measured in the same run: the time that drawing the needed keystream and adding it
would take on its own. Every result is compared with the plain sum of the survivors, word for word.

Where a whole sum would draw more keystream than a budget, it is put together from parts that were
all measured:

- what does not depend on d (signatures, shares, seeds) from a whole sum over the same silos with
  SMALL parameters;
- dealing, masking and folding from SAMPLE silos at full size, times the number of silos that
  upload;
- removing masks from at most MOST_REMOVED of them, times their number; decoding as it is.

Such a sum has no result to compare.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import psutil

from crypto.identity.keys import Identity
from crypto.numbers.encoding import FRAME_WORDS, Encoding
from crypto.numbers.prg import Mask, add_masks
from crypto.sum.coordinator import CoordinatorSetup, OpenSum
from crypto.sum.params import Policy, parameters
from crypto.sum.records import SumHeader
from crypto.sum.silo import Limits, MemoryJournal, SiloSum

__all__ = ["SAMPLE", "Case", "Consortium", "Measured", "keystream_bursts", "run_case"]

_DEATHS = ("upload", "half", "sign", "share")
SAMPLE = 4  #: silos whose uploads are measured where not all are
#: and how many go before them: the coordinator's first buffers are fresh memory, once per sum
_WARM = 2
SMALL = 100_000
MOST_REMOVED = 256
_PATIENCE = 5.0  #: CPU seconds after which a case is not repeated


@dataclass(frozen=True)
class Case:
    n: int
    d: int
    bits: int = 21
    dropout: float = 0.0
    threads: int = 1


def policy_of(dropout: float) -> Policy:
    """Beyond 64 silos a ring is made for the dropout it must survive."""
    return Policy(dropout=max(0.1, dropout))


@dataclass(frozen=True, kw_only=True)
class Measured:
    case: Case
    seconds: dict[str, float]  #: CPU seconds by step, all silos together
    limit: float  #: CPU seconds of the keystream and adds alone
    gbps: float  #: of keystream and add, alone
    degree: int
    threshold: int
    survivors: int
    upload: int  #: bytes per silo: frames and record
    #: bytes by which the process grew during the sum: all that the coordinator holds, and a frame
    #: per silo
    memory: int
    exact: bool | None  #: None where the sum was put together from parts
    runs: int  #: of which this is the one with the median total

    @property
    def total(self) -> float:
        return sum(seconds for step, seconds in self.seconds.items() if step != "setup")

    @property
    def per_silo(self) -> float:
        return sum(self.seconds[step] for step in ("deal", "mask", "sign", "release")) / self.case.n


def keystream_bursts(masks: int = 10, seconds: float = 0.2, threads: int = 1) -> list[float]:
    """Bytes per CPU second of keystream drawn and added in place, to one frame, in each of many
    short runs.
    """
    words = np.zeros(FRAME_WORDS, np.dtype("<u8"))
    drawn = [Mask(bytes([i]) * 16, 1) for i in range(masks)]
    speeds: list[float] = []
    end = time.perf_counter() + seconds
    while not speeds or time.perf_counter() < end:
        start = time.process_time()
        add_masks(words, drawn, 0, threads)
        speeds.append(words.nbytes * masks / max(time.process_time() - start, 1e-9))
    return speeds


class Consortium:
    """Silos and a coordinator in one process, enrolled, with a stopwatch. Made once for all sizes
    of a vector.
    """

    def __init__(self, n: int, dropout: float, threads: int = 1) -> None:
        self.n, self.dropout, self.threads = n, dropout, threads
        self.policy = policy_of(dropout)
        self.names = tuple(f"silo-{i:04d}" for i in range(n))
        identities = {name: Identity.generate() for name in self.names}
        roster = {name: identity.public for name, identity in identities.items()}
        limits = Limits(policy=self.policy, threads=threads)
        run = os.urandom(16)
        self.silos = {
            name: SiloSum(
                name,
                identities[name],
                roster=roster,
                run_id=run,
                limits=limits,
                journal=MemoryJournal(),
            )
            for name in self.names
        }
        self.setup = CoordinatorSetup(roster, run, self.policy)
        self.spent: dict[str, float] = defaultdict(float)
        self._number = 0
        with self.clock("setup"):
            self._enrol()

    def take(self, bits: int, d: int) -> None:
        """The sums to come are over d parameters."""
        self.encoding = Encoding(bits, self.n, (d,), (2.0,))
        self.vector = np.random.default_rng(0).normal(0, 0.5, d).astype(np.float32)

    @contextmanager
    def clock(self, step: str) -> Iterator[None]:
        start = time.process_time()
        try:
            yield
        finally:
            self.spent[step] += time.process_time() - start

    def _enrol(self) -> None:
        for silo in self.silos.values():
            self.setup.receive_offer(silo.offer())
        keys = self.setup.key_list()
        for silo in self.silos.values():
            self.setup.receive_reveal(silo.receive_keys(keys))
        nonces = self.setup.nonce_list()
        for silo in self.silos.values():
            silo.receive_nonces(nonces)

    def open(self, asked: Sequence[str]) -> OpenSum:
        """A sum over all, of which those `asked` hear."""
        self._number += 1
        header = SumHeader(
            sid=self.setup.sid,
            round=self._number,
            exchange="bench",
            number=self._number,
            broadcast=bytes(32),
            alive=self.names,
            encoding=self.encoding,
            weight_cap=1.0,
        )
        for name in asked:
            self.silos[name].begin(header, bytes(32), self.encoding.sizes)
        return OpenSum(header, self.setup, threads=self.threads)

    def upload(self, opened: OpenSum, name: str, stop: bool = False) -> int:
        """One silo's upload, which breaks off before its last frame if `stop`; the bytes that it
        sent.
        """
        with self.clock("deal"):
            record, frames = self.silos[name].upload([self.vector])
        with self.clock("fold"):
            opened.begin_upload(record)
        for index in range(self.encoding.frames):
            with self.clock("mask"):
                words = next(frames)
            if stop and index == self.encoding.frames - 1:
                opened.lost(name)
                return 0
            with self.clock("fold"):
                opened.add_frame(name, index, words)
        with self.clock("fold"):
            opened.finish_upload(name)
        return self.encoding.bytes + len(msgpack.packb(record.to_record()))

    def deaths(self) -> dict[str, str]:
        rng = np.random.default_rng(1)
        killed = rng.permutation(self.n)[: round(self.dropout * self.n)]
        return {self.names[i]: _DEATHS[k % len(_DEATHS)] for k, i in enumerate(killed)}

    def whole(self) -> tuple[int, int, int, bool]:
        """A whole sum: its survivors, the bytes a silo sent, the process's peak, and whether it was
        exact.
        """
        opened = self.open(self.names)
        dead = self.deaths()
        sent = 0
        for name in self.names:
            if dead.get(name) == "upload":
                opened.lost(name)
            else:
                sent = max(sent, self.upload(opened, name, dead.get(name) == "half"))
        proposals = opened.propose()
        for name in opened.reachable:
            if dead.get(name, "share") == "share":
                with self.clock("sign"):
                    endorsement = self.silos[name].endorse(proposals[name])
                with self.clock("open"):
                    opened.receive_endorsement(endorsement)
        with self.clock("open"):
            requests = opened.unmask_requests()
        for name, request in requests.items():
            if name not in dead and not opened.released_enough:
                with self.clock("release"):
                    release = self.silos[name].release(request)
                with self.clock("open"):
                    opened.receive_release(release)
        with self.clock("unmask"):
            survivors, (total,) = opened.result()
        peak = _peak()
        once = np.concatenate([frame.copy() for frame in self.encoding.encode([self.vector], b"")])
        (expected,) = self.encoding.decode(once * np.uint64(len(survivors)), len(survivors))
        return len(survivors), sent, peak, bool(np.array_equal(total, expected))

    def parts(self, degree: int) -> tuple[int, int, int]:
        """The same, except for the verdict, from parts; the stopwatch shows what a whole one would
        take.
        """
        bits, d = self.encoding.lane_bits, self.encoding.elements
        self.take(bits, SMALL)
        survivors, *_ = self.whole()
        small, self.spent = self.spent, defaultdict(float)
        self.take(bits, d)
        _forget_peak()
        asked = self.names[: _WARM + SAMPLE]
        opened = self.open(asked)
        sent = 0
        for at, name in enumerate(asked):
            if at == _WARM:
                self.spent.clear()
            sent = self.upload(opened, name)
        uploads = self.n - sum(death == "upload" for death in self.deaths().values())
        for step in ("deal", "mask", "fold"):
            self.spent[step] *= uploads / SAMPLE
        masks = opened_masks(self.n, survivors, degree)
        removed = [Mask(os.urandom(16), -1) for _ in range(min(masks, MOST_REMOVED))]
        total = opened._running.total
        assert total is not None
        opened._running.drop_buffers()  # as `propose` does
        with self.clock("remove"):
            for at in range(0, len(total), FRAME_WORDS):
                add_masks(total[at : at + FRAME_WORDS], removed, at, self.threads)
        with self.clock("unmask"):
            list(self.encoding.decode(total, self.n))
        self.spent["unmask"] += self.spent.pop("remove") * masks / len(removed)
        self.spent |= {step: small[step] for step in ("sign", "release", "open")}
        return survivors, sent, _peak()


def _peak() -> int:
    """This process's resident bytes at their highest since `_forget_peak`, which only Linux can
    tell: psutil has no such figure.
    """
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def _forget_peak() -> int:
    """Start the peak afresh (making the inputs took more than the sum will); what is resident
    now.
    """
    Path("/proc/self/clear_refs").write_text("5")
    return int(psutil.Process().memory_info().rss)


def run_case(consortium: Consortium, case: Case, budget: float, repeat: int = 1) -> Measured:
    """Measure one case, in a process of its own so that its memory is its own."""
    queue: Any = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(
        target=lambda: queue.put(_measure(consortium, case, budget, repeat))
    )
    child.start()
    child.join()
    if child.exitcode:
        raise SystemExit(f"the case {case} ended with status {child.exitcode}")
    return queue.get()


def _measure(consortium: Consortium, case: Case, budget: float, repeat: int) -> Measured:
    p = parameters(case.n, consortium.policy)
    setup = consortium.spent["setup"]
    warm = Consortium(3, 0.0)
    warm.take(case.bits, 1000)
    warm.whole()
    consortium.take(case.bits, case.d)
    vector_bytes = consortium.encoding.bytes
    # the +2: a self mask at the silo and again at the coordinator
    drawn = case.n * (p.degree + 2) * vector_bytes
    bursts: list[float] = []
    runs: list[dict[str, float]] = []
    before = _forget_peak()
    memory, exact = 0, None
    while len(runs) < repeat and sum(sum(run.values()) for run in runs) < _PATIENCE:
        bursts += keystream_bursts(min(p.degree + 1, 64), threads=case.threads)
        consortium.spent = defaultdict(float)
        if drawn <= budget * 1e9:
            survivors, sent, peak, right = consortium.whole()
            exact = right and exact is not False
        else:
            survivors, sent, peak = consortium.parts(p.degree)
        memory = memory or peak - before
        runs.append(dict(consortium.spent))
    gbps = statistics.median(bursts)
    needed = (case.n * (p.degree + 1) + opened_masks(case.n, survivors, p.degree)) * vector_bytes
    spent = sorted(runs, key=lambda run: sum(run.values()))[(len(runs) - 1) // 2] | {"setup": setup}
    return Measured(
        case=case,
        seconds=spent,
        limit=needed / gbps,
        gbps=gbps / 1e9,
        degree=p.degree,
        threshold=p.threshold,
        survivors=survivors,
        upload=sent,
        memory=memory,
        exact=exact,
        runs=len(runs),
    )


def opened_masks(n: int, survivors: int, degree: int) -> int:
    """Masks that the coordinator removes: every survivor's own, and those on edges to the
    dropped.
    """
    return survivors + survivors * (n - survivors) * degree // max(n - 1, 1)
