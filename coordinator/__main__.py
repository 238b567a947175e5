"""`python -m coordinator` is `sottovoce coordinator`, without the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from study.commands import coordinator_app, run_alone

if TYPE_CHECKING:
    from study.machine import Machine


def _run(config: Path, machine: Machine, **how: Any) -> int:
    from coordinator.program import run_coordinator

    return run_coordinator(config, machine, console=Console(), **how)


def _serve(machine: Machine, listen: str, **how: Any) -> int:
    from coordinator.serving import serve_board

    return serve_board(machine, listen, console=Console(), **how)


if __name__ == "__main__":
    run_alone(coordinator_app(_run, _serve), "coordinator")
