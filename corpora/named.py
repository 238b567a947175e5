"""Corpora without a single example: what a study says of its data, for whoever only wants to know what
the study is. Classes and network are those of every party.
"""

from __future__ import annotations

import numpy as np

from corpora.distant import table as distant
from corpora.document import table as document
from corpora.holding import Holding, reading
from corpora.ner import table as ner
from corpora.sentence import table as sentence

__all__ = ["distant_named", "document_named", "ner_named", "sentence_named"]

_NAME = "the classes that the study names"
_NOTE = "without examples"


def distant_named(holding: Holding) -> distant.Corpus:
    nobody = np.zeros((0, 3), dtype=np.int32)
    relations = (distant.NA, *(c for c in holding.classes if c != distant.NA))
    content = distant.Content(
        name=_NAME,
        note=_NOTE,
        words=(),
        entities=(),
        relations=relations,
        splits={split: distant.pack([]) for split in distant.SPLITS},
        gold={"dev": nobody, "test": nobody},
    )
    with reading(holding):
        return distant.cached({"named": holding.source()}, lambda: content)


def sentence_named(holding: Holding) -> sentence.SentenceCorpus:
    empty: dict[str, list[sentence.Example]] = {split: [] for split in sentence.SPLITS}
    content = sentence.Content(_NAME, _NOTE, holding.classes, holding.none, empty)
    with reading(holding):
        return sentence.cached({"named": holding.source()}, lambda: content)


def document_named(holding: Holding) -> document.DocumentCorpus:
    empty: dict[str, list[document.Document]] = {split: [] for split in document.SPLITS}
    content = document.Content(_NAME, _NOTE, holding.classes, empty)
    with reading(holding):
        return document.cached({"named": holding.source()}, lambda: content)


def ner_named(holding: Holding) -> ner.NerCorpus:
    covered = {_NAME: frozenset(holding.classes)}
    empty: dict[str, list[ner.Sentence]] = {split: [] for split in ner.SPLITS}
    content = ner.Content(_NAME, _NOTE, holding.classes, (_NAME,), covered, empty)
    with reading(holding):
        return ner.cached({"named": holding.source()}, lambda: content)
