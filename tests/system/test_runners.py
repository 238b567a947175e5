"""One seed, one model: in both runners, in two runs of each, with every lane width, and with silos
that die.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bench.simulation.inprocess import run_inprocess
from config.load import load
from crypto.oprf.peers import _seeded
from study.prepare import prepare
from tests.conftest import SMALL, Running, alive, lines, sottovoce, summary, wait_for

DESIGN_KEYS = [
    "method",
    "task",
    "corpus",
    "partition",
    "silos",
    "rounds",
    "seed",
    "metric",
    "value",
    "per_class",
    "bytes_up_total",
    "bytes_down_total",
    "bytes_up_per_silo_round",
    "epsilon",
    "delta",
    "wall_seconds",
    "peak_rss_mb",
    "model_sha256",
]
DESIGN_FILES = [
    "config.toml",
    "rounds.jsonl",
    "traffic.jsonl",
    "privacy.jsonl",
    "disclosures.json",
    "summary.json",
    "model/model.safetensors",
    "checkpoint/state.safetensors",
    "report.html",
    "report.md",
]


def _plain(
    run: Path, *words: str, absent: dict[tuple[int, int], frozenset[int]] | None = None
) -> Path:
    """The in-process runner, in this process."""
    run.mkdir(parents=True)
    overrides = {k.lower(): v for k, _, v in (w.partition("=") for w in words)} | {
        "runner": "inprocess"
    }
    assert run_inprocess(run, prepare(load(None, overrides)), absent=absent) == 0
    return run


def _plain_hash(run: Path, *words: str) -> str:
    return str(summary(_plain(run, *SMALL, *words))["model_sha256"])


def _hash(out: Path, *words: str) -> str:
    done = sottovoce("simulate", f"OUT={out}", *SMALL, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(summary(out / "latest")["model_sha256"])


@pytest.mark.parametrize("method", ["lazymil", "fedavg"])
def test_same_seed_same_model_in_both_runners_and_in_two_runs_of_each(
    tmp_path: Path, method: str
) -> None:
    words = (f"METHOD={method}", "SILOS=4", "SEED=3")
    processes = [_hash(tmp_path / "p", *words, "RUNNER=processes") for _ in range(2)]
    inprocess = [_plain_hash(tmp_path / f"i{k}", *words) for k in range(2)]
    assert len({*processes, *inprocess}) == 1
    assert _plain_hash(tmp_path / "other", f"METHOD={method}", "SILOS=4", "SEED=4") not in processes


@pytest.mark.parametrize("bits", ["21", "16"])
def test_narrow_lanes_give_the_same_model_in_both_runners(tmp_path: Path, bits: str) -> None:
    words = ("METHOD=fedavg", "SILOS=3", f"BITS={bits}", "FRACTION=1.0")
    assert _hash(tmp_path / "p", *words) == _plain_hash(tmp_path / "i", *words)


@pytest.mark.slow  # real processes
def test_rounds_to_which_too_few_contribute_are_given_up_in_both_runners(tmp_path: Path) -> None:
    """A floor that nobody reaches: the warm start is summed, the rest stays closed, the operator
    reads why, and the run ends in good order.
    """
    words = ("METHOD=lazymil", "SILOS=4", "EPOCHS=1")
    assert _hash(tmp_path / "p", *words, "SET=warmup=0.5", "SET=floor=1") == _plain_hash(
        tmp_path / "i", *words, "options.warmup=0.5", "options.floor=1"
    )
    for run in (tmp_path / "p" / "latest", tmp_path / "i"):
        rounds, given_up = lines(run / "rounds.jsonl"), _given_up(run)
        assert [bool(r["survivors"]) for r in rounds] == [True, False]
        (why,) = given_up
        assert "of 4 silos had enough to contribute, and at least 3 must" in why
        assert rounds[0]["model_sha256"] == rounds[1]["model_sha256"]


def _given_up(run: Path) -> list[str]:
    return [e["why"] for e in lines(run / "events.jsonl") if e["event"] == "round-spent"]


@pytest.mark.parametrize("secagg", ["on", "off"])
def test_drawn_cohorts_are_the_same_in_both_runners(tmp_path: Path, secagg: str) -> None:
    """Three of seven silos in a round are fewer than would outnumber all corrupt ones, so that every
    silo draws them, and refuses others.
    """
    words = ("METHOD=fedavg", "SILOS=7", "FRACTION=0.43", "ROUNDS=3", f"SECAGG={secagg}")
    assert _hash(tmp_path / "p", *words) == _plain_hash(tmp_path / "i", *words)
    asked = [
        [line["participants"] for line in lines(run / "rounds.jsonl")]
        for run in (tmp_path / "p" / "latest", tmp_path / "i")
    ]
    assert asked[0] == asked[1] and {len(who) for who in asked[0]} == {3}
    assert len({tuple(who) for who in asked[0]}) > 1


@pytest.mark.parametrize(
    "words",
    [
        ("METHOD=fedavg", "DP=silo", "EPSILON=8"),
        ("METHOD=lazymil", "DP=record", "NOISE=2", "SET=warmup=0.5"),
    ],
)
def test_with_noise_too(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A simulation's noise is its seed's: on the grid of the secure sum, or in every training
    step.
    """
    out = tmp_path / "p"
    given = ("SILOS=4", "EPOCHS=1", *words)
    processes = _hash(out, *given)
    knobs = [f"options.{w.removeprefix('SET=')}" if w.startswith("SET=") else w for w in given]
    assert processes == _plain_hash(tmp_path / "i", *knobs)
    s = summary(out / "latest")
    silo = "DP=silo" in words
    assert 0 < s["epsilon"] <= (8 if silo else 1e3) and s["privacy_unit"] == (
        "silo" if silo else "bag"
    )
    report = (out / "latest" / "report.md").read_text()
    assert "What is not protected" in report and "who could read it" in report


def test_without_masks_the_model_is_the_same_and_the_run_says_so_first(tmp_path: Path) -> None:
    masked = _plain_hash(tmp_path / "m", "METHOD=fedavg", "SILOS=3")
    done = sottovoce(
        "simulate", f"OUT={tmp_path / 'c'}", *SMALL, "METHOD=fedavg", "SILOS=3", "SECAGG=off"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOTHING IS MASKED" in done.stdout.splitlines()[0]
    run = tmp_path / "c" / "latest"
    assert summary(run)["model_sha256"] == masked
    report = (run / "report.md").read_text()
    assert report.index("NOTHING WAS MASKED") < report.index("test auc")


def test_the_run_directory_is_as_the_design_names_it(tmp_path: Path) -> None:
    _hash(tmp_path, "METHOD=lazymil", "SILOS=3")
    run = tmp_path / "latest"
    assert [f for f in DESIGN_FILES if not (run / f).is_file()] == []
    figures = summary(run)
    assert [k for k in DESIGN_KEYS if k not in figures or figures[k] is None] == []
    traffic, rounds = lines(run / "traffic.jsonl"), lines(run / "rounds.jsonl")
    assert figures["bytes_up_total"] == sum(
        t["wire_bytes"] for t in traffic if t["direction"] == "up"
    )
    assert figures["bytes_down_total"] == sum(
        t["wire_bytes"] for t in traffic if t["direction"] == "down"
    )
    assert [r["round"] for r in rounds] == [0, 1]
    assert {t["channel"] for t in traffic} == {"masked", "sealed", "broadcast", "control"}
    # Keys stay readable by their owner alone.
    homes = [run / "coordinator", *run.glob("silos/*")]
    secrets = [home / "keys" / name for home in homes for name in ("identity", "curve")]
    assert len(secrets) == 2 + 2 * 3
    assert {p.stat().st_mode & 0o077 for p in secrets} == {0}


def test_two_of_ten_silos_killed_in_a_round(tmp_path: Path, start: Callable[..., Running]) -> None:
    """The run ends well, names them, and that round's model is exactly the one of the eight
    survivors.
    """
    words = (
        "METHOD=fedavg",
        "SILOS=10",
        "CORPUS=distant:sentences=600",
        "ROUNDS=3",
        "EPOCHS=25",
        "SEED=5",
    )
    running = start(*words)
    pids = running.pids()["silos"]
    for victim in ("silo-003", "silo-006"):
        wait_for(partial(running.computing, victim, round=1))
        os.kill(pids[victim], signal.SIGKILL)
    status, text = running.finish()
    assert status == 0, text
    rounds = lines(running.run / "rounds.jsonl")
    assert [r["missed"] for r in rounds] == [[], ["silo-003", "silo-006"], ["silo-003", "silo-006"]]
    assert summary(running.run)["missed"] == {"silo-003": [1, 2], "silo-006": [1, 2]}
    assert "silo-003 was lost; it missed rounds 2, 3" in text

    # The same rounds without network or masks, those two absent: a plain sum over the survivors.
    plain = _plain(tmp_path / "plain", *words, absent={(1, 0): frozenset({3, 6})})
    assert [r["model_sha256"] for r in lines(plain / "rounds.jsonl")] == [
        r["model_sha256"] for r in rounds
    ]
    assert not any(alive(p) for p in pids.values())


def test_too_few_survivors_fail_cleanly_and_the_run_can_be_resumed(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    """Three of four gone: nothing is opened, the run says so; resumed, it ends with the undisturbed
    model.
    """
    words = ("METHOD=fedavg", "SILOS=4", "CORPUS=distant:sentences=600", "ROUNDS=2", "EPOCHS=25")
    running = start(*words)
    pids = running.pids()["silos"]
    wait_for(lambda: running.computing("silo-000", round=1))
    for victim in ("silo-001", "silo-002", "silo-003"):
        os.kill(pids[victim], signal.SIGKILL)
    status, text = running.finish()
    assert status == 3
    assert "could not be completed" in text and "--resume" in text and "Traceback" not in text
    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        summary(running.run)["model_sha256"]
        == summary(_plain(tmp_path / "u", *words))["model_sha256"]
    )
    assert [r["round"] for r in lines(running.run / "rounds.jsonl")] == [0, 1]


def test_no_round_hangs_on_the_secrets_that_name_bags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real silos have identities of their own in every run, and so other names, in another order. In
    the second round here a silo wins too much and leaves out five of twenty bags of one value.
    """
    words = ("METHOD=lazymil", "SILOS=5", "SEED=2")
    models = []
    for run in range(3):
        seeded = partial(_seeded, 2 + 1000 * run)
        monkeypatch.setattr("crypto.oprf.peers._seeded", lambda _, silos, made=seeded: made(silos))
        rounds = lines(_plain(tmp_path / str(run), *SMALL, *words) / "rounds.jsonl")
        models.append([r["model_sha256"] for r in rounds])
    assert models[0] == models[1] == models[2]
