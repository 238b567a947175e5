"""A run's folder as reports read it: every file once, nothing computed from it yet; and two small
readings that the coordinator shares with the pages.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.errors import UserError
from report.audit import Audit, read_audit
from report.event_file import EventFile
from report.events import Event

__all__ = [
    "RunFiles",
    "by_message",
    "read_lines",
    "read_run",
    "read_table",
    "rounds_to",
    "silo_names",
]

Line = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    path: Path
    summary: Line
    rounds: list[Line]
    traffic: list[Line]
    privacy: list[Line]
    events: list[Event]
    disclosures: Line
    curve: Line
    config: Line
    config_text: str
    partition: Line | None  #: only a simulation knows it
    plan: Line | None  #: only where `sottovoce plan` or the launcher left one
    members: Mapping[str, str] = field(default_factory=dict)  #: see `silo_names`
    #: which study of which consortium it is; a simulation is none
    study: Line | None = None
    audit: Audit | None = None  #: only where `make audit` attacked this run

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
        summary = table("summary.json")
        return RunFiles(
            path=run,
            summary=summary,
            rounds=read_lines(run / "rounds.jsonl"),
            traffic=read_lines(run / "traffic.jsonl"),
            privacy=read_lines(run / "privacy.jsonl"),
            events=EventFile(run / "events.jsonl").new(),
            disclosures=table("disclosures.json"),
            curve=table("curve.json"),
            config=tomllib.loads(text),
            config_text=text,
            partition=optional("partition.json"),
            plan=optional("plan.json"),
            members=silo_names(run),
            study=optional("study.json"),
            audit=read_audit(run, summary),
        )
    except OSError as e:
        raise UserError(
            f'"{e.filename}" cannot be read ({e.strerror}); the run folder is not whole.'
        ) from None
    except ValueError as e:
        raise UserError(f'A file of the run "{run}" is damaged: {e}.') from None


def silo_names(run: Path) -> dict[str, str]:
    """What people call the silos of a consortium: silo-000 -> north. The silos of a simulation have
    no names.
    """
    path = run / "members.json"
    try:
        names = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise UserError(f'"{path}" cannot be read ({e}).') from None
    if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
        raise UserError(f'"{path}" is damaged: it does not give each silo a name.')
    return names


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSONL file; a last line still being written is left out."""
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def read_table(path: Path) -> dict[str, Any] | None:
    """A JSON file with one table in it; None: there is no such file."""
    try:
        table = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise UserError(f'"{path}" cannot be read ({e}).') from None
    if not isinstance(table, dict):
        raise UserError(f'"{path}" is damaged: it is not a table.')
    return table


def rounds_to(target: float, dev: Sequence[float | None]) -> int | None:
    """The first round, counted from one, whose dev metric reaches the target; None: none did. A
    round that was not scored reaches nothing.
    """
    reached = (t for t, value in enumerate(dev, 1) if value is not None and value >= target)
    return next(reached, None)


def by_message(run: RunFiles) -> list[tuple[tuple[str, str, str], tuple[int, int, int]]]:
    """(direction, kind, channel) -> (messages, payload bytes, bytes on the wire), the heaviest
    first.
    """
    sums: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for t in run.traffic:
        key = (t["direction"], t["kind"], t["channel"])
        n, p, w = sums.get(key, (0, 0, 0))
        sums[key] = (n + t["messages"], p + t["payload_bytes"], w + t["wire_bytes"])
    return sorted(sums.items(), key=lambda item: -item[1][2])
