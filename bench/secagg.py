"""How long a secure sum takes, and how near that is to the machine: `python -m bench.secagg`.

One sum over n silos of d parameters, in one process, every message made and checked, with silos killed at random
steps. The clock is CPU time (all silos and the coordinator together). Beside it stands the limit, measured in the same
run: the time that drawing the needed keystream and adding it would take on its own. Every result is compared with the
plain sum of the survivors, word for word.

On a busy machine a single figure says little. So each case is run `--repeat` times, with short bursts of the limit
before each, and medians are taken of both: the row is the run with the median total, the limit the median burst. A peer
is run as often, right after the rows that it is compared with.

Where a whole sum would draw more keystream than `--budget` GB, two silos' uploads are measured instead and the rest
scaled from them; such rows are marked with ~ and their result is not compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from bench.secagg_peer import PeerFailed, measure_peer
from crypto.coordinator_sum import CoordinatorSetup, OpenSum
from crypto.encoding import FRAME_WORDS, Encoding
from crypto.keys import Identity
from crypto.params import Policy, parameters
from crypto.prg import Mask, add_masks
from crypto.records import SumHeader
from crypto.silo_sum import Limits, MemoryJournal, SiloSum

__all__ = ["Case", "Measured", "keystream_bursts", "main", "run_case"]

_DEATHS = ("upload", "half", "sign", "share")


@dataclass(frozen=True)
class Case:
    n: int
    d: int
    bits: int = 21
    dropout: float = 0.0
    threads: int = 1

    @property
    def policy(self) -> Policy:
        # Beyond 64 silos a ring is made for the dropout it must survive.
        return Policy(dropout=max(0.1, self.dropout))


@dataclass(frozen=True)
class Measured:
    case: Case
    seconds: dict[str, float]  #: CPU seconds by step, all silos together
    limit: float  #: CPU seconds of the keystream and adds alone
    gbps: float  #: of keystream and add, alone
    degree: int
    threshold: int
    survivors: int
    upload: int  #: bytes per silo: frames and record
    memory: int  #: bytes by which the process grew during the sum: all that the coordinator holds, and a frame per silo
    exact: bool | None  #: None where the sum was scaled from a sample

    @property
    def total(self) -> float:
        return sum(seconds for step, seconds in self.seconds.items() if step != "setup")

    @property
    def per_silo(self) -> float:
        return sum(self.seconds[step] for step in ("deal", "mask", "sign", "release")) / self.case.n


def keystream_bursts(masks: int = 10, seconds: float = 0.2, threads: int = 1) -> list[float]:
    """Bytes per CPU second of keystream drawn and added in place, to one frame, in each of many short runs."""
    words = np.zeros(FRAME_WORDS, np.dtype("<u8"))
    drawn = [Mask(bytes([i]) * 16, 1) for i in range(masks)]
    speeds: list[float] = []
    end = time.perf_counter() + seconds
    while not speeds or time.perf_counter() < end:
        start = time.process_time()
        add_masks(words, drawn, 0, threads)
        speeds.append(words.nbytes * masks / max(time.process_time() - start, 1e-9))
    return speeds


class _Bench:
    """A consortium in one process, with a stopwatch."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.names = tuple(f"silo-{i:04d}" for i in range(case.n))
        identities = {name: Identity.generate() for name in self.names}
        roster = {name: identity.public for name, identity in identities.items()}
        limits = Limits(policy=case.policy, threads=case.threads)
        run = os.urandom(16)
        self.silos = {
            name: SiloSum(name, identities[name], roster, run, limits, MemoryJournal()) for name in self.names
        }
        self.setup = CoordinatorSetup(roster, run, case.policy)
        self.spent: dict[str, float] = defaultdict(float)
        self.encoding = Encoding(case.bits, case.n, (case.d,), (2.0,))
        self.vector = np.random.default_rng(0).normal(0, 0.5, case.d).astype(np.float32)
        with self.clock("setup"):
            self._enrol()

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

    def open(self, number: int) -> OpenSum:
        header = SumHeader(
            self.setup.sid, number, "bench", number, bytes(32), self.names, self.encoding, 1.0
        )
        for silo in self.silos.values():
            silo.begin(header, bytes(32), (self.case.d,))
        return OpenSum(header, self.setup, threads=self.case.threads)

    def upload(self, opened: OpenSum, name: str, stop: bool = False) -> int:
        """One silo's upload, which breaks off before its last frame if `stop`; the bytes that it sent."""
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
        killed = rng.permutation(self.case.n)[: round(self.case.dropout * self.case.n)]
        return {self.names[i]: _DEATHS[k % len(_DEATHS)] for k, i in enumerate(killed)}

    def whole(self, number: int) -> tuple[OpenSum, int, int, bool]:
        """A whole sum: what was opened, the bytes a silo sent, the process's peak, and whether it was exact."""
        opened = self.open(number)
        dead = self.deaths()
        sent = 0
        for name in self.names:
            if dead.get(name) == "upload":
                opened.lost(name)
            else:
                sent = max(sent, self.upload(opened, name, dead.get(name) == "half"))
        proposal = opened.propose()
        for name in opened.reachable:
            if dead.get(name, "share") == "share":
                with self.clock("sign"):
                    endorsement = self.silos[name].endorse(proposal)
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
        peak = _resident("VmHWM")
        once = np.concatenate([frame.copy() for frame in self.encoding.encode([self.vector], b"")])
        (expected,) = self.encoding.decode(once * np.uint64(len(survivors)), len(survivors))
        return opened, sent, peak, bool(np.array_equal(total, expected))


def _resident(field: str) -> int:
    """This process's resident bytes now (VmRSS) or at their highest (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith(field)).split()[1])


def _forget_peak() -> int:
    """Start the peak afresh (making the inputs took more than the sum will); what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _resident("VmRSS")


def run_case(case: Case, budget: float, repeat: int = 1) -> Measured:
    """Measure one case, in a process of its own so that its memory is its own."""
    queue: Any = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=lambda: queue.put(_measure(case, budget, repeat)))
    child.start()
    child.join()
    if child.exitcode:
        raise SystemExit(f"the case {case} ended with status {child.exitcode}")
    return queue.get()


def _measure(case: Case, budget: float, repeat: int) -> Measured:
    p = parameters(case.n, case.policy)
    vector_bytes = Encoding(case.bits, case.n, (case.d,), (2.0,)).bytes
    drawn = case.n * (p.degree + 2) * vector_bytes  # the +2: a self mask at the silo and again at the coordinator
    bench = _Bench(case)
    _Bench(Case(3, 1000, case.bits)).whole(1)  # warm
    setup = bench.spent["setup"]
    bursts: list[float] = []
    runs: list[dict[str, float]] = []
    before = _forget_peak()
    memory, exact = 0, None
    for number in range(1, repeat + 1):
        bursts += keystream_bursts(min(p.degree + 1, 64), threads=case.threads)
        bench.spent = defaultdict(float)
        if drawn <= budget * 1e9:
            opened, sent, peak, right = bench.whole(number)
            survivors = len(opened.survivors)
            exact = right and exact is not False
        else:
            # Two silos measured and scaled to all; of the opening, the masks that must be removed.
            opened = bench.open(number)
            sent = max(bench.upload(opened, name) for name in bench.names[:2])
            for step in ("deal", "mask", "fold"):
                bench.spent[step] *= case.n / 2
            survivors = case.n - round(case.dropout * case.n / 2)
            bench.spent["unmask"] = _opened(case, survivors, p.degree) * vector_bytes / statistics.median(bursts)
            bench.spent["sign"] = bench.spent["release"] = bench.spent["open"] = 0.0
            peak = _resident("VmHWM")
        memory = memory or peak - before
        runs.append(dict(bench.spent))
    gbps = statistics.median(bursts)
    needed = (case.n * (p.degree + 1) + _opened(case, survivors, p.degree)) * vector_bytes
    spent = sorted(runs, key=lambda run: sum(run.values()))[(len(runs) - 1) // 2] | {"setup": setup}
    return Measured(
        case, spent, needed / gbps, gbps / 1e9, p.degree, p.threshold, survivors, sent, memory, exact
    )


def _opened(case: Case, survivors: int, degree: int) -> int:
    """Masks that the coordinator removes: every survivor's own, and those on edges to the dropped."""
    return survivors + survivors * (case.n - survivors) * degree // max(case.n - 1, 1)


_HEAD = (
    f"{'n':>5} {'d':>9} {'bits':>4} {'drop':>5} {'k':>4} {'t':>4} | {'setup':>7} {'deal':>7} {'mask':>8} {'fold':>7}"
    f" {'sign':>6} {'release':>7} {'open':>6} {'unmask':>7} | {'total':>8} {'limit':>8} {'x limit':>7} {'GB/s':>6}"
    f" {'ms/silo':>8} {'sent/silo':>11} {'/float32':>8} {'memory':>8}  sum"
)


def _row(m: Measured) -> str:
    c, s = m.case, defaultdict(float, m.seconds)
    mark = "~" if m.exact is None else " "
    drawn = (m.degree + 1) * c.n * Encoding(c.bits, c.n, (c.d,), (2.0,)).bytes
    speed = drawn / s["mask"] / 1e9 if s["mask"] else 0.0
    verdict = {True: "exact", False: "WRONG", None: "not compared"}[m.exact]
    return (
        f"{c.n:>5} {c.d:>9} {c.bits:>4} {c.dropout:>5.0%} {m.degree:>4} {m.threshold:>4} | {s['setup']:>7.2f}"
        f" {s['deal']:>7.3f} {s['mask']:>8.3f} {s['fold']:>7.3f} {s['sign']:>6.3f} {s['release']:>7.3f}"
        f" {s['open']:>6.3f} {s['unmask']:>7.3f} |{mark}{m.total:>8.3f} {m.limit:>8.3f} {m.total / m.limit:>7.2f}"
        f" {speed:>4.1f}/{m.gbps:<.1f} {1000 * m.per_silo:>8.1f} {m.upload:>11} {m.upload / (4 * c.d):>8.3f}"
        f" {m.memory / (4 * c.d):>7.2f}v  {verdict}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", help="silos")
    parser.add_argument("--d", type=float, nargs="+", help="parameters")
    parser.add_argument("--bits", type=int, nargs="+", default=[21], choices=(32, 21, 16))
    parser.add_argument("--dropouts", type=float, nargs="+", default=None, help="shares of silos killed")
    parser.add_argument("--full", action="store_true", help="n up to 200, d up to 6.6e7, dropouts up to 30 %%")
    parser.add_argument("--budget", type=float, default=None, help="GB of keystream up to which a sum is run whole")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each case, of which the median is shown")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", choices=("flower",), help="also run this framework, in an environment of its own")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "sottovoce")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    asked = parser.parse_args(arguments)
    silos = asked.n or ([3, 10, 50, 100, 200] if asked.full else [3, 10])
    sizes = [int(d) for d in asked.d or ([1e5, 1e6, 1e7, 6.6e7] if asked.full else [1e5, 1e6, 1e7])]
    dropouts = asked.dropouts if asked.dropouts is not None else ([0.0, 0.1, 0.3] if asked.full else [0.0, 0.1])
    budget = asked.budget if asked.budget is not None else (60.0 if asked.full else 20.0)
    print("CPU seconds, all silos and the coordinator together; v: vectors of float32; ~: scaled from two silos")
    print(_HEAD)
    rows: list[dict[str, Any]] = []
    compared: list[str] = []
    wrong = False
    for n, d, dropout in itertools.product(silos, sizes, dropouts):
        if round(dropout * n) > n - parameters(n).n_min and n <= 64:
            continue  # more than the threshold allows: the sum would fail, as it must
        fresh = []
        for bits in asked.bits:
            measured = run_case(Case(n, d, bits, dropout, asked.threads), budget, max(asked.repeat, 1))
            print(_row(measured), flush=True)
            fresh.append(asdict(measured) | {"total": measured.total})
            wrong |= measured.exact is False
        if asked.peer and n * n * d <= 2e9:  # beyond, it would take hours
            compared += _compare(fresh, asked.cache, max(asked.repeat, 1))
        rows += fresh
    if compared:
        print(f"\n{'n':>5} {'d':>9} {'drop':>5} {'bits':>4} | {'flower s':>9} {'ours s':>8} {'ratio':>6} |"
              f" {'flower B':>11} {'ours B':>11} {'ratio':>6}  version, stages")  # fmt: skip
        print("\n".join(compared))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if wrong else 0


def _compare(rows: list[dict[str, Any]], cache: Path, repeat: int) -> list[str]:
    """The peer on the size that all these rows are of, the median of several runs, and the ratios as lines."""
    n, d, dropout = (rows[0]["case"][name] for name in ("n", "d", "dropout"))
    dropped = round(dropout * n / 2)  # those of ours that die before their upload is complete
    try:
        runs = sorted((measure_peer(n, d, dropped, cache) for _ in range(repeat)), key=lambda run: run["total"])
    except PeerFailed as failure:
        return [f"{n:>5} {d:>9}: {failure}"]
    peer = runs[(len(runs) - 1) // 2]
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in peer["seconds"].items())
    lines = []
    for row in rows:
        row["peer"] = peer
        lines.append(
            f"{n:>5} {d:>9} {dropout:>5.0%} {row['case']['bits']:>4} | {peer['total']:>9.2f} {row['total']:>8.3f}"
            f" {peer['total'] / row['total']:>6.1f} | {peer['upload']:>11} {row['upload']:>11}"
            f" {peer['upload'] / row['upload']:>6.2f}  flwr {peer['version']}, {stages}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
