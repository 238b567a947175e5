"""Which pairs are asked about, where a format marks only the relations that there are.

An ordered pair of types is a candidate if the training split has a relation from one to the other.
Two things of one type are asked in the order of the text if all such relations of the training split
go that way, else in both orders. The label then never shows in which of the two is called the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Rule", "rule_of"]

Types = tuple[str, str]


@dataclass(frozen=True)
class Rule:
    #: ordered pair of types -> only in the order of the text
    asked: Mapping[Types, bool]

    def asks(self, types: Types, forward: bool) -> bool:
        return types in self.asked and (forward or not self.asked[types])

    def words(self) -> str:
        said = [
            f"{a} with {b}" + (" in the order of the text" if forward else "")
            for (a, b), forward in sorted(self.asked.items())
        ]
        return "candidate pairs: " + ", ".join(said)


def rule_of(seen: Iterable[tuple[Types, bool]]) -> Rule:
    """From the relations of the training split: (types of head and tail, whether the head comes
    first).
    """
    ways: dict[Types, set[bool]] = {}
    for types, forward in seen:
        ways.setdefault(types, set()).add(forward)
    return Rule({t: t[0] == t[1] and found == {True} for t, found in ways.items()})
