"""Where sentences end, for corpora that do not say: after . ! or ? before a capital, a digit or a
bracket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["SENTENCE_END", "sentence_spans"]

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\[(])")


def sentence_spans(
    text: str, whole: Iterable[tuple[int, int]] = (), cuts: Iterable[int] = ()
) -> tuple[tuple[int, int], ...]:
    """Half-open spans that cover the text. No mention of `whole` is cut in two; `cuts` (a title's
    end) always are.
    """
    inside = sorted(whole)
    ends = {m.end() for m in SENTENCE_END.finditer(text)}
    ends = {e for e in ends if not any(a < e < b for a, b in inside)}
    edges = sorted({0, len(text), *ends, *(c for c in cuts if 0 < c < len(text))})
    return tuple((a, b) for a, b in zip(edges, edges[1:]) if text[a:b].strip()) or ((0, len(text)),)
