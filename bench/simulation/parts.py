"""What a simulation's processes do, however they were started: the coordinator's part, a silo's part,
and how a process becomes one of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

from config.errors import UserError
from config.logs import log_to
from config.parent import end_with_parent
from coordinator import process as coordinator_process
from coordinator.rundir import coordinator_home, silo_home
from silo import process as silo_process
from silo.home import Home
from study.agreement import study_hash
from study.prepare import Study
from wire.keyring import Keyring

__all__ = ["as_child", "coordinate", "coordinator_log", "silo_log", "take_part"]

_ALONE = contextlib.nullcontext()
#: seconds for silos to say hello, and more for each of them: they are started one after another
_HELLO, _HELLO_EACH = 60.0, 0.25
#: seconds for silos that load their corpus first: on other machines, or started anew here
_ELSEWHERE = 300.0


def coordinate(run: Path, study: Study, keys: Keyring, tell: int, *, warmed: bool) -> int:
    """`tell`: where it says its port. `warmed`: silos are forked from a process that has loaded all
    they need.
    """
    settings = study.settings
    local = settings.launcher == "local"

    def bound(port: int) -> None:
        os.write(tell, f"{port}\n".encode())

    return coordinator_process.serve(
        run,
        keys,
        settings=settings,
        task=study.task,
        method=study.method,
        study=study_hash(settings, study.agreement, study.task.name),
        host="127.0.0.1" if local else "0.0.0.0",  # noqa: S104 (only keys of this run's roster are let in)
        bound=bound,
        enrol_seconds=(_HELLO if local and warmed else _ELSEWHERE) + _HELLO_EACH * settings.silos,
        simulated=True,
    )


def take_part(
    run: Path, study: Study, address: str, i: int, turn: AbstractContextManager[object] = _ALONE
) -> int:
    return silo_process.serve(
        Home(silo_home(run, i)),
        address=address,
        settings=study.settings,
        task=study.task,
        data=study.task.subset(study.partition.indices[i]),
        method=study.method,
        simulated=True,
        turn=turn,
    )


def silo_log(run: Path, i: int) -> Path:
    return silo_home(run, i) / "silo.log"


def coordinator_log(run: Path) -> Path:
    return coordinator_home(run) / "coordinator.log"


def as_child(
    parent: int, logfile: Path, work: Callable[[], int], tell: int | None = None
) -> NoReturn:
    """This process logs to `logfile`, ends with the status that `work` returns, and tells a failure
    on `tell`.
    """
    status, sentence = 70, ""
    try:
        if not end_with_parent(parent, signal.SIGKILL):
            os._exit(status)
        # Ctrl-C reaches the whole group; the parent decides
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        out = os.open(logfile, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log_to(sys.stderr)
        status = work()
    except UserError as e:
        status, sentence = 2, str(e)
    except coordinator_process.RoundFailed as e:
        status, sentence = coordinator_process.FAILED, str(e)
    except OSError as e:
        status, sentence = 1, f"Reading or writing failed: {e}."
    except BaseException as e:
        status, sentence = 1, f"{type(e).__name__}: {e}; {logfile} has the details."
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            if sentence:
                logging.error("%s", sentence)
            if tell is not None:
                os.write(tell, sentence.replace("\n", " ").encode()[:4000])
            sys.stderr.flush()
        os._exit(status)
