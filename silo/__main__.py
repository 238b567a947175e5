"""`python -m silo` is `sottovoce silo`, on a machine that has no use for the other commands."""

from __future__ import annotations

from pathlib import Path

from study.commands import run_alone, silo_command


def _program(config: Path, *, accept: str, look: str) -> int:
    from rich.console import Console

    from silo.program import look_at, run_silo

    if look:
        return look_at(config, Path(look))
    return run_silo(config, accept, Console())


if __name__ == "__main__":
    run_alone(silo_command(_program), "silo")
