"""SILOS_PER_PROCESS: one process that serves many silos of a simulation, for more silos than a
machine holds as processes.

Each silo has a thread, and in it what it would have in a process: its keys, folder, journal, ledger,
log and connection. It sends and hears the same messages, and the model is the same. One at a time
works (`turn`), because torch's dice and much else belong to a whole process; the others wait for
messages. So a host uses one core, and there should be at least as many hosts as cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from config.errors import UserError
from config.logs import JsonLines
from wire.crowd import raise_file_limit

__all__ = ["hosts_of", "serve_many"]

_M_ARENA_MAX = -8  #: of glibc: threads that work in turns need no memory pools of their own


def hosts_of(silos: Sequence[int], per_process: int) -> list[list[int]]:
    """Which silos share a process: neighbours in number do not, so that a cohort is spread."""
    hosts = -(-len(silos) // per_process)
    return [list(silos[h::hosts]) for h in range(hosts)]


def serve_many(
    serve: Callable[[int, contextlib.AbstractContextManager[object]], int],
    logs: Mapping[int, Path],
) -> int:
    """`serve` for each silo, with the turn that it must hold while it works; its log goes to its own
    file. Returns the worst status: one silo's failure is nobody else's.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    raise_file_limit()
    turn, statuses = threading.Lock(), dict[int, int]()
    _log_by_thread({str(i): path for i, path in logs.items()})

    def one(silo: int) -> None:
        statuses[silo] = 1
        try:
            statuses[silo] = serve(silo, turn)
        except UserError as e:
            statuses[silo] = 2
            logging.error("%s", e)
        except Exception:
            logging.exception("ended by an error of the program itself")

    threads = [threading.Thread(target=one, args=(i,), name=str(i)) for i in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(statuses.values(), default=0)


class _ByThread(logging.Handler):
    """To the file of the silo whose thread it is; of threads that are nobody's, to the host's."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        super().__init__()
        self.setFormatter(JsonLines({}))
        self._streams: dict[str, TextIO] = {
            name: path.open("a", encoding="utf-8") for name, path in files.items()
        }

    def emit(self, record: logging.LogRecord) -> None:
        stream = self._streams.get(str(record.threadName), sys.stderr)
        stream.write(self.format(record) + "\n")
        stream.flush()


def _log_by_thread(files: Mapping[str, Path]) -> None:
    for path in files.values():
        path.touch(mode=0o600)
    logging.basicConfig(handlers=[_ByThread(files)], level=logging.WARNING, force=True)
    for name in ("silo", "coordinator", "wire"):
        logging.getLogger(name).setLevel(logging.INFO)
