"""A silo's own file: where its data and keys are, which study it is asked to join, and its own
limits, which win.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from config.errors import UserError, nearest
from config.load import read_toml

__all__ = ["OwnLimits", "Site", "is_site", "read_site"]


@dataclass(frozen=True)
class OwnLimits:
    methods: tuple[str, ...] = ()  # those it takes part in; empty: any
    minimum_survivors: int = 3  # the smallest sum it hides in
    maximum_epsilon: float = math.inf  # over all that was ever released of its records
    maximum_delta: float = 1e-5  # the largest at which a study may state its epsilon
    maximum_rounds: int = 0  # of one study; 0: as many as the study has
    hours: str = ""  # when it computes, on this machine's clock: "18:00-06:00"; empty: always


@dataclass(frozen=True, kw_only=True)
class Site:
    path: Path
    study: Path  # the study file
    home: Path  # the silo's folder: keys, pinned roster, journal, ledger
    # HOST:PORT, or several with commas between: where it is, or may be started again
    coordinator: str
    # its own folder; empty: this silo's part of the built-in corpus that the study names
    corpus: str = ""
    encoder: str = ""  # where its copies of checkpoints and vectors are
    seq2seq: str = ""
    vectors: str = ""
    metrics: str = ""  # PORT or HOST:PORT for Prometheus; empty: off
    clock_tolerance: float = 30.0  # seconds that this clock and the coordinator's may differ
    limits: OwnLimits = field(default_factory=OwnLimits)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(place.strip() for place in self.coordinator.split(","))


def is_site(path: Path) -> bool:
    """Whether a file is a silo's own (it names a study) and not a study."""
    return "study" in read_toml(path)


def read_site(path: Path) -> Site:
    table = read_toml(path)
    limits = table.pop("limits", {})
    if not isinstance(limits, dict):
        raise UserError(f"{path}: [limits] must be a table.")
    given = _typed(path, "", Site, table, ("path", "limits"))
    for key in ("study", "home"):
        # where a relative path begins must not hang on who starts the program
        given[key] = path.parent / given[key]
    for key in ("corpus", "encoder", "seq2seq", "vectors"):
        beside = path.parent / given.get(key, "")
        if given.get(key) and beside.exists():
            given[key] = str(beside)
    for place in given["coordinator"].split(","):
        host, colon, port = place.strip().rpartition(":")
        if not (colon and host and port.isdigit() and 0 < int(port) < 65536):
            raise UserError(f'{path}: coordinator must be HOST:PORT, not "{place}".')
    own = OwnLimits(**_typed(path, "limits.", OwnLimits, limits, ()))
    if own.minimum_survivors < 3 or own.maximum_rounds < 0 or not own.maximum_epsilon > 0:
        raise UserError(
            f"{path}: [limits] need minimum_survivors of 3 or more, and no negative number."
        )
    if not 0 < own.maximum_delta < 1:
        raise UserError(f"{path}: limits.maximum_delta must be between 0 and 1.")
    return Site(path=path, limits=own, **given)


def _typed(
    path: Path, prefix: str, kind: type, table: dict[str, Any], without: tuple[str, ...]
) -> dict[str, Any]:
    known = {f.name: f for f in fields(kind) if f.name not in without}
    out: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise UserError(f'{path}: unknown key "{prefix}{key}".{nearest(key, known)}')
        want = str(known[key].type)
        if want == "float" and type(value) is int:
            value = float(value)
        if want.startswith("tuple"):
            good = isinstance(value, list) and all(isinstance(v, str) for v in value)
            value = tuple(value) if good else value
        else:
            good = type(value).__name__ == {"Path": "str"}.get(want, want)
        if not good:
            words = {
                "int": "a whole number",
                "float": "a number",
                "tuple[str, ...]": "a list of texts",
            }
            raise UserError(f"{path}: {prefix}{key} must be {words.get(want, 'text')}.")
        out[key] = value
    for name, f in known.items():
        if name not in out and f.default is MISSING and f.default_factory is MISSING:
            raise UserError(f'{path}: "{prefix}{name}" is missing.')
    return out
