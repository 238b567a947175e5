"""What a wiretap sees of a run between separate programs: nothing readable, and as many bytes as we
counted.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from config.load import load
from methods.base import derived_seed
from study.prepare import prepare
from tests.conftest import Running, lines, summary
from tests.consortium import Consortium
from wire.bundle import pack
from wire.keyring import Keyring

WORDS = (
    "METHOD=lazymil",
    "SILOS=3",
    "ROUNDS=2",
    "EPOCHS=1",
    "CORPUS=distant:sentences=600",
    "SEED=8",
)
#: Words of the corpus that the protocol's own log lines use too.
OURS = {"after", "cohort", "control", "hands", "level", "record", "study", "trial"}


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


def _windows(arrays: dict[str, np.ndarray]) -> list[bytes]:
    """Sixteen bytes in a row out of each array: four parameters, found in a capture only if they
    were sent plainly.
    """
    flat = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).tobytes() for a in arrays.values()]
    return [
        f[k : k + 16]
        for f in flat
        for k in range(0, max(1, len(f) - 16), max(16, len(f) // 50))
        if any(f[k : k + 16])
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

    assert value("north", 'silo_info{silo="north"}') == 1
    assert value("hub", "silos_enrolled") == 3 and value("hub", "rounds_done") >= 1
    assert 0 < value("hub", 'bytes_total{direction="up"}') <= sum(t["wire_bytes"] for t in traffic)
    sent = sum(
        t["wire_bytes"] for t in traffic if t["silo"] == "silo-000" and t["direction"] == "up"
    )
    assert 0 < value("north", 'silo_bytes_total{direction="up"}') <= sent
    assert (
        value("north", "silo_epsilon") == float("inf") and value("north", "silo_answers_total") >= 1
    )


def test_a_wiretap_sees_nothing_and_counts_what_we_count(consortium: Consortium) -> None:
    study = {k.lower(): v for k, _, v in (w.partition("=") for w in WORDS)}
    told = {k: int(v) if v.isdigit() else v for k, v in study.items() if k != "silos"}
    consortium.study(**told)
    port, agreed = consortium.hub("--metrics", "0")
    tap = Wiretap(port)
    for name in consortium.names:
        consortium.silo(name, tap.port, agreed, metrics="0")
    programs, figures = consortium.processes.values(), dict.fromkeys(("hub", "north"), "")
    until = time.monotonic() + 180
    while any(p.poll() is None for p in programs) and time.monotonic() < until:
        for name in figures:
            figures[name] = _scraped(consortium.path / f"{name}.log") or figures[name]
        time.sleep(0.05)
    for process in programs:
        assert process.wait(1) == 0, consortium.everything()
    tap.close()
    seen, run = bytes(tap.up + tap.down), consortium.run
    _check_figures(figures, lines(run / "traffic.jsonl"))

    # The counter agrees with the wire.
    traffic = lines(run / "traffic.jsonl")
    for direction, kept in (("up", tap.up), ("down", tap.down)):
        counted = sum(t["wire_bytes"] for t in traffic if t["direction"] == direction)
        assert abs(counted - len(kept)) <= 0.02 * len(kept), (direction, counted, len(kept))
        assert len(kept) > 1_000_000  # two rounds of a real model did pass

    # No parameter: not of the first broadcast model, not of the last.
    prepared = prepare(load(None, study))
    task: Any = prepared.task  # of distant supervision, with its corpus
    first = prepared.method.init(derived_seed(8, "init")).model
    last = load_file(run / "model" / "model.safetensors")
    needles = _windows(dict(first)) + _windows(last)
    assert len(needles) > 200
    assert not any(needle in seen for needle in needles)
    # No word of any sentence, no message of our own protocol, no setting.
    words = [str(w).encode() for w in task.corpus.words if len(str(w)) > 5]
    assert len(words) > 100 and not any(w in seen for w in words)
    assert not any(w in seen for w in (b"broadcast", b"update", b"masked", b"sealed", b"silo-00"))
    # The same search does find them in what is sent before it is encrypted, so it would have found
    # them here.
    plain = np.asarray(pack(first).buffer).tobytes()
    assert sum(n in plain for n in _windows(dict(first))) > 100

    # Separate programs, other keys, another secret among the silos: the same model as in one
    # process.
    from bench.simulation.inprocess import run_inprocess

    alone = consortium.path / "plain"
    alone.mkdir()
    assert run_inprocess(alone, prepared) == 0
    assert summary(run)["model_sha256"] == summary(alone)["model_sha256"]

    # And the logs of this run are JSON lines with no secret, no word and no label in them.
    secrets = _secrets([consortium.path / name for name in ("hub", *consortium.names)])
    assert len(secrets) == 4 + 4 + 1
    corpus = task.corpus
    strings = {
        str(s) for s in (*corpus.words, *corpus.entities, *prepared.task.labels) if len(str(s)) > 4
    } - OURS
    sentences = [
        row.split() for split in ("train", "dev", "test") for row in corpus.table(split)["sentence"]
    ]
    strings |= {" ".join(words[i : i + 3]) for words in sentences for i in range(len(words) - 2)}
    assert len(strings) > 5000
    logs = [consortium.log(name) for name in ("hub", *consortium.names)]
    assert all(logs)
    for line in "".join(logs).splitlines():
        assert {"time", "level", "part", "message"} <= set(json.loads(line))
    written = [p.read_text() for p in [*run.glob("*.jsonl"), *consortium.path.glob("*/*.jsonl")]]
    for text in [*logs, *written]:
        assert not any(string in text for string in strings)
        for secret in secrets:
            assert secret.hex() not in text and secret.decode("latin-1") not in text


def _secrets(homes: list[Path]) -> list[bytes]:
    """Every secret of these parties: seeds of identities, transport keys, and what the silos
    share.
    """
    rings = [Keyring.load(home) for home in homes]
    kept = [ring.curve.secret for ring in rings]
    kept += [bytes.fromhex((home / "keys" / "identity").read_text().split()[-2]) for home in homes]
    return kept + list(
        {r.pinned().secret(r.card.name, r.identity) for r in rings if r.card.role == "silo"}
    )


def test_no_secret_reaches_a_log_or_a_report(tmp_path: Path, start: Callable[..., Running]) -> None:
    running = start(*WORDS)
    status, text = running.finish()
    assert status == 0, text
    run = running.run
    homes = [run / "coordinator", *sorted(run.glob("silos/*"))]
    secrets = _secrets(homes)
    assert len(secrets) == 4 + 4 + 1
    key_files = {"curve", "identity"}
    others = [p for p in run.rglob("*") if p.is_file() and p.name not in key_files]
    assert any(p.name == "silo.log" for p in others) and any(p.name == "report.md" for p in others)
    task: Any = prepare(load(None, {"corpus": WORDS[4].partition("=")[2], "silos": "3"})).task
    corpus = task.corpus
    words = [str(w) for w in corpus.words if len(str(w)) > 7]
    for path in others:
        content = path.read_bytes()
        for secret in secrets:
            assert secret not in content and secret.hex().encode() not in content, path
        if path.suffix in (".log", ".jsonl"):
            assert not any(w in content.decode() for w in words), path
    assert json.loads((run / "disclosures.json").read_text())["masked"] is True
    assert all(os.stat(home / "keys").st_mode & 0o077 == 0 for home in homes)
