"""Work in a forked child, so that the process that others are forked from stays as it is: with its
memory, and without an accelerator, because who has used one cannot be forked.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from config.errors import UserError
from config.parent import forks
from models.device import computing_on

__all__ = ["apart"]

_MEMORY = (
    "this machine has not enough free memory for one silo; try a smaller BATCH, or a smaller model."
)


def apart(what: str, work: Callable[[], Mapping[str, Any]], device: str) -> dict[str, Any]:
    """What `work` gives in a child on this device, as JSON through a pipe; here, where fork is not
    safe and so nothing is forked later. `what`: its name for people.
    """
    if not forks():
        return _checked(what, _said(work, device))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            with os.fdopen(writer, "wb") as f:
                f.write(json.dumps(_said(work, device)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as f:
        text = f.read()
    _, status = os.waitpid(pid, 0)
    if not text:  # killed: what kills a child that only computes is the kernel, short of memory
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no word"
        raise UserError(f"The {what} ended with {how}: {_MEMORY}")
    return _checked(what, json.loads(text))


def _checked(what: str, table: Mapping[str, Any]) -> dict[str, Any]:
    if "mistake" in table:
        raise UserError(f"The {what} cannot be made: {table['mistake']}")
    if "bug" in table:
        raise RuntimeError(f"the {what} failed; in its process:\n{table['bug']}")
    return dict(table)


def _said(work: Callable[[], Mapping[str, Any]], device: str) -> Mapping[str, Any]:
    """The result, or what went wrong: a user's mistake is a sentence, a mistake of ours is a
    trace.
    """
    try:
        with computing_on(device):
            return work()
    except UserError as e:
        return {"mistake": str(e)}
    except MemoryError:
        return {"mistake": _MEMORY}
    except BaseException:
        return {"bug": traceback.format_exc()}
