"""Texts with the two entities marked inside: which marks there are, and the text without them.

`<e1>…</e1>` and `<e2>…</e2>` (SemEval 2010), `[E1]…[/E1]`, `[[ … ]]` for the head with `<< … >>` for
the tail (ChemProt). An entity may also be replaced by its type: `@GENE$`.
"""

from __future__ import annotations

import re

__all__ = ["Unmarked", "has_marks", "unmarked"]

#: the text without marks, the head's span, the tail's, and their types where the marks have them
Unmarked = tuple[str, tuple[int, int], tuple[int, int], str, str]
#: head opened, head closed, tail opened, tail closed
_MARKS = (
    (r"<e1>", r"</e1>", r"<e2>", r"</e2>"),
    (r"\[E1\]", r"\[/E1\]", r"\[E2\]", r"\[/E2\]"),
    (r"\[\[ ?", r" ?\]\]", r"<< ?", r" ?>>"),
)
_PATTERNS = [re.compile("|".join(f"({p})" for p in some), re.I) for some in _MARKS]
_BLIND = re.compile(r"@([A-Z]+)\$")


def has_marks(text: str) -> bool:
    try:
        unmarked(text)
    except ValueError:
        return False
    return True


def unmarked(text: str) -> Unmarked:
    """Raises ValueError where a text has no marks, or not each of them once."""
    for pattern in _PATTERNS:
        found = list(pattern.finditer(text))
        if found:
            return _without(text, found)
    blind = list(_BLIND.finditer(text))
    if len(blind) == 2:
        a, b = blind if blind[0][1] == "GENE" or blind[1][1] != "GENE" else reversed(blind)
        return text, a.span(), b.span(), a[1].lower(), b[1].lower()
    raise ValueError("the text does not mark its two entities")


def _without(text: str, found: list[re.Match[str]]) -> Unmarked:
    if sorted(m.lastindex or 0 for m in found) != [1, 2, 3, 4]:
        raise ValueError("the text does not have one head and one tail in marks")
    plain, at = "", 0
    places: dict[int, int] = {}
    for m in found:
        plain += text[at : m.start()]
        places[m.lastindex or 0] = len(plain)
        at = m.end()
    plain += text[at:]
    head, tail = (places[1], places[2]), (places[3], places[4])
    if head[0] >= head[1] or tail[0] >= tail[1]:
        raise ValueError("a mark is closed before it is opened, or holds nothing")
    return plain, head, tail, "entity", "entity"
