"""A run's folder: its name, its configuration, its keys, the link `latest`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path

from config.errors import UserError
from config.load import dump
from config.settings import Settings
from crypto.keys import Identity
from methods.base import derived_seed, silo_name
from wire.keys import CurveKeys, write_private

__all__ = ["create", "make_keys", "shared_secret", "silo_home", "this_command"]

_NAMED = ("torch", "numpy", "cryptography", "pyzmq", "transformers", "opacus", "datasets")


def create(settings: Settings, command: str) -> Path:
    """runs/<id> with config.toml in it, and `latest` pointing there."""
    out = Path(settings.out)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for attempt in range(1000):
            run = out / f"{stamp}-{settings.method}-s{settings.seed}{f'-{attempt}' if attempt else ''}"
            try:
                run.mkdir()
                break
            except FileExistsError:
                continue
        about = {"command": command, "python": platform.python_version(), "machine": platform.machine()}
        about |= {name: importlib.metadata.version(name) for name in _NAMED}
        (run / "config.toml").write_text(dump(settings, about), "utf-8")
        link = out / f".latest-{os.getpid()}"
        link.symlink_to(run.name)
        link.replace(out / "latest")
    except OSError as e:
        raise UserError(f'OUT: cannot write a run folder in "{out}" ({e.strerror}); give another OUT.') from None
    return run


def silo_home(run: Path, index: int) -> Path:
    return run / "silos" / silo_name(index)


def shared_secret(settings: Settings) -> bytes:
    """The silos' common secret. A simulation derives it from its seed, so that both runners use the same."""
    return b"".join(derived_seed(settings.seed, "shared secret", i).to_bytes(8, "little") for i in range(4))


def make_keys(keys: Path, homes: Path, silos: int, secret: bytes) -> None:
    """Keys for one coordinator and all silos, each silo's in a folder of its own that can be carried to its machine."""
    keys.mkdir(mode=0o700, parents=True)
    coordinator = CurveKeys.generate()
    coordinator.save(keys / "coordinator.curve")
    public: dict[str, dict[str, str]] = {}
    for i in range(silos):
        home = homes / silo_name(i)
        home.mkdir(parents=True, mode=0o700)
        curve, identity = CurveKeys.generate(), Identity.generate()
        curve.save(home / "curve")
        identity.save(home / "identity")
        write_private(home / "shared.secret", secret)
        public[silo_name(i)] = {"curve": curve.public.decode(), "identity": identity.public.hex()}
    roster = json.dumps({"coordinator": coordinator.public.decode(), "silos": public}, indent=1).encode()
    write_private(keys / "roster.json", roster)
    for i in range(silos):
        write_private(homes / silo_name(i) / "roster.json", roster)


def this_command() -> str:
    return " ".join(["sottovoce", *sys.argv[1:]])
