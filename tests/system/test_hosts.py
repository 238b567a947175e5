"""Silos that share a process: the same messages, the same model, each with its own folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.simulation.hosts import hosts_of
from bench.simulation.inprocess import run_inprocess
from config.load import load
from study.prepare import prepare
from tests.conftest import lines, sottovoce, summary

WORDS = ("METHOD=fedavg", "CORPUS=distant:sentences=400", "SILOS=5", "ROUNDS=2", "BATCH=64")


def test_every_silo_has_a_host_and_no_host_more_than_its_share() -> None:
    for silos, each in ((10, 3), (1000, 50), (7, 7), (5, 100)):
        shares = hosts_of(range(silos), each)
        assert sorted(i for share in shares for i in share) == list(range(silos))
        assert len(shares) == -(-silos // each) and max(map(len, shares)) <= each
    assert hosts_of(range(3), 1) == [[0], [1], [2]]


@pytest.mark.slow
def test_silos_that_share_a_process_give_the_model_of_silos_that_do_not(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    done = sottovoce("simulate", *WORDS, "SILOS_PER_PROCESS=3", f"OUT={out}")
    assert done.returncode == 0, done.stdout + done.stderr
    run = (out / "latest").resolve()
    plain = tmp_path / "plain"
    plain.mkdir()
    overrides = {k.lower(): v for k, _, v in (w.partition("=") for w in WORDS)}
    assert run_inprocess(plain, prepare(load(None, overrides))) == 0
    assert summary(run)["model_sha256"] == summary(plain)["model_sha256"]

    silos = json.loads((run / "processes.json").read_text())["silos"]
    assert len(silos) == 5 and len(set(silos.values())) == 2
    for name in silos:
        home = run / "silos" / name
        said = [line["message"] for line in lines(home / "silo.log")]
        assert said[0].startswith(f"{name}, process {silos[name]}")
        assert not any(other in " ".join(said) for other in set(silos) - {name})
        assert (home / "journal.jsonl").stat().st_size and (home / "ledger.jsonl").stat().st_size
    kinds = {t["kind"] for t in lines(run / "traffic.jsonl") if t["direction"] == "up"}
    assert kinds >= {"handshake", "hello", "sum", "ready", "upload", "chunk"}


def test_nonsense_is_refused(tmp_path: Path) -> None:
    done = sottovoce("simulate", *WORDS, "SILOS_PER_PROCESS=0", f"OUT={tmp_path}")
    assert done.returncode == 2 and "SILOS_PER_PROCESS must be 1" in done.stderr
