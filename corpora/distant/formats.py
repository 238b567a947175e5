"""The formats in which distant-supervision corpora are published. Each parser takes a line,
or its JSON object, and gives its rows.

* **OpenNRE**: one JSON object a line, `text` with character offsets or `token` with token offsets,
  `h` and `t` with `id` or `name` and `pos`, and `relation`. The Lazy MIL authors' MIRGENE files are
  the same with `entity_pair` in place of ids.
* **NYT10, older**: tab-separated head id, tail id, head, tail, relation, sentence, `###END###`;
  relations are listed in `relation2id.txt`. Entities stand in the sentence as single tokens.
* **MIRGENE** (Li et al. 2017): relations joined by `|` or NONE, document, sentence and pair id,
  then features, separated by blanks; a tab; the sentence with both entities tagged
  `<Tag>...</Tag>`. Written after the reader in the authors' repository, which does not show the
  tags themselves: any two tagged spans are taken, the miRNA's as the head.
* **PGR** (Sousa et al. 2019): tab-separated with a header, character offsets and knowledge-base
  ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from corpora.distant.rows import Row
from corpora.distant.table import NA
from corpora.relations import is_none, names_of

__all__ = ["mirgene", "nyt10", "opennre", "pgr"]

_WORDS = re.compile(r"\w+|[^\w\s]")
_TAG = re.compile(r"<(/?)([A-Za-z][\w.-]*)[^<>]*>")


def opennre(item: Any) -> Iterator[Row]:
    """A list of relations gives a row for each; a word for none beside others says nothing."""
    if not isinstance(item, dict):
        raise ValueError("not a JSON object")
    head, tail, pair = item["h"], item["t"], item.get("entity_pair")
    names = (str(pair), str(pair)) if pair is not None else (_entity(head), _entity(tail))
    if "token" in item:
        words = [str(w) for w in item["token"]]
        starts = int(head["pos"][0]), int(tail["pos"][0])
    else:
        words, starts = _split_at(str(item["text"]), (head["pos"], tail["pos"]))
    relations = names_of(item["relation"]) or (NA,)
    for relation in [r for r in relations if not is_none(r)] or relations[:1]:
        yield Row(words, starts[0], starts[1], names[0], names[1], relation)


def _entity(entity: dict[str, Any]) -> str:
    return str(entity["id"] if entity.get("id") is not None else entity["name"])


def _split_at(text: str, spans: tuple[Any, Any]) -> tuple[list[str], tuple[int, int]]:
    """Words of a text already separated by blanks, with a new word at each entity's first and last
    character.
    """
    cuts = sorted({0, len(text), *(int(p) for span in spans for p in span[:2])})
    if cuts[0] < 0 or cuts[-1] > len(text):
        raise ValueError("an entity lies outside the sentence")
    words: list[str] = []
    starts: dict[int, int] = {}
    for a, b in zip(cuts, [*cuts[1:], len(text)]):
        starts[a] = len(words)
        words += text[a:b].split()
    return words, (starts[int(spans[0][0])], starts[int(spans[1][0])])


def nyt10(line: str, absent: Callable[[str], None] = lambda name: None) -> Iterator[Row]:
    """`absent` is told the name of an entity that is no word of its sentence."""
    fields = line.split("\t")
    if len(fields) < 6:
        raise ValueError(f"{len(fields)} fields between tabs instead of at least 6")
    head_id, tail_id, head, tail, relation, sentence = (f.strip() for f in fields[:6])
    words = sentence.removesuffix("###END###").split()
    # As in the published preprocessing, an entity not found in its sentence is taken to stand at
    # the start.
    head_at, tail_at = (words.index(name) if name in words else 0 for name in (head, tail))
    for name in {head, tail} - set(words):
        absent(name)
    yield Row(words, head_at, tail_at, head_id, tail_id, relation)


def mirgene(line: str) -> Iterator[Row]:
    info, tab, tagged = line.partition("\t")
    bits = info.split(" ")
    if not tab or len(bits) < 4:
        raise ValueError("no tab between features and sentence, or fewer than four leading fields")
    words: list[str] = []
    spans: list[tuple[str, int]] = []
    at = 0
    for match in _TAG.finditer(tagged):
        words += _WORDS.findall(tagged[at : match.start()])
        at = match.end()
        if not match.group(1):
            spans.append((match.group(2).lower(), len(words)))
    words += _WORDS.findall(tagged[at:])
    if len(spans) != 2:
        raise ValueError(f"{len(spans)} tagged entities instead of 2")
    first, second = spans if "mir" not in spans[1][0] else (spans[1], spans[0])
    for relation in bits[0].split("|"):
        yield Row(
            words, first[1], second[1], bits[3], bits[3], NA if relation == "NONE" else relation
        )


def pgr(line: str) -> Iterator[Row]:
    fields = line.split("\t")
    if len(fields) != 11:
        raise ValueError(f"{len(fields)} fields between tabs instead of 11")
    text, gene, phenotype, label = fields[1], fields[4], fields[5], fields[10].strip()
    if label not in ("True", "False"):
        raise ValueError(f'the relation is "{label}" instead of True or False')
    found = list(_WORDS.finditer(text))
    head_at, tail_at = (
        next((i for i, m in enumerate(found) if m.end() > start), len(found))
        for start in (int(fields[6]), int(fields[8]))
    )
    words = [m.group() for m in found]
    yield Row(words, head_at, tail_at, gene, phenotype, "related" if label == "True" else NA)
