"""The command line in a process that is asked to stop when the one that started it is gone. Its
words: the number of that process, then those of the command line.
"""

from __future__ import annotations

import runpy
import signal
import sys

from config.parent import end_with_parent


def _main(parent: int, arguments: list[str]) -> None:
    if not end_with_parent(parent, signal.SIGTERM):
        raise SystemExit(1)
    sys.argv = ["sottovoce", *arguments]
    runpy.run_module("cli.main", run_name="__main__")


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
