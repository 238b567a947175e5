"""What silos still have of the round at hand, by what they say when they greet and by what they have
answered since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["Remembered"]


class Remembered:
    def __init__(self) -> None:
        self._answered: dict[str, set[tuple[int, int]]] = {}  # silo -> (round, exchange)

    def greeted(self, silo: str, answered: Iterable[object]) -> None:
        """A silo that was restarted may have less than before."""
        self._answered[silo] = {(a[0], a[1]) for a in answered if _is_pair(a)}  # type: ignore[index]

    def note(self, round: int, exchange: int, silos: Iterable[str]) -> None:
        for silo in silos:
            self._answered.setdefault(silo, set()).add((round, exchange))

    def carrying(self, silos: Iterable[str], round: int, exchanges: Collection[int]) -> set[str]:
        """Those who have answered these exchanges of this round and remember it."""
        wanted = {(round, k) for k in exchanges}
        return {silo for silo in silos if wanted <= self._answered.get(silo, set())}


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(x) is int for x in value)
