"""Bad input fails well: one sentence that names the key and what to do, exit status 2, and nothing
started.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from cli.main import main
from tests.conftest import ROOT, SMALL, Running, command, lines, sottovoce, summary, wait_for


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["METHOD=lazymill"], 'Unknown method "lazymill". Did you mean "lazymil"?'),
        (["SILOS=0"], "SILOS must be between 1 and 10000, not 0."),
        (["SILOS=two"], 'SILOS must be a whole number, not "two".'),
        (["SILOS=2"], "A secure sum needs at least three participants in a round"),
        (["FRACTION=0.1"], "SECAGG=off"),
        (["FRACTION=1.5"], "FRACTION must be above 0 and at most 1, not 1.5."),
        (["FRACTION=nan"], "FRACTION must be a finite number."),
        (["SILO=5"], 'Unknown setting "SILO". Did you mean "silos"?'),
        (["ROUNDS=-1"], "ROUNDS must be 1 or more, not -1."),
        (["BITS=12"], "BITS must be one of 32, 21 and 16, not 12."),
        (["RUNNER=inproces"], 'Did you mean "inprocess"?'),
        (["SECAGG=maybe"], 'SECAGG must be on or off, not "maybe".'),
        (["PARTITION=dirichlett:0.1"], 'Did you mean "dirichlet"?'),
        (["PARTITION=dirichlet:x"], 'needs a positive number, as in "dirichlet:0.05"'),
        (["PARTITION=entropy"], "entropy"),
        (["CORPUS=nowhere"], "nowhere"),
        (["SILOS"], '"SILOS" is not NAME=VALUE'),
        (["--set", "taus=1"], "taus"),
        (["CONFIG=missing.toml"], "missing.toml does not exist"),
        (["--resume", "nowhere"], '"nowhere" is not a run folder'),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_mistake_is_one_sentence_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    out = [] if words[0] == "--resume" else [f"OUT={tmp_path / 'runs'}"]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *out, *words])
    stderr = capsys.readouterr().err
    assert ended.value.code == 2
    assert sentence in stderr
    assert len(stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("runner", ["inprocess", "processes"])
def test_training_that_diverges_says_so(tmp_path: Path, runner: str) -> None:
    done = sottovoce(
        "simulate", *SMALL, "METHOD=fedavg", "LR=1e8", f"RUNNER={runner}", f"OUT={tmp_path}"
    )
    assert done.returncode == 3
    said = " ".join((done.stdout + done.stderr).split())
    assert "training diverged, lower LR" in said and "--resume" in said and "Traceback" not in said


@pytest.mark.parametrize("word", ["METHOD=lazymill", "SILOS=0", "SILOS=two"])
def test_the_real_command_ends_with_status_2_and_no_stack_trace(word: str) -> None:
    done = sottovoce("simulate", word)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and not done.stdout


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("silo = 3\n", 'unknown key "silo". Did you mean "silos"?'),
        ('silos = "three"\n', 'silos must be a whole number, not "three".'),
        ("silos = 3.5\n", "silos must be a whole number, not 3.5."),
        ("secagg = 1\n", "secagg must be on or off, not 1."),
        ("silos = \n", "cannot be read"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, sentence: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(content)
    with pytest.raises(SystemExit) as ended:
        main(["simulate", f"CONFIG={file}"])
    stderr = capsys.readouterr().err
    assert ended.value.code == 2 and sentence in stderr and str(file) in stderr
    assert len(stderr.strip().splitlines()) == 1


def test_flags_win_over_words_over_the_file_and_the_run_keeps_what_was_resolved(
    tmp_path: Path,
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'method = "fedavg"\nsilos = 5\nrounds = 9\nepochs = 1\ncorpus = "distant:sentences=600"\n'
    )
    words = [
        f"CONFIG={file}",
        f"OUT={tmp_path}",
        "RUNNER=inprocess",
        "ROUNDS=2",
        "SILOS=4",
        "--rounds",
        "1",
    ]
    assert sottovoce("simulate", *words).returncode == 0
    figures = summary(tmp_path / "latest")
    assert (figures["method"], figures["silos"], figures["rounds"]) == ("fedavg", 4, 1)
    # The resolved configuration runs it again, to the same model.
    again = sottovoce(
        "simulate",
        "--config",
        str(tmp_path / "latest" / "config.toml"),
        f"OUT={tmp_path / 'again'}",
    )
    assert again.returncode == 0, again.stderr
    assert summary(tmp_path / "again" / "latest")["model_sha256"] == figures["model_sha256"]


def test_make_passes_its_variables_and_says_which_it_does_not_know() -> None:
    make = subprocess.run(
        ["make", "simulate", "SILOSS=4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"MAKEFLAGS": ""},
    )
    assert make.returncode == 2 and 'Unknown setting "SILOSS". Did you mean "silos"?' in make.stderr


def test_make_quotes_what_it_passes_and_keeps_its_own_words() -> None:
    """PYTHON and VENV are the Makefile's; a row's name may have what a shell would read."""
    row = "no (such) row, 'quoted'; echo broken"
    make = subprocess.run(
        ["make", "table", "PAPER=fedcmc", f"ROWS={row}", f"PYTHON={sys.executable}", "VENV=.venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"MAKEFLAGS": ""},
    )
    assert make.returncode == 2 and "no (such) row" in make.stderr
    assert "broken" not in make.stdout and "Traceback" not in make.stderr


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = sottovoce("simulate", f"OUT={tmp_path}", *SMALL, "SILOS=3", f"PORT={port}")
    text = done.stdout + done.stderr
    assert done.returncode == 2
    assert (
        f"cannot listen on 127.0.0.1:{port}" in text
        and "give another PORT" in text
        and "Traceback" not in text
    )


def test_an_out_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = sottovoce("simulate", f"OUT={tmp_path / 'file' / 'runs'}", *SMALL, "SILOS=3")
    assert done.returncode == 2 and "give another OUT" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def _mounted(path: Path, options: str) -> bool:
    path.mkdir()
    return (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(path)], capture_output=True
        ).returncode
        == 0
    )


@pytest.mark.parametrize(
    "options", ["size=8k", "ro", "size=900k"], ids=["full", "read-only", "full-later"]
)
def test_a_full_or_read_only_disk(tmp_path: Path, options: str) -> None:
    disk = tmp_path / "disk"
    if not _mounted(disk, options):
        pytest.skip("mounting a small file system needs root")
    try:
        done = sottovoce("simulate", f"OUT={disk}", *SMALL, "SILOS=3", "METHOD=fedavg")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    text = done.stdout + done.stderr
    assert done.returncode not in (0, -9) and "Traceback" not in text
    assert re.search(r"No space left|Read-only file system", text)


def test_random_bytes_on_the_port_during_a_run(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    quiet = sottovoce("simulate", f"OUT={tmp_path / 'q'}", *SMALL, "SILOS=3", "RUNNER=inprocess")
    assert quiet.returncode == 0
    running = start(*SMALL, "SILOS=3")
    port = wait_for(lambda: running.events("listening"))[0]["port"]
    sent = 0
    while running.process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
                s.sendall(os.urandom(5000))
                sent += 1
        except OSError:
            pass
        try:
            running.process.wait(0.05)
        except subprocess.TimeoutExpired:
            pass
    status, text = running.finish()
    assert status == 0 and sent > 5, text
    assert (
        summary(running.run)["model_sha256"] == summary(tmp_path / "q" / "latest")["model_sha256"]
    )
    assert not lines(running.run / "rounds.jsonl")[1]["missed"]


def test_help_and_methods_read_well() -> None:
    text = sottovoce("--help").stdout
    for word in ("simulate", "coordinator", "silo", "methods"):
        assert word in text
    listed = sottovoce("methods", env=os.environ | {"COLUMNS": "200"}).stdout
    assert "lazymil" in listed and "Sui" in listed and "fedavg" in listed
    for program in ("coordinator", "silo"):
        done = subprocess.run(
            [command()[0], "-m", program, "--help"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0 and "coordinator" in done.stdout


def test_a_table_runs_what_is_missing_and_keeps_the_papers_numbers_apart(tmp_path: Path) -> None:
    from bench import papers
    from bench.papers import table

    tiny = ("SILOS=3", "CORPUS=distant:sentences=600", "ROUNDS=1", "EPOCHS=1")
    comparison = papers.Comparison(
        title="two methods",
        methods=("lazymil", "fedavg"),
        columns={"all": ("FRACTION=1.0",)},
        references={},
        metrics={"AUC": "value", "P@100": "figures.p@100"},
        sizes={"tiny": tiny},
        published=papers.PAPERS["lazymil"].published,
    )
    words = {
        "PAPER": "lazymil",
        "SIZE": "tiny",
        "CORPUS": "",
        "SEEDS": "1",
        "TABLES": str(tmp_path),
    }
    page = table.run_table(comparison, words, (), Console(quiet=True))
    runs = lines(page.parent / "runs.jsonl")
    assert len(runs) == 2
    text = page.read_text()
    for run in runs:
        assert f"| {run['summary']['method']} | {run['summary']['value']:.4f} |" in text
    assert "Printed in the paper" not in text  # the built-in corpus is nobody's paper
    before = (page.parent / "runs.jsonl").read_bytes()
    assert table.run_table(comparison, words, (), Console(quiet=True)) == page
    assert (page.parent / "runs.jsonl").read_bytes() == before
