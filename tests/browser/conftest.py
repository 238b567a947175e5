"""One run and one browser for all tests of a run's page."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Tab, chromium
from tests.conftest import ROOT, SMALL, Running, command, wait_for


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four real silos, one of which is killed while it trains."""
    out = tmp_path_factory.mktemp("runs")
    words = ("SILOS=4", "METHOD=lazymil", "TARGET=0.01", *SMALL)
    process = subprocess.Popen(
        command("simulate", f"OUT={out}", *words),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    running = Running(process, out)
    try:
        wait_for(lambda: running.computing("silo-003", 1, "score"))
        os.kill(running.pids()["silos"]["silo-003"], signal.SIGKILL)
        status, text = running.finish()
    finally:
        process.kill()
        process.wait()
    assert status == 0, text
    assert f"report: {running.run / 'report.html'}" in text
    return running.run


@pytest.fixture(scope="session")
def browser() -> Iterator[Tab]:
    with chromium() as tab:
        yield tab


@pytest.fixture
def tab(browser: Tab) -> Tab:
    """As a new one: whatever a test before it looked at."""
    browser.size(1000, 800)
    browser.dark(False)
    browser.requests.clear()
    browser.complaints.clear()
    return browser
