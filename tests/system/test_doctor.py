"""`sottovoce doctor` says what is wrong with a machine and what to do, and its status says whether
anything is.
"""

from __future__ import annotations

import io
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cli import doctor
from cli.doctor_serving import board_of
from cli.main import main
from config.site import read_site
from coordinator.board import Board
from coordinator.process import doors
from study.machine import Machine
from study.presence import Presence
from tests.consortium import Consortium
from wire.counter import ByteCounter
from wire.keys import CurveKeys
from wire.questions import QuestionServer
from wire.router import Router


def _examine(
    config: Path, machine: Machine | None = None, listen: str = "127.0.0.1:0"
) -> tuple[int, dict[str, str]]:
    """The status, and the lines by check: "ok …", "warn …" or "fail …"."""
    out = io.StringIO()
    status = doctor.examine(
        config, machine or Machine(Path("nowhere")), listen, Console(file=out, width=400)
    )
    found: dict[str, str] = {}
    for line in out.getvalue().splitlines():
        said, check, text = re.split(r"\s+", line, maxsplit=2)
        found[check] = f"{said} {text}"
        assert said == "ok" or " -> " in text, line  # whatever is not well says what to do
    return status, found


@pytest.fixture
def listening(consortium: Consortium) -> Iterator[int]:
    """The coordinator's door, open: its port."""
    hub = consortium.rings["hub"]
    allowed, revoked = doors(hub.pinned())
    router, over = Router(hub.curve, allowed, ByteCounter(), revoked), threading.Event()
    port = router.bind("127.0.0.1", 0)

    def answer() -> None:
        while not over.is_set():
            router.receive(0.05)

    thread = threading.Thread(target=answer)
    thread.start()
    yield port
    over.set()
    thread.join()
    router.close()


def test_a_silos_machine(
    consortium: Consortium, listening: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    consortium.study(method="fedavg", corpus="distant:sentences=600", rounds=1)
    status, found = _examine(consortium.site("north", listening))
    assert status == 0, found
    well = {
        "version",
        "keys",
        "permissions",
        "roster",
        "study",
        "corpus",
        "checkpoint",
        "memory",
        "disk",
        "reach",
    }
    assert {c for c, line in found.items() if line.startswith("ok ")} == well | {"clock"}
    assert "--accept" in found["consent"]
    assert consortium.rings["north"].card.fingerprint in found["keys"]

    monkeypatch.setattr(doctor, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(doctor, "_DISK_BYTES", 1 << 60)
    monkeypatch.setattr(doctor, "_BASE_BYTES", 1 << 60)
    (consortium.path / "north").chmod(0o755)
    status, found = _examine(consortium.site("north", listening, clock_tolerance=1e-9))
    assert status == 1
    failed = {c for c, line in found.items() if line.startswith("fail ")}
    assert failed == {"permissions", "memory", "disk", "clock"}
    assert "chmod 700" in found["permissions"]

    # Somebody else's door, and nobody's; a study that its rules forbid; keys that others can read.
    stranger = Router(CurveKeys.generate(), {}, ByteCounter())
    status, found = _examine(
        consortium.site("north", stranger.bind("127.0.0.1", 0), "[limits]\nmethods = ['att']\n")
    )
    stranger.close()
    assert found["reach"].startswith("fail who listens") and "allows only att" in found["study"]
    (consortium.path / "north" / "keys" / "identity").chmod(0o644)
    status, found = _examine(consortium.site("north", 1))
    assert (
        status == 1
        and found["reach"].startswith("fail nobody answers")
        and "chmod 600" in found["keys"]
    )


def test_a_coordinators_machine(consortium: Consortium, listening: int) -> None:
    study = consortium.study(method="fedavg", corpus="distant:sentences=600", rounds=1)
    hub = Machine(consortium.path / "hub", out=str(consortium.path / "runs"))
    status, found = _examine(study, hub)
    assert (
        status == 0
        and found["port"].startswith("ok")
        and found["roster"].startswith("ok version 1")
    )
    status, found = _examine(study, hub, f"127.0.0.1:{listening}")
    assert status == 1 and found["port"].startswith("fail cannot listen")
    with study.open("a") as file:
        file.write(f'[hashes]\nmodel = "{"0" * 64}"\n')
    status, found = _examine(study, Machine(consortium.path / "north", out="."))
    assert (
        status == 1
        and "has the keys of a silo" in found["keys"]
        and "is not the one that" in found["study"]
    )


def test_a_silo_does_not_start_with_an_old_or_changed_roster(
    consortium: Consortium, capsys: pytest.CaptureFixture[str]
) -> None:
    consortium.study(method="fedavg", corpus="distant:sentences=600", rounds=1)
    site, first = consortium.site("north", 1), consortium.roster
    second = consortium.enact(first.rotate(consortium.rings["east"].rotate().card))

    def refused(text: str, attack: str) -> None:
        (consortium.path / "north" / "roster.json").write_text(text)
        with pytest.raises(SystemExit) as ended:
            main(["silo", "--config", str(site), "--accept", "0" * 64])
        said = capsys.readouterr().err
        assert (
            ended.value.code == 2
            and f"refused ({attack}): " in said
            and len(said.strip().splitlines()) == 1
        ), said

    refused(first.to_text(), "old-roster")
    refused(
        second.to_text().replace(second.silos[0].curve, CurveKeys.generate().public.decode()),
        "key-substitution",
    )
    refused(second.to_text().replace("a test", "another test"), "tampered-roster")
    refused("", "tampered-roster")


@pytest.fixture
def board(consortium: Consortium) -> Iterator[int]:
    """A coordinator that serves: its board's port."""
    shown, over = Board(consortium.path / "hub", consortium.roster), threading.Event()
    allowed = {card.curve.encode(): card.name for card in consortium.roster.silos}
    curve = consortium.rings["hub"].curve
    server = QuestionServer(curve, lambda silo, said: shown.heard(silo, said, {}), allowed)
    port = server.bind("127.0.0.1", 0)

    def answer() -> None:
        while not over.is_set():
            server.serve(0.05)

    thread = threading.Thread(target=answer)
    thread.start()
    yield port
    over.set()
    thread.join()
    server.close()


def test_a_machine_that_serves(consortium: Consortium, board: int, tmp_path: Path) -> None:
    own, data = consortium.path / "own.toml", consortium.path / "data"
    own.write_text(f'home = "north"\ncoordinator = "127.0.0.1:{board}"\ncorpus = "data"\n')
    data.mkdir()
    status, found = _examine(own)
    assert status == 1 and found["corpus"].startswith("fail") and "has no file" in found["corpus"]
    (data / "train.jsonl").write_text("{}")
    status, found = _examine(own)
    assert status == 0, found
    assert found["study"].startswith("ok none is named") and "1 files can be" in found["corpus"]
    assert found["reach"] == "ok the board of hub answers, and has 0 studies that go on"
    assert "the coordinator has" not in found["version"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coordinator.board.VERSION", "9.9.9")
        assert "has sottovoce 9.9.9" in _examine(own)[1]["version"]
    (data / "train.jsonl").unlink()
    (data / "train.jsonl").symlink_to(data / "gone.jsonl")
    status, found = _examine(own)
    assert status == 1 and "train.jsonl cannot be read" in found["corpus"]
    keys, roster = consortium.rings["north"], consortium.roster
    refused = board_of(read_site(own), replace(keys, curve=CurveKeys.generate()), roster)
    assert refused[0] == "fail" and "does not let this key in" in refused[2]
    # the coordinator's own port is taken by itself, while it serves
    home = consortium.path / "hub"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        assert doctor._port(place, home).status == "fail"
        Presence(home).beat({})
        assert doctor._port(place, home).status == "ok"
