"""Attacks 9 to 12 of November 2026 on the code of before, commit 14a77fe: each test passes
where its attack succeeds. They speak that commit's interfaces and run in it, not here (docs/secagg.md
says how).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import psutil
import pytest
import zmq

from coordinator import intake
from crypto.numbers.encoding import Encoding
from silo.journal import FileJournal
from silo.told import ToldRound
from tests.conftest import ROOT, wait_for
from tests.system.liar import Turned
from tests.system.play import on
from tests.system.stage import SIZE
from wire import messages as m
from wire.bundle import Bundle
from wire.keys import CurveKeys
from wire.order import numbered

FAR = (1 << 62) - 1


def seen(*words: object) -> None:
    print("\nSEEN:", *words)


def test_09_bad_field(make, crashes):
    crashes.append(TypeError)
    liar = make().enrol()
    liar.tell("silo-000", liar.header(), common=[["model", ["<f4"], [SIZE]]])
    wait_for(lambda: bool(liar.stage.crashes), 20)
    seen("a type that is a list ended the silo:", liar.stage.crashes[0])


COORDINATOR = """
import resource, sys
if sys.argv[4] == "few": resource.setrlimit(resource.RLIMIT_NOFILE, (120, 4096))
from pathlib import Path
status = Path("/proc/self/status").open()
from wire.counter import ByteCounter
from wire.dealer import Dealer
from wire.keys import CurveKeys
from wire.messages import Hello
from wire.router import Router
own, other = CurveKeys(sys.argv[1].encode(), sys.argv[2].encode()), sys.argv[3].encode()
if sys.argv[4].startswith("tcp"):
    end = Dealer(sys.argv[4], own, other)
    end.send(Hello("0", b""))
    print(0, flush=True)
else:
    end = Router(own, {other: "silo-000"}, ByteCounter())
    print(end.bind("127.0.0.1", 0), flush=True)
for line in sys.stdin:
    word = ""
    if line == "read\\n": end.receive(20)
    try:
        if line == "open\\n": Path("/dev/null").open().close()
    except OSError as e: word = e.strerror.replace(" ", "_")
    status.seek(0)
    print(status.read().split("VmHWM:")[1].split()[0], word, flush=True)
"""


class Process:
    """A coordinator, or a silo that has dialled, in a process of its own."""

    def __init__(self, own, other, how):
        words = [own.public.decode(), own.secret.decode(), other.public.decode(), how]
        self.process = subprocess.Popen(
            [sys.executable, "-c", COORDINATOR, *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.process.stdout.readline())

    def say(self, word):
        """The most memory it had, in MiB, and what went wrong."""
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        memory, *wrong = self.process.stdout.readline().split()
        return int(memory) // 1024, "".join(wrong)


@pytest.fixture
def ends():
    """A process's keys, ours, and a socket of ours that speaks to it."""
    context, theirs, ours = zmq.Context(), CurveKeys.generate(), CurveKeys.generate()

    def socket(kind):
        s = context.socket(kind)
        s.curve_secretkey, s.curve_publickey, s.linger = ours.secret, ours.public, 0
        s.setsockopt(zmq.SNDHWM, 0)
        if kind == zmq.ROUTER:
            s.curve_server = True
        else:
            s.curve_serverkey = theirs.public
        return s

    yield theirs, ours, socket
    context.destroy(linger=0)


def test_10_idle_strangers(ends):
    import socket

    theirs, ours, _ = ends
    victim = Process(theirs, ours, "few")
    crowd = [socket.create_connection(("127.0.0.1", victim.port)) for _ in range(200)]
    server = psutil.Process(victim.process.pid)
    wait_for(lambda: server.num_fds() >= 120, 20)
    wrong = victim.say("open")[1]
    seen(len(crowd), "idle connections, and a file cannot be opened:", wrong)
    victim.process.kill()
    assert wrong == "Too_many_open_files"


def test_11_flood_of_a_coordinator(ends):
    theirs, ours, socket = ends
    victim, liar = Process(theirs, ours, ""), socket(zmq.DEALER)
    liar.connect(f"tcp://127.0.0.1:{victim.port}")
    liar.send(numbered(0, m.encode(m.Hello("0", b""))))
    before = victim.say("read")[0]
    liar.send_multipart([bytes(m.FRAME_BYTES)] * 240, copy=False)
    grew = victim.say("read")[0] - before
    victim.process.kill()
    seen("one message of 240 frames:", grew, "MiB")
    assert grew > 200


def test_11_flood_of_a_silo(ends):
    theirs, ours, socket = ends
    liar = socket(zmq.ROUTER)
    port = liar.bind_to_random_port("tcp://127.0.0.1")
    victim = Process(theirs, ours, f"tcp://127.0.0.1:{port}")
    route = liar.recv_multipart()[0]
    liar.send_multipart([route, numbered(0, m.encode(m.Ping()))])
    before = victim.say("read")[0]
    for _ in range(60):
        liar.send_multipart([route, bytes(m.HANG_UP_BYTES - 64)], copy=False)
    wait_for(lambda: victim.say("")[0] - before > 200, 30)
    seen("60 unread messages of 4 MiB:", victim.say("")[0] - before, "MiB")
    victim.process.kill()


def test_11_flood_of_refused_broadcasts(make, monkeypatch):
    rounds, begin = [], ToldRound.__init__

    def watched(self):
        begin(self)
        rounds.append(self)

    monkeypatch.setattr(ToldRound, "__init__", watched)
    liar = make().enrol()
    for number in range(24):
        with pytest.raises(Turned):
            liar.ask("silo-000", liar.header(weight_cap=7.0), np.full(250_000, number, np.float32))
    held = [b.buffer.nbytes for r in rounds for b in r._held.values() if isinstance(b, Bundle)]
    seen("of 24 refused broadcasts of 1 MB it keeps", sum(held), "bytes")
    seen("a sealed array may have", intake._SEALED_LIMIT, "bytes")
    assert sum(held) == 24_000_000 and intake._SEALED_LIMIT == 1 << 30


def test_12_far_number(perform):
    play = perform()
    play.lie(on("hello", lambda x, p: [(replace(x, last=FAR), p)]))
    play.enrol()
    play.perform()
    notes = [path.read_text() for path in play.stage.path.glob("silos/*/journal*")]
    far = [text for text in notes if str(FAR + 1)[:9] in text]
    seen("one silo's greeting is the last number of", len(far), "of", len(notes), "journals")
    assert len(far) == len(notes)


def test_12_rotated(make, crashes):
    crashes.append(ValueError)
    liar = make().enrol()
    liar.stage.data["silo-000"][:] = 3.0
    model, encoding = np.full(SIZE, 1e38, np.float32), Encoding(32, 4, (SIZE,), (8.0,))
    header = liar.header(model, encoding=replace(encoding, rotate=True))
    told = liar.tell("silo-000", header, model)
    liar.say("silo-000", m.Go(told.number))
    liar.hear("silo-000", m.Ready)
    liar.say("silo-000", m.Send(told.number))
    wait_for(lambda: bool(liar.stage.crashes), 20)
    seen("the silo ended:", liar.stage.crashes[0])


def test_12_journal(tmp_path):
    journal = FileJournal(tmp_path / "journal.jsonl")
    journal.put("last/run", "1 0")
    journal.put("last/run", "7 3")
    journal.close()
    first, second = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_bytes(first + b"\xff\n" + second)
    last = FileJournal(tmp_path / "journal.jsonl").get("last/run")
    seen("after a bad byte, the last sum was", last)
    assert last == "1 0"
