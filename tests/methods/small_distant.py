"""Hand-made corpora for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from corpora.distant.rows import Row, Rows
from corpora.distant.table import SPLITS, Content, Corpus, Sentences, pack
from corpora.notes import Reading
from methods.tasks.distant import DistantTask, Knobs


def corpus_of(content: Content) -> Corpus:
    """A corpus that never touched the cache."""

    class _InMemory(Corpus):
        words = content.words
        entities = content.entities

    meta = {
        "name": content.name,
        "hash": "by hand",
        "note": content.note,
        "relations": list(content.relations),
        "public_words": True,
        "auc_points": content.auc_points,
    }
    splits = {s: content.splits[s] for s in SPLITS}
    return _InMemory(folder=Path("nowhere"), meta=meta, gold=content.gold, **splits)


#: Twelve sentences over three silos, four to each, in this order: (silo, sentence, head, tail,
#: relation).
TWELVE = [
    (0, "aspra cures febra .", "aspra", "febra", "treats"),
    (0, "aspra near febra .", "aspra", "febra", "treats"),
    (0, "aspra cures gripa .", "aspra", "gripa", "treats"),
    (0, "dolox near gripa .", "dolox", "gripa", "NA"),
    (1, "aspra near febra .", "aspra", "febra", "treats"),
    (1, "aspra cures gripa .", "aspra", "gripa", "treats"),
    (1, "dolox harms febra .", "dolox", "febra", "causes"),
    (1, "dolox near gripa .", "dolox", "gripa", "NA"),
    (2, "dolox near febra .", "dolox", "febra", "causes"),
    (2, "dolox near febra .", "dolox", "febra", "causes"),
    (2, "aspra near febra .", "aspra", "febra", "treats"),
    (2, "dolox near gripa .", "dolox", "gripa", "NA"),
]

#: Test bags (head, tail): sentences and the facts that are true.
HELD_OUT = [
    ("aspra cures tussa .", "aspra", "tussa", "treats"),
    ("aspra near tussa .", "aspra", "tussa", "treats"),
    ("dolox harms tussa .", "dolox", "tussa", "causes"),
    ("febra near tussa .", "febra", "tussa", "NA"),
    ("febra cures gripa .", "febra", "gripa", "NA"),
]


def _row(sentence: str, head: str, tail: str, relation: str) -> Row:
    words = sentence.split()
    return Row(words, words.index(head), words.index(tail), head, tail, relation)


def twelve() -> DistantTask:
    rows = Rows()
    for relation in ("treats", "causes"):
        rows.relations.setdefault(relation, len(rows.relations))
    for _, *silo_row in TWELVE:
        rows.add("train", _row(*silo_row))
    for row in HELD_OUT:
        rows.add("dev", _row(*row))
        rows.add("test", _row(*row))
    return DistantTask(corpus_of(rows.content("twelve", Reading(), 0)), Knobs(dropout=0.0))


def packed(count: int, rng: np.random.Generator, words: int = 30) -> Sentences:
    """Random sentences, for property tests."""
    rows = []
    for _ in range(count):
        length = int(rng.integers(2, 20))
        at = rng.choice(length, size=2, replace=False)
        entities, relation = rng.integers(0, 4, 2), int(rng.integers(0, 3))
        rows.append(
            (
                rng.integers(0, words, length).tolist(),
                int(at[0]),
                int(at[1]),
                int(entities[0]),
                int(entities[1]),
                relation,
            )
        )
    return pack(rows)
