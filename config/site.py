"""A silo's own file: where its data and keys are, which study it is asked to join, and its own
limits, which win.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from config.errors import UserError, nearest
from config.load import read_toml

__all__ = ["HOURS", "OwnLimits", "Policy", "Site", "is_site", "read_site"]

#: From and to, as in 18:00-06:00.
HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True)
class OwnLimits:
    methods: tuple[str, ...] = ()  # those it takes part in; empty: any
    minimum_survivors: int = 3  # the smallest sum it hides in
    maximum_epsilon: float = math.inf  # over all that was ever released of its records
    maximum_delta: float = 1e-5  # the largest at which a study may state its epsilon
    maximum_rounds: int = 0  # of one study; 0: as many as the study has
    hours: str = ""  # when it computes, on this machine's clock: "18:00-06:00"; empty: always


@dataclass(frozen=True)
class Policy:
    """Which proposed studies a serving silo accepts without asking. It can say less than `[limits]`
    allow, never more: they are checked all the same.
    """

    methods: tuple[str, ...] = ()  # those it accepts; empty: none
    maximum_rounds: int = 0  # 0: none is too long
    maximum_epsilon: float = 0.0  # of a study with a privacy budget; 0: none is accepted
    hours: str = ""  # when it accepts, on this machine's clock: "08:00-18:00"; empty: always
    without_noise: bool = False  # whether a study without a privacy budget is accepted

    def refuses(self, facts: Mapping[str, Any]) -> str:
        """Why it does not accept by itself; empty: it does. `facts`: what the study is."""
        if not self.methods:
            return "this silo accepts no study without being told"
        if facts["method"] not in self.methods:
            return f"its method is {facts['method']}"
        if self.maximum_rounds and facts["rounds"] > self.maximum_rounds:
            return f"it has {facts['rounds']} rounds"
        if facts["dp"] == "off":
            return "" if self.without_noise else "it has no privacy budget"
        if not 0 < facts["epsilon"] <= self.maximum_epsilon:
            return f"its epsilon is {facts['epsilon'] or 'not stated'}"
        return ""


@dataclass(frozen=True, kw_only=True)
class Site:
    path: Path
    # the study file; none for a silo that serves and is told of studies by its coordinator
    study: Path | None = None
    home: Path  # the silo's folder: keys, pinned roster, journal, ledger
    # HOST:PORT, or several with commas between: where it is, or may be started again
    coordinator: str
    # its own folder; empty: this silo's part of the built-in corpus that the study names
    corpus: str = ""
    # a file that maps this silo's names of classes to the study's, one "mine = theirs" a line
    mapping: str = ""
    encoder: str = ""  # where its copies of checkpoints and vectors are
    seq2seq: str = ""
    vectors: str = ""
    device: str = ""  # auto, cpu, cuda or mps: what it computes on; empty: auto
    metrics: str = ""  # PORT or HOST:PORT for Prometheus; empty: off
    slots: int = 1  # studies in which it takes part at once, where it serves
    clock_tolerance: float = 30.0  # seconds that this clock and the coordinator's may differ
    limits: OwnLimits = field(default_factory=OwnLimits)
    accept: Policy = field(default_factory=Policy)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(place.strip() for place in self.coordinator.split(","))


def is_site(path: Path) -> bool:
    """Whether a file is a silo's own (it names a coordinator) and not a study."""
    return "coordinator" in read_toml(path)


def read_site(path: Path) -> Site:
    table = read_toml(path)
    limits, accept = table.pop("limits", {}), table.pop("accept", {})
    if not isinstance(limits, dict) or not isinstance(accept, dict):
        raise UserError(f"{path}: [limits] and [accept] must be tables.")
    given = _typed(path, "", Site, table, ("path", "limits", "accept"))
    for key in {"study", "home"} & set(given):
        # where a relative path begins must not hang on who starts the program
        given[key] = path.parent / given[key]
    for key in ("corpus", "mapping", "encoder", "seq2seq", "vectors"):
        beside = path.parent / given.get(key, "")
        # what is closed to this user is said by whoever opens it
        if given.get(key) and os.path.exists(beside):
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
    if given.get("slots", 1) < 1:
        raise UserError(f"{path}: slots must be 1 or more.")
    policy = Policy(**_typed(path, "accept.", Policy, accept, ()))
    for key, hours in (("limits", own.hours), ("accept", policy.hours)):
        if hours and HOURS.fullmatch(hours.replace(" ", "")) is None:
            raise UserError(f'{path}: {key}.hours must be as in "18:00-06:00", not "{hours}".')
    return Site(path=path, limits=own, accept=policy, **given)


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
            good = type(value).__name__ == {"Path": "str", "Path | None": "str"}.get(want, want)
        if not good:
            words = {
                "int": "a whole number",
                "float": "a number",
                "tuple[str, ...]": "a list of texts",
                "bool": "true or false",
            }
            raise UserError(f"{path}: {prefix}{key} must be {words.get(want, 'text')}.")
        out[key] = value
    for name, f in known.items():
        if name not in out and f.default is MISSING and f.default_factory is MISSING:
            raise UserError(f'{path}: "{prefix}{name}" is missing.')
    return out
