"""How a process of ours is started, and that it ends with the one that started it, however that one
ends: no study runs on that nobody follows.

Where fork is safe, a simulation's processes are forked from a warmed one. macOS has fork and its
libraries do not promise to work after it: there they are started anew (SOTTOVOCE_START=spawn).

Linux's kernel does it when asked (PR_SET_PDEATHSIG). Elsewhere a thread asks whose child this process
is: whoever takes an orphan in has another number.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

from config.errors import UserError

__all__ = ["end_with_parent", "forks"]

_PR_SET_PDEATHSIG = 1
_ASKED_EVERY = 0.25  #: seconds
_KERNEL_DOES_IT = sys.platform == "linux"  #: the seam


def forks() -> bool:
    """Whether processes are forked; else they are started anew and prepare what they need."""
    asked = os.environ.get("SOTTOVOCE_START", "")
    if asked not in ("", "fork", "spawn"):
        raise UserError(f'SOTTOVOCE_START is fork or spawn, not "{asked}"; or leave it out.')
    return asked == "fork" if asked else sys.platform == "linux"


def end_with_parent(parent: int, how: signal.Signals) -> bool:
    """Send this process the signal `how` when `parent` ends. False: it has ended already."""
    if _KERNEL_DOES_IT:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)
    else:
        threading.Thread(target=_watch, args=(parent, how), daemon=True).start()
    return os.getppid() == parent


def _watch(parent: int, how: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(_ASKED_EVERY)
    os.kill(os.getpid(), how)
