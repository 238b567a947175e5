"""Strangers who connect and say nothing: silos get in all the same, and files can be written."""

from __future__ import annotations

import errno
import resource
import socket
import subprocess
import sys

import psutil
import pytest

from tests.conftest import ROOT, wait_for
from wire import crowd
from wire import messages as m
from wire.dealer import Dealer
from wire.keys import CurveKeys


def test_idle_strangers_leave_room_for_silos_and_for_files() -> None:
    """In a process of its own that may have few descriptors unless it asks for more: the strangers
    take more than it began with, and a silo gets in and a file is written all the same. Where it
    cannot have more, half of what it has is left for files. Where it neither asks nor shuts any of
    them down, nothing is.
    """
    program = """
import resource, socket, sys, time
soft = 120
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if sys.argv[1] == "cannot": hard = soft
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from wire.crowd import raise_file_limit
from wire.router import Received, Router
from wire.counter import ByteCounter
from wire.keys import CurveKeys
from wire.dealer import Dealer
from wire import messages as m
if sys.argv[1] != "not": raise_file_limit()
else:
    import wire.backlog
    wire.backlog.most_silent = lambda: 4096
hub, silo = CurveKeys.generate(), CurveKeys.generate()
router = Router(hub, {silo.public: "silo-000"}, ByteCounter())
port = router.bind("127.0.0.1", 0)
print(port, hub.public.decode(), silo.public.decode(), silo.secret.decode(), flush=True)
sys.stdin.readline()  # the strangers stand there
# a burst may take all for a moment; idle handshakes would end by themselves after ten seconds
until, found = time.monotonic() + 2, "no file"
while found == "no file" and time.monotonic() < until:
    try:
        open("/dev/null").close()
        found = "file"
    except OSError as e:
        time.sleep(0.05)
print(found, flush=True)
until = time.monotonic() + 6
while time.monotonic() < until:
    event = router.receive(0.2)
    if isinstance(event, Received):
        print("heard", event.silo, flush=True)
        break
else:
    print("nobody", flush=True)
"""
    for asks, wanted in (
        ("asks", ["file", "heard silo-000"]),
        ("cannot", ["file"]),
        ("not", ["no file", "nobody"]),
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", program, asks],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        port, hub, public, secret = process.stdout.readline().split()
        strangers = [socket.create_connection(("127.0.0.1", int(port))) for _ in range(200)]
        server = psutil.Process(process.pid)
        wait_for(lambda: len(server.net_connections()) > 50, 20)  # noqa: B023
        keys = CurveKeys(public.encode(), secret.encode())
        dealer = Dealer(f"tcp://127.0.0.1:{port}", keys, hub.encode())
        try:
            process.stdin.write("\n")
            process.stdin.flush()
            said = [process.stdout.readline().strip()]
            dealer.send(m.Hello("0", b""), None)
            if len(wanted) > 1:
                said.append(process.stdout.readline().strip())
            assert said == wanted
        finally:
            dealer.close()
            for s in strangers:
                s.close()
            process.kill()
            process.wait()


def test_a_write_waits_for_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def write() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return "written"

    assert crowd.when_descriptors_are_free(write) == "written" and len(tries) == 3
    monkeypatch.setattr(crowd, "_SECONDS", 0.0)
    tries.clear()
    with pytest.raises(OSError):
        crowd.when_descriptors_are_free(write)

    def full() -> None:
        tries.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    tries.clear()
    with pytest.raises(OSError):
        crowd.when_descriptors_are_free(full)
    assert len(tries) == 1


def test_a_checkpoint_that_finds_no_descriptor_says_so_by_its_number() -> None:
    """In a process of its own, with all its descriptors taken."""
    program = (
        "import errno, os, resource, tempfile, numpy as np, pathlib\n"
        "from methods.common.arrays import save_arrays\n"
        "folder = pathlib.Path(tempfile.mkdtemp())\n"
        "save_arrays(folder / 'a.safetensors', {'x': np.zeros(3, np.float32)})\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "taken = []\n"
        "try:\n"
        "    while True: taken.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError: pass\n"
        "try: save_arrays(folder / 'b.safetensors', {'x': np.zeros(3, np.float32)})\n"
        "except OSError as e: print(errno.errorcode[e.errno])\n"
    )
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert told.stdout.strip() == "EMFILE", told.stderr


def test_the_soft_limit_is_raised() -> None:
    program = (
        "import resource; from wire.crowd import raise_file_limit\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))\n"
        "raise_file_limit(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    assert int(told.stdout) == most, told.stderr
