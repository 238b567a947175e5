"""DocRED and Re-DocRED: JSON with sentences as words, entities as lists of mentions, and labels
between entities.

Every ordered pair of two entities is a candidate. `rel_info.json`, if it is there, gives the
relations their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.document.table import Document, Entity, Pair
from corpora.json_rows import json_rows
from corpora.lines import read_json
from corpora.notes import Notes

__all__ = ["read", "relation_names"]


def relation_names(path: Path | None) -> Mapping[str, str]:
    """P17 -> country, where the publisher's list is in the folder."""
    table = read_json(path) if path is not None else {}
    if not isinstance(table, dict):
        raise UserError(f"{path}: not a JSON object from relation to name.")
    return {str(k): str(v) for k, v in table.items()}


def read(path: Path, names: Mapping[str, str], notes: Notes) -> Iterator[Document]:
    """A JSON list of documents, or one a line."""
    for index, (number, row) in enumerate(json_rows(path, notes)):
        try:
            document = _document(row, f"{path.name}-{index}", names)
            if document.problem():
                raise ValueError(document.problem())
        except (ValueError, KeyError, TypeError, IndexError) as e:
            what = f"missing {e}" if isinstance(e, KeyError) else str(e)
            where = f"{path}, document {index} (line {number})"
            raise UserError(f"{where}: not of this format: {what}.") from None
        yield document


def _document(row: Mapping[str, Any], name: str, names: Mapping[str, str]) -> Document:
    text, sentences, places = "", [], []
    for words in row["sents"]:
        starts = []
        begin = len(text) + bool(text)
        for word in words:
            starts.append(len(text) + bool(text))
            text = f"{text} {word}" if text else str(word)
        sentences.append((begin, len(text)))
        places.append([(s, s + len(str(w))) for s, w in zip(starts, words)])
    entities = []
    for number, vertex in enumerate(row["vertexSet"]):
        spans = []
        for mention in vertex:
            first, after = mention["pos"][:2]
            where = places[mention["sent_id"]]
            if not 0 <= first < after <= len(where):
                raise ValueError(
                    f"a mention of entity {number} at words {first}-{after} of a sentence of {len(where)}"
                )
            spans.append((where[first][0], where[after - 1][1]))
        entities.append(Entity(str(number), str(vertex[0]["type"]), tuple(sorted(set(spans)))))
    relations: dict[tuple[int, int], list[str]] = {}
    for label in row.get("labels") or []:
        if not (0 <= label["h"] < len(entities) and 0 <= label["t"] < len(entities)):
            raise ValueError(
                f"a label of entities {label['h']} and {label['t']}, and there are {len(entities)}"
            )
        relations.setdefault((label["h"], label["t"]), []).append(
            names.get(label["r"], str(label["r"]))
        )
    n = len(entities)
    names_of = {pair: tuple(dict.fromkeys(some)) for pair, some in relations.items()}
    pairs = (Pair(h, t, names_of.get((h, t), ())) for h in range(n) for t in range(n) if h != t)
    return Document(
        str(row.get("title", name)), text, tuple(sentences), tuple(entities), tuple(pairs)
    )
