"""What a wiretap sees of a run between separate programs: nothing readable, and as many bytes as we counted."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bench.prepare import prepare
from config.load import load
from methods.base import derived_seed
from tests.conftest import ROOT, command, lines, summary, wait_for
from wire.bundle import pack

WORDS = ("METHOD=lazymil", "SILOS=3", "ROUNDS=2", "EPOCHS=1", "CORPUS=distant:sentences=600", "SEED=8")


class Wiretap:
    """A TCP proxy that keeps every byte that passes, both ways."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.up, self.down = bytearray(), bytearray()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            for source, sink, kept in ((near, far, self.up), (far, near, self.down)):
                thread = threading.Thread(target=self._pump, args=(source, sink, kept), daemon=True)
                self._threads.append(thread)
                thread.start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
        try:
            while piece := source.recv(1 << 16):
                kept += piece
                sink.sendall(piece)
        except OSError:
            pass
        finally:
            sink.close()

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def _begin(programs: list[subprocess.Popen[str]], log: Path, *words: str) -> None:
    programs.append(
        subprocess.Popen(
            command(*words),
            cwd=ROOT,
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    )


def _windows(arrays: dict[str, np.ndarray]) -> list[bytes]:
    """Sixteen bytes in a row out of each array: four parameters, found in a capture only if they were sent plainly."""
    flat = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).tobytes() for a in arrays.values()]
    return [
        f[k : k + 16] for f in flat for k in range(0, max(1, len(f) - 16), max(16, len(f) // 50)) if any(f[k : k + 16])
    ]


def _scraped(log: Path) -> str:
    """What Prometheus would be told now; nothing while nobody answers."""
    port = re.search(r"figures for Prometheus on port (\d+)", log.read_text())
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=5) as answer:  # type: ignore[index]
            return str(answer.read().decode())
    except (OSError, TypeError):
        return ""


def _check_figures(figures: dict[str, str], traffic: list[dict]) -> None:
    def value(name: str, figure: str) -> float:
        return float(re.search(rf"^sottovoce_{re.escape(figure)} (\S+)$", figures[name], re.M)[1])  # type: ignore[index]

    assert value("coordinator", "silos_enrolled") == 3 and value("coordinator", "rounds_done") >= 1
    assert 0 < value("coordinator", 'bytes_total{direction="up"}') <= sum(t["wire_bytes"] for t in traffic)
    sent = sum(t["wire_bytes"] for t in traffic if t["silo"] == "silo-000" and t["direction"] == "up")
    assert 0 < value("silo-0", 'silo_bytes_total{direction="up"}') <= sent
    assert value("silo-0", "silo_epsilon") == float("inf") and value("silo-0", "silo_answers_total") >= 1


def test_a_wiretap_sees_nothing_and_counts_what_we_count(tmp_path: Path, programs) -> None:  # type: ignore[no-untyped-def]
    keys, log = tmp_path / "keys", tmp_path / "coordinator.txt"
    _begin(programs, log, "coordinator", f"OUT={tmp_path}", "--keys", str(keys), "METRICS=0", *WORDS)
    port = wait_for(lambda: re.search(r"listening on 127\.0\.0\.1:(\d+)", log.read_text()))[1]
    tap = Wiretap(int(port))
    for i in range(3):
        home = keys / "silos" / f"silo-{i:03d}"
        words = ["--index", str(i), "--address", f"127.0.0.1:{tap.port}", "--keys", str(home)]
        _begin(programs, tmp_path / f"silo-{i}.txt", "silo", *words, "METRICS=0", *WORDS)
    figures = dict.fromkeys(("coordinator", "silo-0"), "")
    until = time.monotonic() + 180
    while any(p.poll() is None for p in programs) and time.monotonic() < until:
        for name in figures:
            figures[name] = _scraped(tmp_path / f"{name}.txt") or figures[name]
        time.sleep(0.05)
    for process in programs:
        assert process.wait(1) == 0, "\n".join(p.read_text() for p in tmp_path.glob("*.txt"))
    tap.close()
    _check_figures(figures, lines(tmp_path / "latest" / "traffic.jsonl"))
    seen, run = bytes(tap.up + tap.down), tmp_path / "latest"

    # The counter agrees with the wire.
    traffic = lines(run / "traffic.jsonl")
    for direction, kept in (("up", tap.up), ("down", tap.down)):
        counted = sum(t["wire_bytes"] for t in traffic if t["direction"] == direction)
        assert abs(counted - len(kept)) <= 0.02 * len(kept), (direction, counted, len(kept))
        assert len(kept) > 1_000_000  # two rounds of a real model did pass

    # No parameter: not of the first broadcast model, not of the last.
    study = prepare(load(None, {k.lower(): v for k, _, v in (w.partition("=") for w in WORDS)}))
    first = study.method.init(derived_seed(8, "init")).model
    last = load_file(run / "model" / "model.safetensors")
    needles = _windows(dict(first)) + _windows(last)
    assert len(needles) > 200
    assert not any(needle in seen for needle in needles)
    # No word of any sentence, no message of our own protocol, no setting.
    words = [str(w).encode() for w in study.task.corpus.words if len(str(w)) > 5]
    assert len(words) > 100 and not any(w in seen for w in words)
    assert not any(w in seen for w in (b"broadcast", b"update", b"masked", b"sealed", b"silo-00"))
    # The same search does find them in what is sent before it is encrypted, so it would have found them here.
    plain = pack(first).buffer.tobytes()
    assert sum(n in plain for n in _windows(dict(first))) > 100

    # Separate programs, other keys, another secret among the silos: the same model as in one process.
    from bench.inprocess import run_inprocess

    (tmp_path / "plain").mkdir()
    assert run_inprocess(tmp_path / "plain", study) == 0
    assert summary(run)["model_sha256"] == summary(tmp_path / "plain")["model_sha256"]


def test_no_secret_reaches_a_log_or_a_report(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    running = start(*WORDS)
    status, text = running.finish()
    assert status == 0, text
    run = running.run
    secrets = [p.read_bytes() for p in run.glob("silos/*/shared.secret")]
    secrets += [
        line
        for p in [*run.glob("silos/*/curve"), run / "keys" / "coordinator.curve"]
        for line in p.read_bytes().split()[1:]
    ]
    secrets += [bytes.fromhex(p.read_text().split()[-2]) for p in run.glob("silos/*/identity")]
    assert len(secrets) == 3 + 4 + 3
    key_files = {"curve", "identity", "shared.secret", "coordinator.curve", "roster.json"}
    others = [p for p in run.rglob("*") if p.is_file() and p.name not in key_files]
    assert any(p.name == "silo.log" for p in others) and any(p.name == "report.md" for p in others)
    corpus = prepare(load(None, {"corpus": WORDS[4].partition("=")[2], "silos": "3"})).task.corpus
    words = [str(w) for w in corpus.words if len(str(w)) > 7]
    for path in others:
        content = path.read_bytes()
        for secret in secrets:
            assert secret not in content and secret.hex().encode() not in content, path
        if path.suffix in (".log", ".jsonl"):
            assert not any(w in content.decode() for w in words), path
    assert json.loads((run / "disclosures.json").read_text())["masked"] is True
    assert os.stat(run / "keys").st_mode & 0o077 == 0
