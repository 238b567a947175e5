"""Which test plays which attack: `refuses` where it is refused, `gains` where its defence is gone
and it succeeds.

test_attacks_all.py reads the two lists, and compares them with the names in the code and with
docs/secagg.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from crypto.errors import Refusal

__all__ = ["GAINED", "REFUSED", "gains", "refuses", "without"]

#: attack -> the tests that play it, as module:function
REFUSED: dict[str, set[str]] = defaultdict(set)
GAINED: dict[str, set[str]] = defaultdict(set)
_Test = TypeVar("_Test", bound=Callable[..., Any])


def refuses(*attacks: str) -> Callable[[_Test], _Test]:
    """Over a real socket, the attack is refused, and a log line has its name."""
    return _marks(REFUSED, attacks)


def gains(*attacks: str) -> Callable[[_Test], _Test]:
    """Over a real socket, with the defence gone, the attacker has what it wanted."""
    return _marks(GAINED, attacks)


def _marks(table: dict[str, set[str]], attacks: tuple[str, ...]) -> Callable[[_Test], _Test]:
    def mark(test: _Test) -> _Test:
        for attack in attacks:
            table[attack].add(f"{test.__module__.rpartition('.')[2]}:{test.__name__}")
        return test

    return mark


def without(patch: pytest.MonkeyPatch, where: Any, check: str, attack: str) -> None:
    """A check that no longer refuses this one attack; whatever else it refuses, it still does."""
    real = getattr(where, check)

    def unguarded(*arguments: Any, **named: Any) -> Any:
        try:
            return real(*arguments, **named)
        except Refusal as refusal:
            if refusal.attack != attack:
                raise
            return None

    patch.setattr(where, check, unguarded)
