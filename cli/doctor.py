"""`sottovoce doctor`: is this machine fit to take part? One line per check: ok, warn or fail, and
what to do.

Everything is looked at that can be without taking part: nothing is enrolled, charged or written.
"""

from __future__ import annotations

import platform
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
from rich.console import Console

from cli.doctor_serving import board_of, data_of, version_of
from config.errors import UserError
from config.site import Site, is_site, read_site
from config.study import read_study
from coordinator.program import coordinator_study
from crypto.identity.card import RosterRefused
from crypto.identity.keyfile import KeyFileError
from crypto.identity.roster import Roster
from methods.tasks.words import data_lines
from silo.home import Home
from silo.program import rules_of, silo_study
from study.agreement import Agreed
from study.machine import Machine
from study.presence import read_presence
from wire.dealer import Cut, Dealer
from wire.keyring import Keyring
from wire.messages import VERSION, Probe, Probed
from wire.passphrase import open_keys

__all__ = ["Line", "examine"]

_ANSWER_SECONDS = 15.0  #: a coordinator that is scoring a model answers when it is done
_BASE_BYTES = 600 << 20  #: torch and its libraries in one process
_DISK_BYTES = 200 << 20
_EARLIEST = 1_700_000_000  #: a clock before 2023 was never set


@dataclass(frozen=True)
class Line:
    status: str  #: ok, warn, fail
    check: str
    text: str
    todo: str = ""

    def __str__(self) -> str:
        return f"{self.status:<5} {self.check:<11} {self.text}" + (
            f" -> {self.todo}" if self.todo else ""
        )


def examine(config: Path, machine: Machine, listen: str, console: Console) -> int:
    """Prints every line as it is known. Status 0 unless something failed."""
    lines = _silo(read_site(config)) if is_site(config) else _coordinator(config, machine, listen)
    worst = 0
    for line in lines:
        console.print(str(line), highlight=False, soft_wrap=True, markup=False)
        worst |= line.status == "fail"
    return int(worst)


def _silo(site: Site) -> Iterator[Line]:
    yield _version()
    keys, lines = _keys(site.home, "silo")
    yield from lines
    roster, line = _roster(keys)
    yield line
    if site.study is None:
        yield from (Line(*found) for found in data_of(site))
    elif keys is not None and roster is not None:
        home = Home(site.home)
        home.__dict__["keys"] = keys  # unlocked already: nobody is asked for a passphrase twice
        of, line = _study(lambda: silo_study(site, home, rules_of(site.limits)))
        yield line
        if of is not None:
            yield from _content(of, home.index)
            yield _consent(home, of)
    yield _disk(site.home)
    if site.study is None and keys is not None and roster is not None:
        yield Line(*board_of(site, keys, roster))
        if other := version_of(site, keys, roster):
            yield Line(*other)
        yield _clock_alone()
    else:
        yield from _reach(site, keys, roster)


def _coordinator(study: Path, machine: Machine, listen: str) -> Iterator[Line]:
    yield _version()
    keys, lines = _keys(machine.home, "coordinator")
    yield from lines
    roster, line = _roster(keys)
    yield line
    if roster is not None:
        there = roster
        of, line = _study(lambda: coordinator_study(read_study(study), there, machine))
        yield line
        if of is not None:
            yield from _content(of, None)
    yield _disk(Path(machine.out))
    yield _port(listen, machine.home)
    yield _clock_alone()


def _version() -> Line:
    text = f"sottovoce {VERSION}, Python {platform.python_version()}"
    if not all(find_spec(f"crypto.{name}") for name in ("_kernel", "_keystream")):
        todo = "install a C compiler and the package again; it works without, at a fraction of the speed"
        return Line("warn", "version", text + ", without the compiled secure sum", todo)
    return Line("ok", "version", text)


def _keys(home: Path, role: str) -> tuple[Keyring | None, list[Line]]:
    try:
        keys = open_keys(home)
    except UserError as e:
        todo = f"sottovoce keys new {home} --name NAME --role {role}, or restore it"
        return None, [Line("fail", "keys", str(e), todo)]
    lines = [
        Line(
            "ok",
            "keys",
            f"{keys.card.name} ({keys.card.role}), fingerprint {keys.card.fingerprint}",
        )
    ]
    if keys.card.role != role:
        lines = [
            Line(
                "fail",
                "keys",
                f"{home} has the keys of a {keys.card.role}",
                f"give the folder of a {role}",
            )
        ]
    for folder in (home, home / "keys"):
        mode = folder.stat().st_mode & 0o777
        if mode & 0o077:
            text = f"{folder} is open to others (mode {mode:o})"
            lines.append(Line("fail", "permissions", text, f"chmod 700 {folder}"))
    if len(lines) == 1:
        lines.append(Line("ok", "permissions", f"{home} and its keys are closed to others"))
    return keys, lines


def _roster(keys: Keyring | None) -> tuple[Roster | None, Line]:
    if keys is None:
        return None, Line("fail", "roster", "not looked at", "first the keys")
    try:
        roster = keys.pinned()
    except (RosterRefused, KeyFileError) as e:
        return None, Line(
            "fail", "roster", str(e), "get the version in force, compare it, sottovoce roster pin"
        )
    text = f"version {roster.version} ({roster.fingerprint}), {len(roster.silos)} silos"
    if (keys.path / "next").exists():
        return roster, Line(
            "warn",
            "roster",
            text + "; new keys wait in next/",
            "put their card into the next version",
        )
    return roster, Line("ok", "roster", text)


def _study(read: Callable[[], Agreed]) -> tuple[Agreed | None, Line]:
    """Corpus and checkpoint are loaded here, as a run would."""
    try:
        of = read()
    except UserError as e:
        return None, Line("fail", "study", str(e), "correct the file that it names")
    return of, Line(
        "ok", "study", f"{of.study.title}: {of.prepared.settings.method_name}, hash {of.hash.hex()}"
    )


def _content(of: Agreed, index: int | None) -> Iterator[Line]:
    study = of.prepared
    units = len(study.partition.indices[index]) if index is not None else 0
    if index is None:
        yield Line("ok", "corpus", f"{study.task.corpus_name} can be read")
    elif units:
        yield Line(
            "ok",
            "corpus",
            f"{study.task.corpus_name} can be read: {units} training examples are this silo's",
        )
    else:
        text = f"{study.task.corpus_name} has no training example"
        yield Line("warn", "corpus", text, "check corpus in the silo's file")
    for text in data_lines(study.task):
        yield Line("warn" if text.startswith("warning: ") else "ok", "corpus", text)
    for name, value in {
        **study.agreement,
        "model": of.content["model"],
    }.items():
        pinned = (
            "as the study file says" if name in of.study.hashes else "compared when the silo enrols"
        )
        yield Line("ok", "checkpoint", f"{name} {value[:16]}…, {pinned}")
    model = study.task.new_model(0)
    size = sum(p.numel() * 4 for p in model.parameters())
    # weights, gradients, two moments; the model heard, the update, its coding
    yield _memory(_BASE_BYTES + 8 * size)


def _memory(needed: int) -> Line:
    free = psutil.virtual_memory().available
    text = f"{free >> 20} MB are free, and about {needed >> 20} MB are needed"
    if free < needed:
        return Line("fail", "memory", text, "end other programs, or take a larger machine")
    if free < 2 * needed:
        return Line("warn", "memory", text, "leave it alone during a run")
    return Line("ok", "memory", text)


def _consent(home: Home, of: Agreed) -> Line:
    if home.agreed_to(of.hash.hex()):
        return Line("ok", "consent", "this silo agreed to the study")
    return Line(
        "warn", "consent", "this silo has not agreed to the study yet", f"--accept {of.hash.hex()}"
    )


def _disk(place: Path) -> Line:
    there = next(p for p in (place, *place.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    text = f"{free >> 20} MB are free where {place} is"
    if free < _DISK_BYTES:
        return Line(
            "fail",
            "disk",
            text,
            f"free at least {_DISK_BYTES >> 20} MB: a silo that cannot write stops",
        )
    return (
        Line("warn", "disk", text, "watch it")
        if free < 5 * _DISK_BYTES
        else Line("ok", "disk", text)
    )


def _port(listen: str, own: Path) -> Line:
    host, _, port = listen.rpartition(":")
    try:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((host, int(port)))
    except (OSError, ValueError) as e:
        if read_presence(own).alive(time.time()):
            return Line("ok", "port", f"{listen} is taken: this coordinator serves already")
        return Line(
            "fail",
            "port",
            f"cannot listen on {listen} ({e})",
            "give another --listen, or end what is there",
        )
    return Line("ok", "port", f"{listen} is free; the silos' firewalls must let them dial it")


def _reach(site: Site, keys: Keyring | None, roster: Roster | None) -> Iterator[Line]:
    found, why = _listener(site.addresses)
    if not found:
        todo = "check the address, the firewall, and whether the coordinator runs"
        yield Line("fail", "reach", f"nobody answers at {site.coordinator} ({why})", todo)
        yield _clock_alone()
        return
    if keys is None or roster is None:
        yield Line("warn", "reach", f"somebody listens at {found}", "first the keys and the roster")
        yield _clock_alone()
        return
    answer = _ask(found, keys, roster)
    if not isinstance(answer, tuple):
        todo = "ask its operator to look for refused (unknown-silo) or (revoked-key) in the log, and compare rosters"
        text = f"who listens at {found} is not the coordinator of this roster, or is busy"
        if answer is not None and answer.refused:
            text = f"who listens at {found} does not let this silo's key in"
        yield Line("fail", "reach", text, todo)
        yield _clock_alone()
        return
    said, offset = answer
    yield Line("ok", "reach", f"the coordinator of this roster answers at {found}")
    if said.version != VERSION:
        yield Line(
            "warn",
            "version",
            f"the coordinator has sottovoce {said.version}",
            "install the same on both sides",
        )
    text = f"{abs(offset):.1f} s {'behind' if offset > 0 else 'ahead of'} the coordinator's"
    if abs(offset) > site.clock_tolerance:
        yield Line(
            "fail",
            "clock",
            text,
            f"set the clock (tolerance {site.clock_tolerance:g} s); hours depend on it",
        )
    else:
        yield Line("ok", "clock", text + f", within {site.clock_tolerance:g} s")


def _listener(addresses: Sequence[str]) -> tuple[str, str]:
    """The first of them at which somebody listens, or why nobody does at the last."""
    why = ""
    for place in addresses:
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
            return place, ""
        except OSError as e:
            why = str(e)
    return "", why


def _ask(place: str, keys: Keyring, roster: Roster) -> tuple[Probed, float] | Cut | None:
    """The coordinator's answer, and by how many seconds its clock is ahead of ours; or how the
    connection ended.
    """
    dealer = Dealer(f"tcp://{place}", keys.curve, roster.coordinator.curve.encode())
    try:
        sent = time.time()
        dealer.send(Probe(VERSION))
        heard = dealer.receive(_ANSWER_SECONDS)
        if heard is None or not isinstance(heard[0], Probed):
            return None
        return heard[0], heard[0].time / 1000 - (sent + time.time()) / 2
    except Cut as e:
        return e
    finally:
        dealer.close()


def _clock_alone() -> Line:
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if time.time() < _EARLIEST:
        return Line("fail", "clock", f"it is not {now}", "set the clock")
    return Line("warn", "clock", f"{now}, compared with nobody's", "compare it with your own")
