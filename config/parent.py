"""A process of ours ends with the one that started it, however that one ends: no study runs on that
nobody follows.

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

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG = 1
_ASKED_EVERY = 0.25  #: seconds
_KERNEL_DOES_IT = sys.platform == "linux"  #: the seam


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
