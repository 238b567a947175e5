"""The live page in a real browser during a real run, and what its server refuses; the terminal's
view of the same.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report.live import LiveRun
from report.watch import closing
from tests.browser.chromium import Tab, chromium, needs_chromium
from tests.conftest import ROOT, SMALL, Running, command, lines, sottovoce, summary, wait_for


@pytest.fixture
def tab() -> Iterator[Tab]:
    with chromium() as tab:
        tab.size(1000, 900)
        yield tab


def asked(
    address: str, method: str = "GET", path: str = "", host: str = ""
) -> tuple[int, bytes, Any]:
    place, _, rest = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(place, timeout=10)
    try:
        headers = {"Host": host} if host else {}
        connection.request(method, path or "/" + rest, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


@needs_chromium
def test_page_follows_a_real_run_to_its_end_and_survives_it(tab: Tab, start: Any) -> None:
    running: Running = start("SILOS=3", "METHOD=fedavg", *SMALL, "ROUNDS=4")
    run = running.run
    watcher = subprocess.Popen(
        command("watch", str(run), "--dashboard"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        # Tests that a shell runs in the background have Ctrl-C ignored, and so would what they
        # start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert watcher.stdout is not None
        address = watcher.stdout.readline().strip().removeprefix("dashboard: ")
        assert address.startswith("http://127.0.0.1:")
        tab.open(address)
        tab.until("['running', 'finished'].includes(document.documentElement.dataset.status)")
        tab.until("document.querySelectorAll('#silos li').length === 3")
        tab.until("Number(document.documentElement.dataset.rounds) >= 1")
        status, text = running.finish()
        assert status == 0, text
        tab.until("document.documentElement.dataset.status === 'finished'")
        s, rounds = summary(run), lines(run / "rounds.jsonl")
        said = tab.run("document.querySelector('#status').textContent")
        assert said.startswith("The run ended: it is finished.") and f"{s['value']:.4f}" in said
        table = tab.run(
            "[...document.querySelectorAll('#rounds tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        assert [(r[0], r[1]) for r in table] == [
            (str(r["round"] + 1), f"{r['dev']:.4f}") for r in reversed(rounds)
        ]
        assert tab.run("document.querySelector('#up').textContent") == _bytes(
            sum(r["bytes_up"] for r in rounds)
        )
        drawn = (
            "echarts.getInstanceByDom(document.querySelector('#metric')).getOption().series[0].data"
        )
        assert tab.run(drawn) == [r["dev"] for r in rounds]
        refused(address)
        # the watcher leaves; a page that is left open stays as it is
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(20) == 0
        before = len(tab.requests)
        tab.run("new Promise(done => setTimeout(done, 1500))")
        assert len(tab.requests) == before  # the run has ended: nothing more is asked for
        assert tab.run("document.querySelector('#status').textContent") == said
        assert {r for r in tab.requests if not r.startswith("data:")} == {
            address,
            address + "state.json",
        }
        assert tab.complaints == []
    finally:
        watcher.kill()
        watcher.wait()


def refused(address: str) -> None:
    """Wrong token, other paths, other names of this machine, anything but reading."""
    place = address.removeprefix("http://").partition("/")[0]
    token = address.rstrip("/").rpartition("/")[2]
    status, content, headers = asked(address + "state.json")
    assert status == 200 and json.loads(content)["ended"] and headers["Cache-Control"] == "no-store"
    port = place.rpartition(":")[2]
    wrong = (
        "/",
        "/state.json",
        f"/{token[:-1]}/",
        f"/{token}x/",
        f"/{token}/../",
        f"/{token}/config.toml",
        "/%00/",
    )
    for path in wrong:
        status, content, _ = asked(address, path=path)
        assert status == 404 and token.encode() not in content, path
    assert asked(address, host=f"evil.example:{port}")[0] == 404
    assert asked(address, host=f"localhost:{port}")[0] == 200
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        assert asked(address, method)[0] == 405, method
    with pytest.raises(OSError):  # the loopback address only: not on the others of this machine
        http.client.HTTPConnection("127.0.0.2", int(port), timeout=2).connect()


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"


def test_a_run_is_told_from_its_files_and_a_killed_one_is_missed(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'method = "fedavg"\ncorpus = ""\nsilos = 3\nrounds = 2\nsecagg = true\n', "utf-8"
    )

    def happens(*events: dict[str, Any]) -> None:
        with (tmp_path / "events.jsonl").open("a") as f:
            f.writelines(json.dumps({"time": 1.0, **e}) + "\n" for e in events)

    live = LiveRun(tmp_path)
    assert live.catch_up() == [] and live.snapshot()["status"] == "starting"
    names = [f"silo-{i:03d}" for i in range(3)]
    happens(
        {"event": "listening", "port": 1, "round": 0},
        *({"event": "hello", "silo": n} for n in names[:2]),
    )
    happens(
        {"event": "absent", "silos": names[2:]},
        {"event": "round", "round": 0, "rounds": 2, "cohort": names[:2]},
    )
    happens({"event": "computing", "silo": names[0], "round": 0, "exchange": "train"})
    happens({"event": "answered", "silo": names[0], "round": 0, "exchange": "train"})
    happens({"event": "lost", "silo": names[1], "round": 0})
    said = live.catch_up()
    assert [s["state"] for s in live.snapshot()["silos"]] == ["answered", "lost", "absent"]
    assert said == ["starting without silo-002", "silo-001 was lost in round 1"]
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / "processes.json").write_text(
        json.dumps({"host": "elsewhere", "launcher": gone.pid}) + "\n", "utf-8"
    )
    assert live.catch_up() == [] and not live.ended
    here = {"host": platform.node(), "launcher": gone.pid}
    (tmp_path / "processes.json").write_text(json.dumps(here) + "\n", "utf-8")
    assert "its processes are gone" in live.catch_up()[0]
    assert (
        live.ended
        and closing(live.snapshot()) == "The run ended: its processes are gone and it said nothing."
    )
    # resumed; the table is an old one
    happens({"event": "listening", "port": 1, "round": 0, "time": 9e12})
    live.catch_up()
    assert live.snapshot()["status"] == "running"
    happens({"event": "failed", "why": "Only 1 silos are here."})
    live.catch_up()
    assert closing(live.snapshot()) == "The run ended: it failed. Only 1 silos are here."


def test_watch_of_something_else_is_told_so() -> None:
    done = sottovoce("watch", "/nowhere")
    assert (
        done.returncode == 2
        and done.stderr.strip() == '"/nowhere" is not a run folder: it has no config.toml.'
    )


def test_terminal_follows_and_ends_with_the_run(start: Any) -> None:
    running: Running = start("SILOS=3", "METHOD=fedavg", *SMALL)
    done = sottovoce("watch", str(running.run))
    status, text = running.finish()
    assert status == 0, text
    assert done.returncode == 0, done.stderr
    wait_for(lambda: (running.run / "summary.json").exists())
    assert "round 1 of 2: dev" in done.stdout and "The run ended: it is finished." in done.stdout
