"""The reference that gives the same answer always, with figures counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from config.load import load
from methods.tasks.load import load_task


def test_of_sentences_it_is_the_most_frequent_relation_and_never_none() -> None:
    corpus = "sentence:sentences=200,dev=60,test=60"
    task: Any = load_task(load(None, {"method": "fedavg", "corpus": corpus}))
    train, gold = (task.data(s).labels for s in ("train", "test"))
    relations = [c for c in range(len(task.labels)) if c != task.none]
    most = max(relations, key=lambda c: (train == c).sum())
    assert (train == task.none).sum() > (train == most).sum()  # else None would not be left out
    found = task.majority("test")
    hits = (gold == most).sum()
    assert found.figures["accuracy"] == pytest.approx(hits / len(gold))
    assert found.figures["recall"] == pytest.approx(hits / (gold != task.none).sum())


def test_of_distant_pairs_it_is_the_order_of_the_relations() -> None:
    corpus = "distant:sentences=600,dev=80,test=200"
    task: Any = load_task(load(None, {"method": "fedavg", "corpus": corpus}))
    counts = np.bincount(task.corpus.train.relation, minlength=len(task.labels))
    first = 1 + int(counts[1:].argmax())
    rows = task.corpus.split("test")
    pairs = sorted(set(zip(rows.head.tolist(), rows.tail.tolist())))[:100]
    facts = {tuple(f) for f in task.corpus.gold["test"].tolist()}
    assert len(pairs) == 100
    hits = sum((h, t, first) in facts for h, t in pairs)
    assert task.majority("test").figures["p@100"] == pytest.approx(hits / 100)
