"""`python -m coordinator` is `sottovoce coordinator`, without the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.commands import coordinator_command, run_alone

if TYPE_CHECKING:
    from study.machine import Machine


def _program(config: Path, machine: Machine, **how: Any) -> int:
    from rich.console import Console

    from coordinator.program import run_coordinator

    return run_coordinator(config, machine, console=Console(), **how)


if __name__ == "__main__":
    run_alone(coordinator_command(_program), "coordinator")
