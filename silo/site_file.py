"""The silo's file for the process of one study: its own words, with this study."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from config.site import Site
from study.monitoring import figures_beside

__all__ = ["PLACES", "write_for_study"]

PLACES = 16  #: studies at once whose figures are passed on
#: What the process of a study needs of the silo's own file, beside the study and the address.
_OWN = (
    *("corpus", "mapping", "encoder", "seq2seq", "vectors"),
    *("device", "metrics", "clock_tolerance"),
)


def write_for_study(site: Site, folder: Path, coordinator: str) -> Path:
    """The silo's file for the process of one study: its own words, with this study."""
    table: dict[str, Any] = {k: getattr(site, k) for k in _OWN if getattr(site, k)}
    table |= {
        "study": str((folder / "study.toml").resolve()),
        "home": str(site.home.resolve()),
        "coordinator": coordinator,
    }
    if site.metrics:  # studies at once have ports of their own there, and so here
        board, study = (int(x.rpartition(":")[2]) for x in (site.coordinator, coordinator))
        place = 1 + (study - board - 1) % PLACES
        table["metrics"] = figures_beside(site.metrics, place)
    for key in ("corpus", "mapping"):
        if getattr(site, key) and os.path.exists(getattr(site, key)):
            table[key] = str(Path(getattr(site, key)).resolve())
    lines = [f"{k} = {_toml(v)}" for k, v in table.items()]
    limits = {f.name: getattr(site.limits, f.name) for f in fields(site.limits)}
    lines += ["", "[limits]", *(f"{k} = {_toml(v)}" for k, v in limits.items())]
    path = folder / "silo.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return json.dumps(list(value))
    return json.dumps(value)
