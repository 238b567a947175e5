"""`sottovoce doctor` says what is wrong with a machine and what to do, and its status says whether
anything is.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from cli import doctor
from cli.main import main
from coordinator.process import doors
from study.machine import Machine
from tests.consortium import Consortium
from wire.counter import ByteCounter
from wire.keys import CurveKeys
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
