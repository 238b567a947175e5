"""A process ends with the one that started it: by the kernel, and by a thread where there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT, alive, wait_for

#: A parent that starts a child, says its number, and is killed.
PARENT = """
import os, signal, sys, time
import config.parent
config.parent._KERNEL_DOES_IT = sys.argv[1] == "kernel"
reader, writer = os.pipe()
me = os.getpid()
child = os.fork()
if child == 0:
    assert config.parent.end_with_parent(me, signal.SIGKILL)
    os.write(writer, b"x")
    while True:
        time.sleep(60)
os.read(reader, 1)
print(child, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("who", ["kernel", "thread"])
def test_a_child_does_not_outlive_its_parent(who: str) -> None:
    command = [sys.executable, "-c", PARENT, who]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        wait_for(lambda: not alive(child))
