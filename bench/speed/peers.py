"""Other people's programs to be measured beside ours: each in an environment of its own, made once
by pip in a cache folder.
"""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

__all__ = ["PeerFailed", "environment", "run_there"]


class PeerFailed(Exception):
    """The peer could not be installed or run; the message is one sentence and what it last said."""


def environment(cache: Path, package: str) -> Path:
    """The peer's own interpreter, installed if it is not there yet."""
    home = cache / package
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        venv.create(home, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", package]
        run_there(command, f"{package} could not be installed")
        (home / "installed").touch()
    return python


def run_there(command: list[str], sentence: str) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    if done.returncode:
        raise PeerFailed(f"{sentence}: {done.stderr.strip()[-400:]}")
    return done.stdout
