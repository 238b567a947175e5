"""Where sentences end, for corpora that do not say: after . ! or ? before a capital, a digit or a
bracket, but not after a title, a month, an initial or another abbreviation.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

__all__ = ["apart", "sentence_ends", "sentence_spans"]

_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\[(])")
_LONGEST = 12  #: characters of an abbreviation
_INITIALS = re.compile(r"(?:[A-Z]\.)*[A-Z]")
#: Never at the end of a sentence: a name or a number follows.
_BEFORE_NAMES = frozenset(
    "dr drs mr mrs ms mx prof rev hon st sr jr capt col gen lt sgt messrs mme mlle "
    "fig figs eq eqs ref refs no nos vol vols pp art sec ch tab tabl suppl "
    "e.g i.e cf viz vs approx ca resp incl esp al dept univ".split()
)
#: Only before a number: "Jan. 3", "p. 4", and not "The dose was given in may. 3 patients".
_BEFORE_NUMBERS = frozenset(
    "jan feb mar apr jun jul aug sep sept oct nov dec p min max ed par".split()
)
#: Words that begin a sentence after "vitamin K." and are no surname.
_BEGINNERS = frozenset(
    "a after all although an and as at both but by for from he her his however if in it its no "
    "on one our she since some such that the their then there these they this those thus to two "
    "we when while with".split()
)


def sentence_ends(text: str) -> Iterator[int]:
    """Where new sentences begin, the first one aside."""
    for m in _END.finditer(text):
        at = m.start()
        if text[at - 1] == "." and _abbreviated(text, at, m.end()):
            continue
        yield m.end()


def _abbreviated(text: str, at: int, after: int) -> bool:
    """Whether the full stop before `at` belongs to an abbreviation and not to the sentence."""
    word = text[max(0, at - _LONGEST) : at].split()[-1].lstrip("([\"'").rstrip(".")
    small = word.lower()
    if small in _BEFORE_NAMES:
        # "No." answers a question as often as it counts
        return small not in ("no", "nos") or text[after].isdigit()
    if small in _BEFORE_NUMBERS:
        return text[after].isdigit()
    if _INITIALS.fullmatch(word):
        following = re.compile(r"[^\W\d_]+").match(text, after)
        return following is not None and following[0].lower() not in _BEGINNERS
    return False


def sentence_spans(
    text: str, whole: Iterable[tuple[int, int]] = (), cuts: Iterable[int] = ()
) -> tuple[tuple[int, int], ...]:
    """Half-open spans that cover the text. No mention of `whole` is cut in two; `cuts` (a title's
    end) always are.
    """
    free, _ = apart(sentence_ends(text), whole)
    edges = sorted({0, len(text), *free, *(c for c in cuts if 0 < c < len(text))})
    return tuple((a, b) for a, b in zip(edges, edges[1:]) if text[a:b].strip()) or ((0, len(text)),)


def apart(
    places: Iterable[int], spans: Iterable[tuple[int, int]]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Those places that lie in no span; and for every other one, the span that lies over it and
    reaches furthest.
    """
    ordered = sorted(spans)
    starts = [a for a, _ in ordered]
    reach: list[tuple[int, int]] = []  # the furthest end among the spans up to each, and its start
    for a, b in ordered:
        reach.append(max((b, a), reach[-1]) if reach else (b, a))
    free: list[int] = []
    held: list[tuple[int, int]] = []
    for place in places:
        before = bisect_left(starts, place)
        if not before or reach[before - 1][0] <= place:
            free.append(place)
        else:
            held.append(reach[before - 1][::-1])
    return free, held
