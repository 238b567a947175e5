"""A method from outside on separate machines, in a run that is resumed, and with silos elsewhere."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import msgpack
import pytest

from bench.simulation.worker import request
from config.load import load
from tests.conftest import ROOT, Running, lines, sottovoce, summary, wait_for
from tests.consortium import Consortium

PAGE = (ROOT / "docs/methods.md").read_text("utf-8")
(MOMENTUM,) = re.findall(r"^`my/momentum.py`\n\n```python\n(.*?)^```$", PAGE, re.M | re.S)
#: The same algorithm, and another file: nobody has to judge what a difference means.
REMARKED = MOMENTUM + "# read by nobody\n"
CORPUS = "distant:sentences=600"
WORDS = (f"CORPUS={CORPUS}", "SILOS=4", "ROUNDS=3", "EPOCHS=1", "SEED=5")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# A consortium


def _party(consortium: Consortium, name: str, text: str = MOMENTUM) -> Path:
    """The party's own folder with its own copies: the study file, and the method beside it."""
    folder = consortium.path / "files" / name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(consortium.path / "study.toml", folder)
    (folder / "mine.py").write_text(text, "utf-8")
    return folder / "study.toml"


def _silo(consortium: Consortium, name: str, port: int, study: str, text: str = MOMENTUM) -> Any:
    site = consortium.site(name, port, study=_party(consortium, name, text))
    return consortium.start(name, "silo", "--config", str(site), "--accept", study)


def _hub(consortium: Consortium, rounds: int = 1) -> tuple[int, str]:
    consortium.study(method="mine.py", corpus=CORPUS, rounds=rounds, epochs=1)
    # The hub's study file is the one in the consortium's folder; its method lies there too.
    (consortium.path / "mine.py").write_text(MOMENTUM, "utf-8")
    return consortium.hub()


def test_three_silos_with_their_own_copies_run_it_to_a_report(consortium: Consortium) -> None:
    port, study = _hub(consortium, rounds=2)
    for name in consortium.names:
        _silo(consortium, name, port, study)
    for name in ("hub", *consortium.names):
        assert consortium.processes[name].wait(180) == 0, consortium.everything()
    assert summary(consortium.run)["method"] == "mine" and summary(consortium.run)["silos"] == 3
    assert "mine" in (consortium.run / "report.html").read_text("utf-8")
    assert (consortium.run / "method" / "mine.py").read_text("utf-8") == MOMENTUM
    for name in consortium.names:  # what its operator agreed to
        page = " ".join(consortium.said(name).split())
        assert f"Method mine: {MOMENTUM[3:60].splitlines()[0]}" in page
        assert f"from outside: its file has the SHA-256 {_sha256(MOMENTUM)}" in page


def test_a_silo_with_another_file_is_not_let_in_and_told_so(consortium: Consortium) -> None:
    port, study = _hub(consortium)
    # Whoever compares before dialling sees another hash, and nothing is sent.
    early = _silo(consortium, "east", port, study, REMARKED)
    assert early.wait(180) == 2 and "--accept names another study" in consortium.log("east")
    said = consortium.said("east")
    assert _sha256(REMARKED) in said and _sha256(MOMENTUM) not in said
    theirs = re.search(r"Study hash +(\w+)", said)
    assert theirs is not None and theirs[1] != study
    # Whoever agreed to its own version is told by the coordinator which part differs.
    refused = _silo(consortium, "east", port, theirs[1], REMARKED)
    assert refused.wait(180) == 2
    told = " ".join(consortium.log("east").split())
    assert "did not let east in: it has another method file than this study" in told
    assert f"method file {_sha256(MOMENTUM)[:12]}" in told and "Traceback" not in told
    events = lines(consortium.run / "events.jsonl")
    assert [e["silo"] for e in events if e["event"] == "refused"] == ["silo-001"]
    # With the agreed file it is in.
    for name in consortium.names:
        _silo(consortium, name, port, study)
    for name in ("hub", *consortium.names):
        assert consortium.processes[name].wait(180) == 0, consortium.everything()


def test_a_study_file_may_name_the_hash_of_the_file(consortium: Consortium) -> None:
    consortium.study(method="mine.py", corpus=CORPUS, rounds=1, epochs=1)
    with (consortium.path / "study.toml").open("a") as file:
        file.write(f'[hashes]\n"method file" = "{_sha256(MOMENTUM)}"\n')

    def shown(text: str) -> tuple[int, str]:
        study, home = _party(consortium, "north", text), consortium.path / "north"
        done = sottovoce("study", "--config", str(study), "--home", str(home))
        return done.returncode, done.stdout + done.stderr

    assert shown(MOMENTUM)[0] == 0 and _sha256(MOMENTUM) in shown(MOMENTUM)[1]
    status, said = shown(REMARKED)
    assert status == 2 and f"The method file on this machine ({_sha256(REMARKED)[:12]}" in said


# Resumed


def _cut(start: Any, method: Path) -> Running:
    running: Running = start(f"METHOD={method}", *WORDS)
    wait_for(lambda: running.computing("silo-002", round=1))
    os.killpg(running.process.pid, signal.SIGINT)
    status, text = running.finish(timeout=20)
    assert status == 130, text
    return running


@pytest.mark.parametrize("how", ["deleted", "changed"])
def test_a_run_goes_on_with_the_file_it_began_with(how: str, tmp_path: Path, start: Any) -> None:
    method = tmp_path / "my" / "momentum.py"
    method.parent.mkdir()
    method.write_text(MOMENTUM, "utf-8")
    whole = sottovoce("simulate", f"METHOD={method}", *WORDS, f"OUT={tmp_path / 'whole'}")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    run = _cut(start, method).run
    assert 'method = "method/momentum.py"' in (run / "config.toml").read_text("utf-8")
    if how == "deleted":
        shutil.rmtree(method.parent)
    else:
        method.write_text(MOMENTUM.replace("mean[k] + options.beta", "mean[k] - options.beta"))
    moved = tmp_path / "elsewhere" / run.name  # a run folder is whole by itself
    moved.parent.mkdir()
    run.rename(moved)
    done = sottovoce("simulate", "--resume", str(moved))
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(moved)["model_sha256"] == summary(tmp_path / "whole/latest")["model_sha256"]


# Elsewhere


def test_a_worker_on_another_machine_is_sent_the_file(tmp_path: Path) -> None:
    method = tmp_path / "mine.py"
    method.write_text(MOMENTUM, "utf-8")
    settings = vars(load(None, {"method": str(method), "silos": "4"}))
    sent = msgpack.unpackb(request({**settings, "options": {}}, "tcp://hub:1", {})[8:])
    assert sent["method"].decode() == MOMENTUM
    settings = vars(load(None, {"method": "fedavg", "silos": "4"}))
    ours = msgpack.unpackb(request({**settings, "options": {}}, "tcp://hub:1", {})[8:])
    assert "method" not in ours
