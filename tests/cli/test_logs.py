"""`sottovoce study logs --follow`, as an operator has it in a terminal."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, command, sottovoce, wait_for
from tests.consortium import Consortium

ID = "abcabcabcabc"


@pytest.mark.slow
def test_a_log_is_followed_as_it_grows_until_ctrl_c(tmp_path: Path) -> None:
    home = Consortium(tmp_path).path / "east"
    words = ("study", "logs", ID, "--home", str(home))
    done = sottovoce(*words, "--follow")
    assert done.returncode == 2 and "has not run here" in done.stderr
    log = home / "studies" / ID / "log"
    log.parent.mkdir(parents=True)
    log.write_text("east, process 7, dials hub\n")
    out = tmp_path / "followed"
    follower = subprocess.Popen(
        command(*words, "--follow"),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=out.open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for(lambda: out.read_text() == log.read_text(), seconds=60)
        for line in ("round 1: half a li", "ne\n", "the Zürich line\n"):
            with log.open("a", encoding="utf-8") as file:
                file.write(line)
            wait_for(lambda: out.read_text("utf-8") == log.read_text("utf-8"), seconds=60)
        assert follower.poll() is None
        follower.send_signal(signal.SIGINT)
        assert follower.wait(60) == 0
    finally:
        follower.kill()
        follower.wait()
    assert out.read_text("utf-8") == log.read_text("utf-8")  # and no stack trace
    # without --follow, it ends by itself
    done = sottovoce(*words)
    assert (done.returncode, done.stdout) == (0, log.read_text("utf-8"))
