"""Every real corpus in `shared/data` has the counts that its README states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corpora.distant import read as distant
from corpora.document import read as documents
from corpora.ner import read as ner
from corpora.ner.table import NerCorpus
from corpora.sentence import read as sentences
from tests.corpora.real import DATA

pytestmark = pytest.mark.corpus


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _folder(name: str) -> str:
    if not (DATA / name).is_dir():
        pytest.skip(f"needs shared/data/{name}")
    return str(DATA / name)


def _sizes(folder: str) -> tuple[int, int, int]:
    """Train, dev and test; what was cut off train counts as train."""
    splits = sentences.load(folder, 0, 0.0).splits
    return len(splits["train"]), len(splits["dev"]), len(splits["test"])


def _entities(corpus: NerCorpus) -> int:
    return sum(len(rows.entities) for rows in corpus.splits.values())


def test_cdr() -> None:
    corpus = documents.load(_folder("cdr"))
    counts = [corpus.counts(s) for s in ("train", "dev", "test")]
    assert [c.documents for c in counts] == [500, 500, 500]
    assert [c.relations for c in counts] == [1038, 1012, 1066]


def test_gad() -> None:
    train, dev, test = _sizes(_folder("gad"))
    assert (train + dev, test) == (4797, 533)


def test_chemprot() -> None:
    assert _sizes(_folder("chemprot")) == (4169, 2427, 3469)


def test_pgr() -> None:
    corpus = sentences.load(_folder("pgr"), 0, 0.0)
    (left,) = (n.count for n in corpus.reading.notes if n.kind == "skipped")
    sizes = {s: len(rows) for s, rows in corpus.splits.items()}
    assert (sizes["train"] + sizes["dev"] + left, sizes["test"]) == (7963, 1624)
    bags = distant.load(_folder("pgr"))
    rows = [bags.split(s) for s in ("train", "dev", "test")]
    assert sum(map(len, rows)) == 7963
    pairs = np.concatenate([np.stack([r.head, r.tail], axis=1) for r in rows])
    assert len(np.unique(pairs, axis=0)) == 4610


def test_ner() -> None:
    corpus = ner.load(_folder("ner"))
    types = dict(zip(corpus.domains, corpus.covered.sum(axis=1).tolist()))
    assert types == {"BC5CDR": 2, "NCBI-disease": 1, "BioNLP13CG": 16, "BioNLP11ID": 4}
    assert not corpus.reading.notes


def test_ade() -> None:
    assert sum(len(s) for s in ner.load(_folder("ade")).splits.values()) == 4272


def test_euadr() -> None:
    _folder("euadr")
    for fold in range(1, 11):
        corpus = sentences.load(_folder(f"euadr/{fold}"), 0, 0.0)
        train, dev, test = (len(corpus.splits[s]) for s in ("train", "dev", "test"))
        assert 318 <= train + dev <= 320 and 35 <= test <= 37 and train + dev + test == 355
        every = [e.relation for s in ("train", "dev", "test") for e in corpus.examples(s)]
        assert every.count("true") == 262


def test_crossner() -> None:
    corpus = ner.load(_folder("crossner"))
    assert corpus.domains == ("ai", "literature", "music", "politics", "science")
    types = corpus.covered.sum(axis=1)
    assert (types.min(), types.max()) == (9, 17)
    politics = ner.load(_folder("crossner/politics"))
    assert [len(s) for s in politics.splits.values()] == [200, 541, 651]


def test_gum() -> None:
    corpus = ner.load(_folder("gum"))
    assert (len(corpus.domains), len(corpus.types)) == (15, 10)
    assert sum(len(s) for s in corpus.splits.values()) == 13_263
    assert _entities(corpus) == 7_954
    assert "no document boundaries" in corpus.note  # cut in runs of sentences, and said
