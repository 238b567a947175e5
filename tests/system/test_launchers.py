"""Silos of a simulation on other machines: by a real sshd of this one, and on a Ray cluster of two.
Same model.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from bench.simulation.inprocess import run_inprocess
from bench.simulation.worker import request
from cli.main import main
from config.load import load
from silo.home import features_in
from study.prepare import prepare
from tests.conftest import ROOT, sottovoce, summary, wait_for

WORDS = (
    "METHOD=fedavg",
    "SILOS=3",
    "CORPUS=distant:sentences=600",
    "ROUNDS=1",
    "EPOCHS=1",
    "SEED=3",
)


def _plain(run: Path) -> str:
    run.mkdir()
    overrides = {k.lower(): v for k, _, v in (w.partition("=") for w in WORDS)}
    assert run_inprocess(run, prepare(load(None, overrides))) == 0
    return str(summary(run)["model_sha256"])


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An sshd of this machine that lets in one key made for this test; the environment to reach
    it.
    """
    daemon = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(daemon).exists() or shutil.which("ssh") is None or os.geteuid() != 0:
        pytest.skip(
            "LAUNCHER=ssh is tested against an sshd of this machine: needs openssh-server and root"
        )
    for name in ("host", "id"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True
        )
    Path("/run/sshd").mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    words = [daemon, "-D", "-e", "-f", "/dev/null", "-p", str(port), "-h", str(tmp_path / "host")]
    for option in (
        f"AuthorizedKeysFile={tmp_path / 'id.pub'}",
        "StrictModes=no",
        "PidFile=none",
        "UsePAM=no",
    ):
        words += ["-o", option]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, 20)
        client = [
            "ssh",
            "-p",
            str(port),
            "-i",
            str(tmp_path / "id"),
            "-o",
            "BatchMode=yes",
            "-o",
            "LogLevel=ERROR",
        ]
        client += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        remote = ["env", f"PYTHONPATH={ROOT}", "OMP_NUM_THREADS=1", sys.executable]
        yield {
            **os.environ,
            "SOTTOVOCE_SSH": shlex.join(client),
            "SOTTOVOCE_REMOTE": shlex.join(remote),
        }
    finally:
        process.kill()
        process.wait()


def test_silos_started_by_ssh_give_the_same_model_and_bring_their_folders_back(
    tmp_path: Path, ssh: dict[str, str]
) -> None:
    done = sottovoce(
        "simulate", f"OUT={tmp_path / 'runs'}", *WORDS, "LAUNCHER=ssh", "HOSTS=127.0.0.1", env=ssh
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "runs" / "latest"
    assert summary(run)["model_sha256"] == _plain(tmp_path / "plain")
    assert (
        len(list(run.glob("silos/*/journal.jsonl")))
        == len(list(run.glob("silos/*/ledger.jsonl")))
        == 3
    )


def test_features_of_texts_are_never_sent_to_another_machine(tmp_path: Path) -> None:
    study = b"\x01" * 32
    for file in (features_in(tmp_path, study) / "a.bf16", tmp_path / "work/journal.jsonl"):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"text")
    (tmp_path / "card.toml").touch()
    sent = msgpack.unpackb(request({"method": "fedavg"}, "tcp://@:1", {0: tmp_path})[8:])
    assert [name for _, name, _ in sent["homes"]] == ["card.toml", "work/journal.jsonl"]


def test_silos_started_by_ssh_are_sent_a_methods_file(tmp_path: Path, ssh) -> None:  # type: ignore[no-untyped-def]
    """The other machine removes the file before it starts: what runs there came with the request."""
    page = (ROOT / "docs/methods.md").read_text("utf-8")
    (text,) = re.findall(r"^`my/momentum.py`\n\n```python\n(.*?)^```$", page, re.M | re.S)
    method = tmp_path / "my" / "momentum.py"
    method.parent.mkdir()
    method.write_text(text, "utf-8")
    words = (f"METHOD={method}", *WORDS[1:])
    here = sottovoce("simulate", f"OUT={tmp_path / 'here'}", *words, "RUNNER=inprocess")
    assert here.returncode == 0, here.stderr
    env = {**ssh, "SOTTOVOCE_REMOTE": f"rm -r {method.parent}; {ssh['SOTTOVOCE_REMOTE']}"}
    done = sottovoce(
        "simulate", f"OUT={tmp_path / 'runs'}", *words, "LAUNCHER=ssh", "HOSTS=127.0.0.1", env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        summary(tmp_path / "runs/latest")["model_sha256"]
        == summary(tmp_path / "here/latest")["model_sha256"]
    )


def test_silos_on_a_ray_cluster_give_the_same_model(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip('Ray is not installed: pip install "sottovoce[ray]"')
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        done = sottovoce(
            "simulate", f"OUT={tmp_path}", *WORDS, "LAUNCHER=ray", f"HOSTS={cluster.address}"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert summary(tmp_path / "latest")["model_sha256"] == _plain(tmp_path / "plain")
    finally:
        cluster.shutdown()


def test_without_ray_one_sentence_says_so_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(SystemExit) as ended:
        main(["simulate", f"OUT={tmp_path / 'runs'}", *WORDS, "LAUNCHER=ray"])
    said = capsys.readouterr()
    assert ended.value.code == 2 and not said.out
    assert len(said.err.splitlines()) == 1 and "pip install 'sottovoce[ray]'" in said.err
    assert not (tmp_path / "runs").exists()


def test_a_launcher_that_cannot_be_is_refused_in_a_sentence() -> None:
    for words, sentence in (
        (("LAUNCHER=ssh",), "HOSTS"),
        (("LAUNCHER=cloud",), "LAUNCHER must be local, ssh or ray"),
    ):
        done = sottovoce("simulate", *words)
        assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr
