"""A run's folder as reports read it: every file once, nothing computed from it yet."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import UserError
from coordinator.runlog import read_lines

__all__ = ["RunFiles", "read_run"]

Line = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    path: Path
    summary: Line
    rounds: list[Line]
    traffic: list[Line]
    privacy: list[Line]
    events: list[Line]
    disclosures: Line
    curve: Line
    config: Line
    config_text: str
    partition: Line | None  #: only a simulation knows it
    plan: Line | None  #: only where `sottovoce plan` or the launcher left one

    @property
    def on_the_wire(self) -> bool:
        """Whether bytes crossed a wire: in one process none did, and the arrays as coded are all
        there is.
        """
        return bool(self.traffic)


def read_run(run: Path) -> RunFiles:
    """The files of a finished run; a sentence naming the file when one is missing or is not what it
    should be.
    """
    if not (run / "summary.json").is_file():
        raise UserError(f'"{run}" has no summary.json: it is not a finished run.')

    def table(name: str) -> Line:
        return json.loads((run / name).read_text("utf-8"))

    def optional(name: str) -> Line | None:
        return table(name) if (run / name).is_file() else None

    try:
        text = (run / "config.toml").read_text("utf-8")
        return RunFiles(
            path=run,
            summary=table("summary.json"),
            rounds=read_lines(run / "rounds.jsonl"),
            traffic=read_lines(run / "traffic.jsonl"),
            privacy=read_lines(run / "privacy.jsonl"),
            events=read_lines(run / "events.jsonl"),
            disclosures=table("disclosures.json"),
            curve=table("curve.json"),
            config=tomllib.loads(text),
            config_text=text,
            partition=optional("partition.json"),
            plan=optional("plan.json"),
        )
    except OSError as e:
        raise UserError(
            f'"{e.filename}" cannot be read ({e.strerror}); the run folder is not whole.'
        ) from None
    except ValueError as e:
        raise UserError(f'A file of the run "{run}" is damaged: {e}.') from None
