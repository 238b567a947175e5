"""How long secure sums take, and how near that is to the machine: `python -m bench.speed.secagg`.

A row per number of silos, size and share of silos killed; how one is measured stands in
bench/speed/secagg_case.py. On a busy machine a single figure says little: each case is run
`--repeat` times (fewer when that would take long), with short bursts of the limit before each, and
medians are taken of both. A peer (bench/speed/secagg_peer.py) is run right after the row that it is
compared with. Rows come as they are measured; with `--resume FILE` they are also kept there, and
those that are already there are not measured again.

~ marks what was put together from measured parts instead of run whole, ours or the peer's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.speed.secagg_case import SAMPLE, Case, Consortium, Measured, run_case
from bench.speed.secagg_peer import Peer, PeerFailed
from crypto.numbers.encoding import Encoding
from crypto.sum.params import parameters

__all__ = ["main"]

_GRID = ([3, 10, 50, 100, 200], [1e5, 1e6, 1e7, 6.6e7], [0.0, 0.1, 0.3])
_QUICK = ([3, 10], [1e5, 1e6, 1e7], [0.0, 0.1])

_HEAD = (
    f"{'n':>4} {'d':>9} {'bits':>4} {'drop':>4} {'k':>4} {'t':>4} | {'setup':>6} {'deal':>7} {'mask':>8} {'fold':>7}"
    f" {'sign':>6} {'release':>7} {'open':>6} {'unmask':>8} | {'total':>8} {'limit':>8} {'x limit':>7} {'GB/s':>9}"
    f" {'ms/silo':>8} {'sent/silo':>11} {'/float32':>8} {'memory':>7} {'sum':>5}"
)
_PEER_HEAD = f" | {'flower s':>9} {'/ours':>7} {'flower B':>11} {'/ours':>5}"


def _row(m: Measured) -> str:
    c, s = m.case, defaultdict(float, m.seconds)
    mark = "~" if m.exact is None else " "
    vector = Encoding(c.bits, c.n, (c.d,), (2.0,)).bytes
    speed = (m.degree + 1) * c.n * vector / s["mask"] / 1e9 if s["mask"] else 0.0
    verdict = {True: "exact", False: "WRONG", None: "-"}[m.exact]
    return (
        f"{c.n:>4} {c.d:>9} {c.bits:>4} {c.dropout:>4.0%} {m.degree:>4} {m.threshold:>4} | {s['setup']:>6.2f}"
        f" {s['deal']:>7.3f} {s['mask']:>8.3f} {s['fold']:>7.3f} {s['sign']:>6.3f} {s['release']:>7.3f}"
        f" {s['open']:>6.3f} {s['unmask']:>8.3f} |{mark}{m.total:>8.3f} {m.limit:>8.3f} {m.total / m.limit:>7.2f}"
        f" {speed:>4.1f}/{m.gbps:<4.1f} {1000 * m.per_silo:>8.1f} {m.upload:>11} {m.upload / (4 * c.d):>8.3f}"
        f" {m.memory / (4 * c.d):>6.2f}v {verdict:>5}"
    )


def _beside(m: Measured, peer: dict[str, Any]) -> str:
    if "failed" in peer:
        return f" | {peer['failed']}"
    mark = "~" if peer["scaled"] else " "
    return (
        f" |{mark}{peer['total']:>9.2f} {peer['total'] / m.total:>7.1f} {peer['upload']:>11}"
        f" {peer['upload'] / m.upload:>5.2f}"
    )


def _cases(asked: argparse.Namespace) -> list[Case]:
    silos, sizes, dropouts = _QUICK if asked.quick else _GRID
    silos, sizes, dropouts = asked.n or silos, asked.d or sizes, asked.dropouts or dropouts
    return [
        Case(n, int(d), bits, dropout, asked.threads)
        for n, d, dropout, bits in itertools.product(silos, sizes, dropouts, asked.bits)
        # More than the threshold allows, and the sum would fail, as it must.
        if n > 64 or round(dropout * n) <= n - parameters(n).n_min
    ]


def _kept(path: Path | None) -> dict[str, dict[str, Any]]:
    """What was measured before, by case."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {json.dumps(row["case"]): row for row in rows}


def _read(row: dict[str, Any]) -> Measured:
    return Measured(**{k: v for k, v in row.items() if k != "peer"} | {"case": Case(**row["case"])})


def _dropped(case: Case) -> int:
    """Those of ours that die before their upload is complete: what the peer is asked to do
    without.
    """
    return round(case.dropout * case.n / 2)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, nargs="+", help="silos")
    parser.add_argument("--d", type=float, nargs="+", help="parameters")
    parser.add_argument("--bits", type=int, nargs="+", default=[21], choices=(32, 21, 16))
    parser.add_argument(
        "--dropouts", type=float, nargs="+", default=None, help="shares of silos killed"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="3 and 10 silos, up to 1e7 parameters, dropouts to 10 %%",
    )
    parser.add_argument(
        "--budget", type=float, default=400.0, help="GB of keystream up to which a sum is run whole"
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of each case, of which the median is shown"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--peer", choices=("flower",), help="also run this framework, in an environment of its own"
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "sottovoce")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep rows here, and do not measure them again"
    )
    asked = parser.parse_args(arguments)
    cases, kept = _cases(asked), _kept(asked.resume)
    peer = Peer(asked.cache, max(asked.repeat, 1)) if asked.peer else None
    print(
        f"CPU seconds, all silos and the coordinator together; v: vectors of float32; ~: not run whole "
        f"(ours from {SAMPLE} silos, the peer's from smaller vectors)"
    )
    print(_HEAD + (_PEER_HEAD if peer else ""))
    # of the number of silos that is measured now, by share killed
    consortia: dict[float, Consortium] = {}
    wrong = False
    for at, case in enumerate(cases, start=1):
        row = kept.get(json.dumps(asdict(case)))
        if row is None:
            _say(
                f"[{at}/{len(cases)}] {case.n} silos, {case.d} parameters, {case.dropout:.0%} killed …"
            )
            if any(consortium.n != case.n for consortium in consortia.values()):
                consortia.clear()
            if case.dropout not in consortia:
                consortia[case.dropout] = Consortium(case.n, case.dropout, case.threads)
            measured = run_case(consortia[case.dropout], case, asked.budget, max(asked.repeat, 1))
            row = asdict(measured)
        fresh = json.dumps(asdict(case)) not in kept
        if peer is not None and "peer" not in row:
            try:
                row["peer"] = peer.measure(case.n, case.d, _dropped(case))
            except PeerFailed as failure:
                row["peer"] = {"failed": str(failure)}
            fresh = True
        measured = _read(row)
        wrong |= measured.exact is False
        print(_row(measured) + (_beside(measured, row["peer"]) if peer else ""), flush=True)
        if fresh and asked.resume:
            with asked.resume.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    _say("")
    return 1 if wrong else 0


def _say(text: str) -> None:
    """What is being measured, where somebody is looking."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
