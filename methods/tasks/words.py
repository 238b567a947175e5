"""What a user is told of the data before a run, by doctor, and by `sottovoce corpus`: the same
lines everywhere.
"""

from __future__ import annotations

from typing import get_args

from methods.tasks.base import Split, Task

__all__ = ["data_lines", "file_line", "warning_lines"]


def file_line(task: Task) -> str:
    """Which file became what; empty for a built-in corpus."""
    if not task.reading.files:
        return ""
    return f"{task.corpus_name} read as {task.reading.format}: {task.reading.said}"


def warning_lines(task: Task) -> list[str]:
    # a silo's folder has no held-out split, and nothing is scored there
    there = [split for split in get_args(Split) if any(task.held_out(split).values())]
    return [f"warning: {text}" for split in there if (text := task.warning(split))]


def data_lines(task: Task) -> list[str]:
    """Files, then everything that was repaired, cut, merged, skipped or set aside."""
    notes = [n.sentence() for n in task.notes()]
    return [line for line in (file_line(task), *notes, *warning_lines(task)) if line]
