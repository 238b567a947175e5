"""How the corpora of a table were read, in the readers' own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["readings"]


def readings(summaries: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each way a corpus was read. Runs that differ in what was drawn alone share one."""
    ways: dict[tuple[str, str], list[str]] = {}
    for summary in summaries:
        corpus, note = str(summary["corpus"]), str(summary["corpus_note"])
        same = ways.setdefault((corpus, re.sub(r"[\d,]*\d", "#", note)), [])
        if note not in same:
            same.append(note)
    return [
        f"- {corpus}: {first}" + (" (counts of one draw; others differ a little)" if others else "")
        for (corpus, _), (first, *others) in ways.items()
    ]
