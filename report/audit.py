"""audit.json of a run's folder: what attacks on this run proved, beside each promised epsilon. `make
audit` writes it (bench.audit); here it is read, and nothing is computed.

The file is believed where it is whole and names this run by its settings and figures. Any other is
left out of the report, with a sentence that says why.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FILE", "FORMAT", "MODEL", "SAME", "Audit", "Bound", "read_audit", "which_run"]

FILE, FORMAT = "audit.json", 1
MODEL = "the final model"  #: what the attacks on membership are on
_MOST_BYTES, _MOST_ROWS, _MOST_LETTERS = 1 << 20, 100, 400

#: Figures of summary.json that say which run was attacked.
SAME = (
    "method",
    "task",
    "corpus",
    "corpus_sha256",
    "partition",
    "silos",
    "rounds",
    "seed",
    "masked",
    "dp",
    "privacy_unit",
    "epsilon_budget",
    "epsilon",
    "delta",
    "model_sha256",
)


@dataclass(frozen=True)
class Bound:
    """One promise, and what an attack proved of it."""

    what: str
    promised: float  #: at most; may be infinite
    proved: float  #: at least
    confidence: float
    plays: str
    attack: str
    same_unit: bool = True  #: what was told apart is what the promise is about

    @property
    def broken(self) -> bool:
        return self.same_unit and self.proved > self.promised


@dataclass(frozen=True)
class Audit:
    """`ignored`: why the file that is there is left out; everything else is then empty."""

    bounds: tuple[Bound, ...] = ()
    made: float = 0.0
    program: str = ""
    command: str = ""
    played_again: bool = True  #: whether the attacked run ended with this very model
    records: int = 0  #: of the small silo whose releases were played
    ignored: str = ""

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(b.what for b in self.bounds if b.broken))


class _Odd(ValueError):
    """What is not as `make audit` writes it, in words."""


def which_run(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {key: summary.get(key) for key in SAME}


def read_audit(run: Path, summary: Mapping[str, Any]) -> Audit | None:
    """None: nobody attacked this run."""
    path = run / FILE
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _Odd("it is too large")
        return _audit(json.loads(path.read_text("utf-8")), which_run(summary))
    except FileNotFoundError:
        return None
    except OSError as e:
        why = e.strerror or "it cannot be read"
    except _Odd as e:
        why = str(e)
    except (ValueError, RecursionError):
        why = "it is no JSON"
    return Audit(ignored=f"{FILE} in this run's folder is left out: {why}.")


def _audit(table: Any, of: Mapping[str, Any]) -> Audit:
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        raise _Odd("it is not what this version of make audit writes")
    named = table.get("of")
    if not isinstance(named, dict):
        raise _Odd("it does not say which run was attacked")
    other = [key for key in SAME if key not in named or named[key] != of[key]]
    if other:
        raise _Odd(f"it is of another run ({', '.join(other)})")
    played_again = table.get("played_again")
    if not isinstance(played_again, bool):
        raise _Odd("its played_again is neither true nor false")
    confidence = _table(table, "confidence")
    least = {key: _share(confidence, key) for key in ("membership", "releases")}
    on_records = of["dp"] != "silo"
    bounds = [_member(m, least["membership"], on_records) for m in _rows(table, "membership")]
    bounds += [_release(r, least["releases"]) for r in _rows(table, "releases")]
    if not bounds:
        raise _Odd("it has no bound")
    return Audit(
        bounds=tuple(bounds),
        made=_number(table, "made", 1e11),
        program=_word(table, "program"),
        command=_word(table, "command"),
        played_again=played_again,
        records=_count(table, "records"),
    )


def _member(row: Mapping[str, Any], confidence: float, on_records: bool) -> Bound:
    return Bound(
        what=MODEL,
        promised=_promised(row, "epsilon_at_most"),
        proved=_number(row, "epsilon_at_least"),
        confidence=confidence,
        plays=f"{_count(row, 'right')} of {_count(row, 'guesses')} guesses right",
        attack=_word(row, "name"),
        same_unit=on_records,
    )


def _release(row: Mapping[str, Any], confidence: float) -> Bound:
    """The distinguisher that proved most: all of one release share the confidence."""
    tried = _rows(row, "found")
    if not tried:
        raise _Odd("a release has no distinguisher")
    best = max(tried, key=lambda f: _number(f, "epsilon_at_least"))
    proved = _number(best, "epsilon_at_least")
    return Bound(
        what=f"{_word(row, 'release')} ({_word(row, 'exchange')})",
        promised=_promised(row, "epsilon_at_most"),
        proved=proved,
        confidence=confidence,
        plays=f"{_count(best, 'plays')} with the record and as many without it",
        attack=_word(best, "distinguisher") if proved else f"none of {len(tried)}",
    )


def _table(of: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = of.get(key)
    if not isinstance(value, dict):
        raise _Odd(f"its {key} is no table")
    return value


def _rows(of: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = of.get(key)
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise _Odd(f"its {key} is no list of tables")
    if len(value) > _MOST_ROWS:
        raise _Odd(f"its {key} has {len(value)} rows")
    return value


def _word(of: Mapping[str, Any], key: str) -> str:
    value = of.get(key)
    if not isinstance(value, str) or not value.isprintable() or len(value) > _MOST_LETTERS:
        raise _Odd(f"its {key} is no line of text")
    return value


def _number(of: Mapping[str, Any], key: str, most: float = 1e6) -> float:
    value = of.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise _Odd(f"its {key} is no number that it can be")
    return float(value)


def _promised(of: Mapping[str, Any], key: str) -> float:
    return math.inf if of.get(key) == "inf" else _number(of, key)


def _share(of: Mapping[str, Any], key: str) -> float:
    value = _number(of, key, 1.0)
    if not 0.0 < value < 1.0:
        raise _Odd(f"its confidence of {key} is not between 0 and 1")
    return value


def _count(of: Mapping[str, Any], key: str) -> int:
    value = of.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise _Odd(f"its {key} is no whole number")
    return value
