"""Runs of `sottovoce simulate` as forked children of one warmed process.

A run of a small network takes seconds, and most of them are imports: torch, transformers, the
optimizers' compiler stack. A `Warm` process imports them once and forks a child for every run. It
is told what to run, and says what came of it, in lines of JSON. Where fork is not safe
(config.parent) every run is a process of its own, which imports them again.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
from typing import Any

from config.parent import forks

__all__ = ["Warm", "main"]


class Warm:
    """One such process. Runs come one after another; a caller that wants two at once has two."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, command: list[str]) -> tuple[int, str]:
        """Status and last words of `command`, which is as for `subprocess`: Python, -m, a module,
        its arguments.
        """
        if not forks():
            return _afresh(command)
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.papers.warm"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then it has no answer either
            print(json.dumps(command[2:]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            return self._process.wait() or 1, "the process that runs are forked from has ended"
        status, said = json.loads(line)
        return int(status), str(said)

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def _afresh(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout


def _forked(words: list[str]) -> tuple[int, str]:
    """`python -m WORDS` in a child of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            os.close(reader)
            status = _run(words)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "r", encoding="utf-8", errors="replace") as f:
        said = f.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def _run(words: list[str]) -> int:
    import runpy
    import traceback

    sys.argv = words
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 1
    except BaseException:  # the child must end here, and say why
        traceback.print_exc()
        return 1
    return 0


def _warmed() -> None:
    """All that a run of an encoder or of a PCNN imports."""
    import importlib

    import torch

    torch.set_num_threads(1)
    weight: Any = torch.nn.Parameter(torch.zeros(2, 2))
    weight.sum().backward()
    torch.optim.AdamW([weight]).step()
    for name in (
        "transformers.models.bert.modeling_bert",
        "bench.simulation.run",
        "methods.tasks.sentence",
        "methods.tasks.distant",
        "methods.tasks.document",
        "methods.tasks.ner",
        "report.write",
    ):
        importlib.import_module(name)
    # a run collects after every silo's turn; what was imported need not be looked through each time
    gc.freeze()


def main() -> None:
    from config.program import as_program

    with as_program(), contextlib.suppress(KeyboardInterrupt):
        _warmed()
        for line in sys.stdin:
            print(json.dumps(_forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
