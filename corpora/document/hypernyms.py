"""Pairs that only say less of what another pair says: left out, as the literature on CDR does.

If a drug causes acute renal failure, then it causes renal failure too; annotators mark only the
more specific of the two, and the general one would stand as a wrong negative. So a negative pair is
left out if its tail is an ancestor, in the MeSH tree, of the tail of a related pair with the same
head. The rule looks at the gold relations, in dev and test as well; figures with and without it are
not comparable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from config.errors import UserError
from corpora.document.table import Document
from corpora.lines import lines

__all__ = ["Tree", "leave_out", "read_tree"]

#: concept -> its places in the tree, as MeSH writes them: "C12.777.419" lies below "C12.777"
Tree = Mapping[str, tuple[str, ...]]
_PLACE = re.compile(r"[A-Z]\d{2}(\.\d{3})*")
_CONCEPT = re.compile(r"[A-Z]\d{4,}")


def _above(general: tuple[str, ...], special: tuple[str, ...]) -> bool:
    return any(s == g or s.startswith(g + ".") for g in general for s in special)


def leave_out(document: Document, tree: Tree) -> Document:
    """The same document with its general pairs no longer counted."""
    ids = [e.id for e in document.entities]
    related: dict[int, list[str]] = {}
    for p in document.pairs:
        if p.relations:
            related.setdefault(p.head, []).append(ids[p.tail])

    def general(head: int, tail: int) -> bool:
        return any(
            _above(tree.get(ids[tail], ()), tree.get(other, ())) for other in related.get(head, [])
        )

    pairs = tuple(
        replace(p, counted=False) if not p.relations and general(p.head, p.tail) else p
        for p in document.pairs
    )
    return replace(document, pairs=pairs)


def read_tree(path: Path) -> Tree:
    """A file with a tree number and a descriptor per line, between tabs, in either order."""
    found: dict[str, list[str]] = {}
    for _, line in lines(path):
        fields = [f.strip() for f in line.split("\t")[:2]]
        place = next((f for f in fields if _PLACE.fullmatch(f)), "")
        concept = next((f for f in fields if _CONCEPT.fullmatch(f) and f != place), "")
        if place and concept:  # a header has neither
            found.setdefault(concept, []).append(place)
    if not found:
        raise UserError(
            f"{path} is no MeSH tree: no line holds a tree number and a descriptor between tabs."
        )
    return {concept: tuple(places) for concept, places in found.items()}
