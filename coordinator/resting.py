"""Silos that cannot be asked now, as they say themselves: their hours are over, or their disk is full.

Both pass, so a coordinator that waits for silos leaves them in peace for a while, and then waits for
them as for those who are gone. A silo greets again when its hours begin. One whose disk was full is
asked again: nobody else knows when there is room. Whoever was asked before gives the same answer
once more, without computing it again.
"""

from __future__ import annotations

import time
from collections.abc import Collection

__all__ = ["Resting"]

_HOURS = 3600.0  #: seconds after which it is asked again, should it not greet
_DISK = 30.0
#: name of the refusal -> in words
_WORDS = {"outside-hours": "is outside its hours", "disk": "has no room on its disk"}


class Resting:
    def __init__(self, waits: bool) -> None:
        """`waits`: whether silos are waited for. Where they are not, each is asked every time."""
        self._waits = waits
        self._until: dict[str, tuple[float, str]] = {}  # silo -> until when, and why

    def refused(self, silo: str, attack: str) -> None:
        """A silo refused what it was asked. Refusals that do not pass change nothing here."""
        if self._waits and attack in _WORDS:
            seconds = _DISK if attack == "disk" else _HOURS
            self._until[silo] = (time.monotonic() + seconds, _WORDS[attack])

    def greeted(self, silo: str) -> None:
        self._until.pop(silo, None)

    @property
    def silos(self) -> set[str]:
        now = time.monotonic()
        return {silo for silo, (until, _) in self._until.items() if now < until}

    def why(self, silos: Collection[str]) -> str:
        """Of those who rest, in words; empty: none of these does."""
        said = (f"{silo} {self._until[silo][1]}" for silo in sorted(self.silos & set(silos)))
        return ", ".join(said)
