"""SemEval-2010 task 8, as it is published: a numbered sentence in quotation marks with `<e1>` and
`<e2>`, a line with the relation and its direction, a comment, a blank line.

`Cause-Effect(e1,e2)` and `Cause-Effect(e2,e1)` are two relations, as in the task's own scores of
direction. `Other` is none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from config.errors import UserError
from corpora.lines import lines, plain_name
from corpora.notes import Notes
from corpora.sentence.marks import unmarked
from corpora.sentence.table import Example

__all__ = ["is_semeval", "semeval"]

_FIRST = re.compile(r'\s*(\d+)\s+"?(.*?)"?\s*$')


def is_semeval(path: Path) -> bool:
    """Whether sentences have their relation below them; the test file for guessers has none."""
    if not plain_name(path).endswith(".txt"):
        return False
    try:
        first, second = itertools.islice(
            itertools.chain((text for _, text in lines(path, Notes()) if text.strip()), ("", "")), 2
        )
    except UserError:
        return False
    marked = bool(_FIRST.match(first)) and "<e1>" in first and "</e2>" in first
    return marked and not _FIRST.match(second)


def semeval(path: Path, notes: Notes) -> Iterator[Example]:
    block: list[tuple[int, str]] = []
    for number, text in lines(path, notes):
        if text.strip():
            block.append((number, text.strip()))
        elif block:
            yield _example(path, block)
            block = []
    if block:
        yield _example(path, block)


def _example(path: Path, block: list[tuple[int, str]]) -> Example:
    number, first = block[0]
    match = _FIRST.match(first)
    try:
        if match is None:
            raise ValueError("a number and a sentence are expected")
        if len(block) < 2 or block[1][1].startswith("Comment:"):
            raise ValueError("the sentence has no relation on the line below it")
        if len(block) > 2 and not block[2][1].startswith("Comment"):
            raise ValueError("a blank line is missing after the example")
        example = Example(*unmarked(match[2]), block[1][1])
        if example.problem():
            raise ValueError(example.problem())
    except ValueError as e:
        raise UserError(f"{path}, line {number}: not an example of SemEval 2010: {e}.") from None
    return example
