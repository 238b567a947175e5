"""Where the real corpora lie, if they are at hand: `shared/data` beside the project, or further up."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DATA"]

_PARENTS = Path(__file__).resolve().parents
_FOUND = (p / "shared" / "data" for p in _PARENTS if (p / "shared" / "data").is_dir())
DATA = next(_FOUND, _PARENTS[3] / "shared" / "data")
