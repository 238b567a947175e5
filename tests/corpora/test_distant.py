"""The built-in corpus and the cache."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.errors import UserError
from corpora.cache import cache_root
from corpora.distant import generate as made
from corpora.distant.generate import Recipe, generate
from corpora.distant.table import Content, Sentences, content_hash

SMALL = Recipe(sentences=1500, dev=200, test=600, entities=80)


@pytest.fixture(scope="module")
def content() -> Content:
    return generate(SMALL)


def _pairs(s: Sentences) -> set[tuple[int, int]]:
    return set(zip(s.head.tolist(), s.tail.tolist()))


def test_the_same_seed_gives_the_same_corpus_and_another_seed_another(content: Content) -> None:
    assert content_hash(content) == content_hash(generate(SMALL))
    assert content_hash(content) != content_hash(generate(Recipe(**{**vars(SMALL), "seed": 1})))


def test_splits_share_no_pair(content: Content) -> None:
    train, dev, test = (_pairs(content.splits[s]) for s in ("train", "dev", "test"))
    assert not (train & dev or train & test or dev & test)


def test_rows_are_as_asked_and_noise_is_at_the_stated_rate() -> None:
    big = generate(Recipe(sentences=8000))
    train = big.splits["train"]
    assert abs(len(train) - 8000) <= 1
    single = train.relation > 0
    # Pairs in two facts are labelled with both, so their sentences are wrong at least half the
    # time.
    doubled = _doubled(train)
    single &= np.array([p not in doubled for p in zip(train.head.tolist(), train.tail.tolist())])
    assert (train.expresses[single] == 0).mean() == pytest.approx(Recipe().noise, abs=0.03)
    assert 0.45 < (train.relation > 0).mean() < 0.55
    assert doubled


def _doubled(s: Sentences) -> set[tuple[int, int]]:
    seen: dict[tuple[int, int], set[int]] = {}
    for h, t, r in zip(s.head.tolist(), s.tail.tolist(), s.relation.tolist()):
        seen.setdefault((h, t), set()).add(r)
    return {p for p, relations in seen.items() if len(relations) > 1}


def test_test_gold_is_clean_and_every_fact_can_be_found(content: Content) -> None:
    s = content.splits["test"]
    said = {
        (h, t, r)
        for h, t, r, e in zip(
            s.head.tolist(), s.tail.tolist(), s.relation.tolist(), s.expresses.tolist()
        )
        if e == 1 and r > 0
    }
    assert {tuple(f) for f in content.gold["test"].tolist()} == said


def test_entities_stand_where_the_row_says(content: Content) -> None:
    s = content.splits["train"]
    for i in range(0, len(s), 37):
        words = [content.words[t] for t in s.tokens[s.offsets[i] : s.offsets[i + 1]]]
        for at, entity in ((s.head_at[i], s.head[i]), (s.tail_at[i], s.tail[i])):
            name = content.entities[entity].split()
            assert words[at : at + len(name)] == name


def test_the_lexicon_does_not_depend_on_the_sentences(content: Content) -> None:
    """The vocabulary is public: another seed, with other sentences, has the same words."""
    other = generate(Recipe(**{**vars(SMALL), "seed": 7}))
    assert other.words == content.words and other.entities == content.entities


def test_options_of_the_name() -> None:
    r = made.parse("distant:noise=0.5,sentences=8000", 3)
    assert (r.noise, r.sentences, r.seed) == (0.5, 8000, 3)
    assert made.parse("distant:seed=9", 3).seed == 9
    for spec, says in [
        ("distan", '"distant"'),
        ("distant:nois=1", '"noise"'),
        ("distant:noise=much", "must be a number"),
        ("distant:sentences=1.5", "whole number"),
        ("distant:noise=2", "between 0 and 1"),
        ("distant:entities=20,sentences=90000", "too few"),
    ]:
        with pytest.raises(UserError) as e:
            generate(made.parse(spec, 0))
        assert says in str(e.value)


def _load(cache: str, results: Any) -> None:
    import os

    os.environ["XDG_CACHE_HOME"] = cache
    results.put(made.load("distant:sentences=300,dev=40,test=40", 5).hash)


def test_two_processes_may_build_the_same_corpus_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=_load, args=(str(tmp_path), results)) for _ in range(3)]
    for w in workers:
        w.start()
    hashes = {results.get(timeout=60) for _ in workers}
    for w in workers:
        w.join()
    assert len(hashes) == 1
    left = list((tmp_path / "sottovoce").iterdir())
    assert len(left) == 1 and not left[0].name.startswith(".")


def test_a_cached_corpus_is_mapped_fast_and_a_damaged_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = "distant:sentences=500,dev=60,test=60"
    first = made.load(spec, 0)
    began = time.perf_counter()
    again = made.load(spec, 0)
    assert time.perf_counter() - began < 0.5
    assert isinstance(again.train.tokens, np.memmap) and again.hash == first.hash
    (first.folder / "train.tokens.npy").write_bytes(b"")
    assert made.load(spec, 0).hash == first.hash
    assert len(made.load(spec, 0).table("train")) == len(first.train)


def test_a_home_that_cannot_be_written_to_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert cache_root().is_dir()


def test_fewer_ways_to_say_it() -> None:
    """`ways=1`: every relation is said in one way, so all sentences that express it share that
    spelling's words.
    """
    from corpora.distant.language import Language

    one, every = Language(50, 50, 1), Language(50, 50)
    assert all(len(t) == 1 for t in one.says) and all(len(t) > 3 for t in every.says)
    spelled = {
        tuple(one.words[w] for w in one.flat[one.at[p] : one.at[p + 1]]) for p in one.says[0][0][:3]
    }
    other = {
        tuple(every.words[w] for w in every.flat[every.at[p] : every.at[p + 1]])
        for row in every.says[0]
        for p in row[:3]
    }
    assert spelled <= other
    with pytest.raises(UserError, match="ways"):
        made.parse("distant:ways=-1", 0)
