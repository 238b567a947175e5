"""The command line in a process of its own, its lines passed on to whoever called.

A simulation forks its silos from a process that has loaded little and computes with one thread. A
notebook's process is neither: so everything that trains is done by the same program as on the
command line, and gives the same model. The process ends with the one that started it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from config.errors import UserError

__all__ = ["read_json", "relay", "words"]

_ROOT = Path(__file__).resolve().parent.parent  #: where the packages of this project are
_MISTAKE, _INTERRUPTED = 2, 130  #: exit statuses of the command line


def words(settings: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> list[str]:
    """Settings as the command line takes them; None is left out."""
    out = []
    for name, value in settings.items():
        if value is not None:
            text = ("off", "on")[value] if isinstance(value, bool) else str(value)
            out.append(f"{name.upper()}={text}")
    for name, value in (options or {}).items():
        # A text in quotes, so that a word such as "5" or "on" stays a word.
        quoted = isinstance(value, bool | str)
        out += ["--set", f"{name}={json.dumps(value, ensure_ascii=False) if quoted else value}"]
    return out


def relay(arguments: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """Run the command, hand every line that it prints to `say`, return them all. A mistake comes
    back as the exception that it was; an interrupt is passed on, and waits for the command to end
    in good order.
    """
    seen: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        child = _start(arguments, errors)
        assert child.stdout is not None
        try:
            interrupted = False
            while True:
                try:
                    for line in child.stdout:
                        seen.append(line.rstrip("\n"))
                        say(seen[-1])
                    status = child.wait()
                    break
                except KeyboardInterrupt:
                    if interrupted:  # asked twice: at once
                        raise
                    interrupted = True
                    child.send_signal(signal.SIGINT)
        finally:
            if child.poll() is None:
                child.kill()  # its silos and coordinator die with it
                child.wait()
            child.stdout.close()
        errors.seek(0)
        _judge(status, interrupted, seen, errors.read().strip())
    return seen


def read_json(arguments: Sequence[str]) -> dict[str, Any]:
    """What a command with --json prints."""
    table: dict[str, Any] = json.loads("\n".join(relay(arguments, lambda line: None)))
    return table


def _start(arguments: Sequence[str], errors: Any) -> subprocess.Popen[str]:
    # A notebook's kernel asks programs for colours and moving bars; here only lines are passed on.
    plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    # -P: a folder of the user's that is called like a package of ours is not taken for it.
    program = [sys.executable, "-P", "-m", "sottovoce._child", str(os.getpid())]
    return subprocess.Popen(
        [*program, *arguments],
        env={**plain, "PYTHONPATH": path, "TTY_COMPATIBLE": "0", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        encoding="utf-8",
        start_new_session=True,  # an interrupt reaches it from here alone, and so once
    )


def _judge(status: int, interrupted: bool, seen: Sequence[str], errors: str) -> None:
    """Raise what the command's end means, if it was not a good one."""
    before, _, sentence = errors.rpartition("\n")
    if status == _MISTAKE:
        _warn(before)
        raise UserError(sentence)
    if interrupted or status == _INTERRUPTED:
        raise KeyboardInterrupt(seen[-1] if seen else "")
    if "Traceback" in errors:
        raise RuntimeError(f"sottovoce failed, which it should not:\n{errors}")
    if status:
        raise UserError(sentence or (seen[-1] if seen else f"It ended with status {status}."))
    _warn(errors)


def _warn(text: str) -> None:
    if text:
        print(text, file=sys.stderr)
