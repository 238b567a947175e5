"""The settings as a help text shows them, taken from the record itself so that none is forgotten.

`make help` runs this file with any Python, before there is an environment: it imports nothing but
the settings.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields

from config.settings import Settings

__all__ = ["Described", "described", "table"]

#: columns for the names
_INDENT = 3 + max(len(f.name) for f in fields(Settings))
#: What `simulate` takes beside the settings.
_ALSO = (
    ("CONFIG", "a TOML file with settings; what the command line says wins over it"),
    ("SET", 'knobs of the method, as in SET="tau=0.5 loss=hinton"'),
)


@dataclass(frozen=True)
class Described:
    name: str  #: as in the record: lower case
    why: str
    default: str  #: in words where the bare value would say little


def described() -> Iterator[Described]:
    """Every setting but the method's own knobs, in the record's order."""
    for f in fields(Settings):
        if f.name != "options":
            bare = f"{f.default:g}" if isinstance(f.default, float) else str(f.default)
            yield Described(f.name, f.metadata["why"], f.metadata["shown"] or bare)


def table(width: int = 80) -> str:
    """One entry a setting, its default in brackets, and no line longer than `width`."""
    rows = [(s.name.upper(), f"{s.why} [{s.default}]") for s in described()] + list(_ALSO)
    return "\n".join(
        textwrap.fill(
            text,
            width,
            initial_indent=f"  {name:<{_INDENT - 2}}",
            subsequent_indent=" " * _INDENT,
            break_on_hyphens=False,
        )
        for name, text in rows
    )


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
