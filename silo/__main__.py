"""`python -m silo` is `sottovoce silo`, on a machine that has no use for the other commands."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from study.commands import run_alone, silo_app


def _run(config: Path, *, accept: str, look: str) -> int:
    from silo.program import look_at, run_silo

    if look:
        return look_at(config, Path(look))
    return run_silo(config, accept, Console())


def _serve(config: Path) -> int:
    from silo.serving import serve_studies

    return serve_studies(config, Console())


if __name__ == "__main__":
    run_alone(silo_app(_run, _serve), "silo")
