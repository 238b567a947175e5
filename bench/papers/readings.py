"""How the corpora of a table were read, in the readers' own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["readings"]


def readings(summaries: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each way a corpus was read. Runs that differ in what was drawn alone share one."""
    ways: dict[str, list[str]] = {}
    for summary in summaries:
        said = f"{summary['corpus']}: {summary['corpus_note']}"
        same = ways.setdefault(re.sub(r"[\d,]*\d", "#", said), [])
        if said not in same:
            same.append(said)
    return [
        f"- {first}" + (" (counts of one draw; others differ a little)" if others else "")
        for first, *others in ways.values()
    ]
