"""What the pointer model writes, and how what it wrote is read: entities as [start, end, type],
without any network.

The vocabulary of the output (LightNER): 0 begin, 1 end (also padding of targets), 2 to |T| + 1 the
types, then the positions of the source's pieces. An entity is the first piece of its first word,
the first piece of its last word (inclusive), and its type. Wang et al. 2023, equation 2; the end is
written and trained, although equation 3 stops before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["BEGIN", "END", "FIRST_TYPE", "Origin", "Span", "Target", "parse", "target"]

BEGIN, END, FIRST_TYPE = 0, 1, 2
Span = tuple[int, int, int]  #: first word, word after the last, number of the type


class Origin:
    """Where a token of a target comes from: what its loss is weighted by, and which gradient it is
    part of.
    """

    PADDING, SOURCE, TARGET, END = 0, 1, 2, 3


@dataclass(frozen=True)
class Target:
    """One sentence's output, its end included, and the origin of every token."""

    tokens: tuple[int, ...]
    origins: tuple[int, ...]


def target(
    gold: Sequence[Span], pseudo: Sequence[Span], first_piece: Sequence[int], types: int
) -> Target:
    """Entities ordered by position, then by their last word. `first_piece[w]` is where word w
    begins in the source; an entity with a word beyond it (the sentence was longer than the window)
    cannot be pointed at and is left out.
    """
    both = [(*span, Origin.SOURCE) for span in gold] + [(*span, Origin.TARGET) for span in pseudo]
    tokens: list[int] = []
    origins: list[int] = []
    for start, end, kind, origin in sorted(both):
        if end > len(first_piece):
            continue
        offset = FIRST_TYPE + types
        tokens += [offset + first_piece[start], offset + first_piece[end - 1], FIRST_TYPE + kind]
        origins += [origin] * 3
    return Target((*tokens, END), (*origins, Origin.END))


def parse(tokens: Sequence[int], first_piece: Sequence[int], types: int) -> list[Span]:
    """The entities of an output, in the order they were written, each once.

    Pointers are collected until a type; only exactly two, the second not before the first, make an
    entity. A type without a span is dropped, and so is whatever follows the end.
    """
    word_at = {piece: word for word, piece in enumerate(first_piece)}
    found: dict[Span, None] = {}
    pointers: list[int | None] = []
    for token in tokens:
        if token in (BEGIN, END):
            break
        if token >= FIRST_TYPE + types:
            pointers.append(word_at.get(token - FIRST_TYPE - types))
            continue
        if len(pointers) == 2:
            start, last = pointers
            if start is not None and last is not None and start <= last:
                found[start, last + 1, token - FIRST_TYPE] = None
        pointers = []
    return list(found)
