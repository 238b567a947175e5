"""A silo's machine loads nothing of the coordinator, of reports or of the bench; a coordinator's
nothing of the silo. Seen in fresh interpreters that run the real programs, under both spellings.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, wait_for
from tests.consortium import NAMES, Consortium

#: Runs a module as `python -m` does, and leaves a list of what was loaded when it ends.
_LISTING = """
import atexit, json, runpy, sys
file, *sys.argv = sys.argv[1:]
def leave():
    with open(file, "w") as f:
        json.dump(sorted(sys.modules), f)
atexit.register(leave)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
HUB = ("coordinator", "--config", "pyproject.toml", "--home", "tests")
SPELLINGS = ("alone", "sottovoce")
#: From where neither program loads anything while it does its own work.
NEVER = {
    "silo": {"coordinator", "report", "bench", "extract"},
    "coordinator": {"silo", "bench", "extract"},
}


def _spelled(spelling: str, program: str, *words: str) -> list[str]:
    return [program, *words] if spelling == "alone" else ["cli.main", program, *words]


class _Listed(Consortium):
    """A consortium whose programs leave lists of what they loaded."""

    spelling = "alone"

    def line(self, name: str, *words: str) -> list[str]:
        listing = [sys.executable, "-c", _LISTING, str(self.path / f"{name}.modules")]
        return [*listing, *_spelled(self.spelling, *words)]

    def loaded(self, name: str) -> set[str]:
        return set(json.loads((self.path / f"{name}.modules").read_text()))


@pytest.fixture(params=SPELLINGS)
def consortium(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[_Listed]:
    made = _Listed(tmp_path)
    made.spelling = request.param
    made.study(method="fedavg", corpus="distant:sentences=600", rounds=1, epochs=1)
    yield made
    made.close()


def _stands_alone(program: str, spelling: str, loaded: set[str]) -> None:
    packages = {name.partition(".")[0] for name in loaded}
    found = sorted(n for n in loaded if n.partition(".")[0] in NEVER[program])
    assert not found, f"{program}, {spelling}: {found}"
    if program == "silo":  # it opens no port, and has not loaded what would
        assert "wire.router" not in loaded
    # It was the real program, and it came as far as its study.
    assert {f"{program}.program", f"{program}.process", "study.agreement", "torch"} <= loaded
    assert ("cli" in packages) == (spelling == "sottovoce")


def test_in_a_whole_study(consortium: _Listed) -> None:
    port, study = consortium.hub()
    for name in NAMES:
        consortium.silo(name, port, study)
    for name, process in consortium.processes.items():
        assert process.wait(120) == 0, f"{name}\n{consortium.everything()}"
    assert (consortium.run / "report.html").is_file()
    # Terminals and logs call silos by their names.
    assert "silo-00" not in consortium.everything()
    assert '"silo": "north"' in consortium.log("hub") and "north, process" in consortium.log(
        "north"
    )
    for name in NAMES:
        _stands_alone("silo", consortium.spelling, consortium.loaded(name))
    hub = consortium.loaded("hub")
    _stands_alone("coordinator", consortium.spelling, hub)
    assert "report.write" in hub


def test_where_nobody_agreed(consortium: _Listed) -> None:
    """Up to the consent that is not given: a silo that only looks loads no more."""
    file = consortium.site("north", 9)
    process = consortium.start("north", "silo", "--config", str(file))
    assert process.wait(120) == 2
    assert "This silo has not agreed to this study. To agree: --accept" in consortium.log("north")
    assert "Study hash" in consortium.said("north")
    _stands_alone("silo", consortium.spelling, consortium.loaded("north"))
    assert not (consortium.path / "north" / "consents.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("silo", "--help"), "Usage: sottovoce silo [OPTIONS]"),
        (("silo",), '"sottovoce silo" needs --config and a file'),
        (("silo", "serve"), "Missing option '--config'"),
        (("silo", "--confg", "x"), "No such option: --confg"),
        (("silo", "--config", "nowhere.toml"), "nowhere.toml"),
        (("coordinator", "--help"), "Usage: sottovoce coordinator [OPTIONS]"),
        ((*HUB, "--wait", "long"), "Invalid value for '--wait'"),
        ((*HUB, "--listen", "5555"), '--listen must be HOST:PORT, not "5555".'),
    ],
)
def test_both_spellings_say_the_same(words: tuple[str, ...], sentence: str) -> None:
    alone, sottovoce = (
        subprocess.run(
            [sys.executable, "-m", *_spelled(spelling, *words)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        for spelling in SPELLINGS
    )
    assert (alone.returncode, alone.stdout, alone.stderr) == (
        sottovoce.returncode,
        sottovoce.stdout,
        sottovoce.stderr,
    )
    assert alone.returncode == (0 if "--help" in words else 2)
    assert sentence in alone.stdout + alone.stderr
    assert "Traceback" not in alone.stderr


def test_a_run_names_its_command(consortium: _Listed) -> None:
    """config.toml says how the coordinator was started, under either spelling."""
    consortium.hub("--wait", "1", "--patience", "1")
    assert wait_for(lambda: consortium.processes["hub"].poll()) == 4
    assert "sottovoce coordinator --config" in (consortium.run / "config.toml").read_text()
