"""A run's folder: its name, its configuration, its keys, the link `latest`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from config.errors import UserError
from config.load import dump
from config.settings import Settings
from crypto.identity.roster import found
from methods.base import derived_seed, silo_name
from wire.keyring import Keyring

__all__ = ["coordinator_home", "create", "make_keys", "shared_secret", "silo_home", "this_command"]

_NAMED = ("torch", "numpy", "cryptography", "pyzmq", "transformers", "opacus", "datasets")


def create(settings: Settings, command: str, name: str = "") -> Path:
    """runs/<id> with config.toml in it, and `latest` pointing there. `name`: this very folder,
    which may be there.
    """
    out = Path(settings.out)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for attempt in range(1000):
            run = out / (
                name
                or f"{stamp}-{settings.method_name}-s{settings.seed}{f'-{attempt}' if attempt else ''}"
            )
            try:
                run.mkdir(exist_ok=bool(name))
                break
            except FileExistsError:
                continue
        about = {
            "command": command,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
        about |= {name: importlib.metadata.version(name) for name in _NAMED}
        kept = replace(settings, method=_kept_method(run, settings))
        beside = run / "config.toml.new"  # whole, or not at all: somebody may follow the run
        beside.write_text(dump(kept, about), "utf-8")
        beside.replace(run / "config.toml")
        link = out / f".latest-{os.getpid()}"
        link.symlink_to(run.name)
        link.replace(out / "latest")
    except OSError as e:
        raise UserError(
            f'OUT: cannot write a run folder in "{out}" ({e.strerror}); give another OUT.'
        ) from None
    return run


def _kept_method(run: Path, settings: Settings) -> str:
    """A method's file from outside is copied into the run: it goes on with what it began with."""
    if not settings.method.endswith(".py"):
        return settings.method
    copy = run / "method" / Path(settings.method).name
    copy.parent.mkdir(exist_ok=True)
    if not copy.exists():
        shutil.copyfile(settings.method, copy)
    return f"method/{copy.name}"


def coordinator_home(run: Path) -> Path:
    return run / "coordinator"


def silo_home(run: Path, index: int) -> Path:
    return run / "silos" / silo_name(index)


def shared_secret(settings: Settings) -> bytes:
    """The silos' common secret. A simulation derives it from its seed, so that both runners use the
    same.
    """
    return b"".join(
        derived_seed(settings.seed, "shared secret", i).to_bytes(8, "little") for i in range(4)
    )


def make_keys(coordinator: Path, homes: Path, silos: int, secret: bytes) -> None:
    """What a consortium does by hand, for one machine: keys of a coordinator and of all silos, and
    their roster.
    """
    hub = Keyring.create(coordinator, "coordinator", "coordinator")
    rings = {
        silo_name(i): Keyring.create(homes / silo_name(i), silo_name(i), "silo")
        for i in range(silos)
    }
    roster = replace(found("a simulation", hub.card), silos=tuple(r.card for r in rings.values()))
    roster = roster.sign({r.card.name: r.identity for r in (hub, *rings.values())}, secret)
    hub.pin(roster)
    for ring in rings.values():
        ring.adopt(roster, coordinator / "roster.json")


def this_command(word: str = "") -> str:
    """As it was typed. `word`: of the program that `python -m WORD` starts without saying it."""
    said = sys.argv[1:]
    return " ".join(["sottovoce", *([word] if word and said[:1] != [word] else []), *said])
