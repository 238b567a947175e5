"""The bench of secure sums: what it covers, what it puts together from parts, and that it does not
measure twice.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

import bench.speed.secagg
import bench.speed.secagg_case
import bench.speed.secagg_peer
from bench.speed.secagg_case import Case, Consortium, run_case
from bench.speed.secagg_peer import Peer


def test_the_grid_is_whole() -> None:
    asked = argparse.Namespace(quick=False, n=None, d=None, dropouts=None, bits=[21], threads=1)
    cases = {(c.n, c.d, c.dropout) for c in bench.speed.secagg._cases(asked)}
    sizes = (10**5, 10**6, 10**7, 66 * 10**6)
    wanted = {(n, d, x) for n in (3, 10, 50, 100, 200) for d in sizes for x in (0, 0.1, 0.3)}
    assert wanted - cases == {(3, d, 0.3) for d in sizes}  # one of three cannot be spared
    assert cases <= wanted


@pytest.mark.parametrize(("n", "dropout"), [(7, 0.0), (20, 0.3)])
def test_parts_are_parts_of_the_same_sum(
    n: int, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.speed.secagg_case, "SMALL", 500)
    consortium = Consortium(n, dropout)
    case = Case(n, 300_000, dropout=dropout)
    whole, parts = (run_case(consortium, case, budget) for budget in (1.0, 0.0))
    assert whole.exact is True and parts.exact is None
    assert (whole.survivors, whole.upload, whole.degree) == (
        parts.survivors,
        parts.upload,
        parts.degree,
    )
    assert whole.seconds.keys() == parts.seconds.keys() and all(
        seconds > 0 for seconds in parts.seconds.values()
    )
    # the keystream that is needed
    assert whole.limit * whole.gbps == pytest.approx(parts.limit * parts.gbps)


def _linear(n: int, d: int, dropped: int, cache: Path) -> dict[str, Any]:
    """A peer that takes a microsecond per silo, silo and parameter, and a second for keys."""
    seconds = {
        "clients: share keys": 1.0,
        "clients: mask": 1e-6 * n * n * d,
        "server": 2.0 + 1e-6 * n * d,
    }
    total = sum(seconds.values())
    return {
        "seconds": seconds,
        "total": total,
        "upload": 264 + 8 * d,
        "version": "0",
        "scaled": False,
    }


def test_a_peers_larger_sums_are_continued_from_smaller_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench.speed.secagg_peer, "_measure", _linear)
    peer = Peer(Path(), 1)
    for n, d in (
        (3, 10**5),
        (10, 10**7),
        (50, 10**6),
        (50, 10**7),
        (100, 66 * 10**6),
        (200, 10**6),
        (3, 66 * 10**6),
    ):
        got, wanted = peer.measure(n, d, 0), _linear(n, d, 0, Path())
        assert got["scaled"] is (n * n * d > 10**10 or d > 10**7)
        assert got["total"] == pytest.approx(wanted["total"]) and got["upload"] == wanted["upload"]


def test_rows_are_kept_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "--n",
        "3",
        "--d",
        "1000",
        "--dropouts",
        "0",
        "--repeat",
        "1",
        "--resume",
        str(tmp_path / "rows"),
    ]
    assert bench.speed.secagg.main(asked) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(bench.speed.secagg, "run_case", None)
    monkeypatch.setattr(bench.speed.secagg_peer, "_measure", _linear)
    assert bench.speed.secagg.main(asked) == 0 and capsys.readouterr().out == first
    assert bench.speed.secagg.main([*asked, "--peer", "flower"]) == 0
    row, again = first.splitlines()[-1], capsys.readouterr().out.splitlines()[-1]
    assert again.startswith(f"{row} | ") and "exact" in row
    assert len((tmp_path / "rows").read_text().splitlines()) == 2
    assert json.loads((tmp_path / "rows").read_text().splitlines()[-1])["peer"]["upload"] == 8264
