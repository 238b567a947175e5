"""Some silos of a simulation on another machine: `python -m bench.simulation.worker`, started there
by a launcher (bench.simulation.elsewhere).

What it needs comes on standard input (settings, the coordinator's address, each silo's own folder),
and what its silos wrote goes back on standard output, so that the launcher's run folder is whole.
When standard input ends, so does it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

from silo.home import FEATURES

__all__ = ["main", "pack_homes", "request", "unpack_homes"]

_LENGTH = 8
_ALONE = nullcontext()


def request(settings: dict[str, Any], address: str, homes: dict[int, Path]) -> bytes:
    """What a worker reads. `address`: tcp://HOST:PORT; with HOST `@`, the machine that dialled it
    by ssh.
    """
    body: dict[str, Any] = {
        "settings": settings,
        "address": address,
        "homes": pack_homes(homes),
    }
    if str(settings["method"]).endswith(".py"):  # the other machine need not have it
        body["method"] = Path(settings["method"]).read_bytes()
    packed: bytes = msgpack.packb(body, use_bin_type=True)
    return len(packed).to_bytes(_LENGTH, "big") + packed


def pack_homes(homes: dict[int, Path]) -> list[list[Any]]:
    """All but features of texts, which leave no machine: they are computed again."""
    files = [
        (i, p.relative_to(home), p)
        for i, home in homes.items()
        for p in sorted(home.rglob("*"))
        if p.is_file()
    ]
    return [[i, at.as_posix(), p.read_bytes()] for i, at, p in files if at.parts[0] != FEATURES]


def unpack_homes(files: list[list[Any]], home_of: Any) -> None:
    """Into the folder that `home_of` names for each silo; a name that leads out of it is
    refused.
    """
    for i, name, content in files:
        home: Path = home_of(int(i))
        if (
            not isinstance(name, str)
            or not name
            or name.startswith("/")
            or ".." in Path(name).parts
        ):
            raise ValueError("a file whose name leads out of its folder")
        path = home / name
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(content)


def _read(source: BinaryIO) -> dict[str, Any]:
    length = int.from_bytes(source.read(_LENGTH), "big")
    body: dict[str, Any] = msgpack.unpackb(source.read(length), raw=False, max_bin_len=1 << 31)
    return body


def _dialled(address: str) -> str:
    """The launcher's machine, as ssh says who called."""
    caller = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    return address.replace("@", caller or "127.0.0.1")


def main() -> int:
    body = _read(sys.stdin.buffer)
    from bench.simulation.launch import fork_silos
    from config.settings import Settings
    from methods.base import silo_name
    from silo import process as silo_process
    from silo.home import Home
    from study.machine import one_thread
    from study.prepare import prepare, warm

    one_thread()
    settings = replace(Settings(), **body["settings"])
    address = _dialled(body["address"])
    with tempfile.TemporaryDirectory(prefix="sottovoce-") as folder:
        if "method" in body:
            file = Path(folder) / f"{settings.method_name}.py"
            file.write_bytes(body["method"])
            settings = replace(settings, method=str(file))
        study = prepare(settings)
        warm(study)
        homes = {int(i): Path(folder) / silo_name(int(i)) for i, _, _ in body["homes"]}
        unpack_homes(body["homes"], homes.__getitem__)

        def take_part(i: int, turn: AbstractContextManager[object] = _ALONE) -> int:
            data = study.task.subset(study.partition.indices[i])
            home = Home(homes[i])
            return silo_process.serve(
                home,
                address=address,
                settings=study.settings,
                task=study.task,
                data=data,
                method=study.method,
                simulated=True,
                turn=turn,
            )

        each = settings.silos_per_process
        shared = fork_silos(list(homes), each, take_part, lambda i: homes[i] / "silo.log")
        pids = set(shared.values())

        def until_told() -> None:
            sys.stdin.buffer.read()  # whoever started this is gone
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        threading.Thread(target=until_told, daemon=True).start()
        status = max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
        sys.stdout.buffer.write(msgpack.packb(pack_homes(homes), use_bin_type=True))
        sys.stdout.buffer.flush()
        return status if status >= 0 else 1


if __name__ == "__main__":
    os._exit(main())
