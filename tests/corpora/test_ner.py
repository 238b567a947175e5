"""The NER generator, tag sets, the table, the cut by domain, and the metric."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.scheme import IOB2

from config.errors import UserError
from corpora.ner.generate import Recipe, generate, load, parse, pretraining_text
from corpora.ner.phrases import DOMAINS, TYPES
from corpora.ner.scores import score, scored_rows
from corpora.ner.table import Sentence, pack
from corpora.ner.tags import tag_sets, union
from corpora.partition import cut

SMALL = Recipe(sentences=120, dev=30, test=60)


def test_the_same_seed_gives_the_same_sentences_and_another_seed_others() -> None:
    assert generate(SMALL) == generate(SMALL)
    other = generate(Recipe(sentences=120, dev=30, test=60, seed=1))
    assert generate(SMALL).splits["train"] != other.splits["train"]


def test_all_styles_have_all_types_and_some_sentences_have_none() -> None:
    content = generate(Recipe(sentences=600, dev=30, test=30))
    train = content.splits["train"]
    assert Counter(s.domain for s in train) == dict.fromkeys(DOMAINS, 200)
    met = {(s.domain, kind) for s in train for *_, kind in s.entities}
    assert met == {(d, t) for d in DOMAINS for t in TYPES}
    assert 0.05 < sum(not s.entities for s in train) / len(train) < 0.2
    assert not [s.problem() for some in content.splits.values() for s in some if s.problem()]


def test_the_same_words_are_different_types_in_different_contexts() -> None:
    kinds: dict[str, set[str]] = {}
    for s in generate(Recipe(sentences=3000, dev=30, test=30)).splits["train"]:
        for a, b, kind in s.entities:
            kinds.setdefault(" ".join(s.words[a:b]), set()).add(kind)
    assert kinds["headache"] == {"Symptom", "Effect", "Disease"}


def test_only_training_annotation_is_sloppy() -> None:
    exact, sloppy = (generate(Recipe(sentences=300, dev=30, test=60, sloppy=s)) for s in (0.0, 0.5))
    assert exact.splits["test"] == sloppy.splits["test"]
    pairs = list(zip(exact.splits["train"], sloppy.splits["train"]))
    assert all(a.words == b.words for a, b in pairs)
    moved = [(a, b) for a, b in pairs if a.entities != b.entities]
    assert 60 < len(moved) < 160
    for a, b in moved:  # one span each, by one word at one end
        ((before, after),) = [(x, y) for x, y in zip(a.entities, b.entities) if x != y]
        assert abs(before[0] - after[0]) + abs(before[1] - after[1]) == 1 and before[2] == after[2]


def test_only_training_annotation_is_misaligned_and_as_a_whole() -> None:
    recipe = Recipe(sentences=300, dev=30, test=60, sloppy=0.0)
    exact, other = generate(recipe), generate(replace(recipe, misaligned=0.5))
    assert (
        exact.splits["test"] == other.splits["test"] and exact.splits["dev"] == other.splits["dev"]
    )
    pairs = [
        (a, b)
        for a, b in zip(exact.splits["train"], other.splits["train"], strict=True)
        if a.entities
    ]
    moved = [(a, b) for a, b in pairs if a.entities != b.entities]
    assert 0.4 < len(moved) / len(pairs) < 0.6
    # all spans by the same one to three words; those that would leave the sentence are gone
    for a, b in moved:
        assert a.words == b.words and not b.problem()
        ways = [
            tuple(
                (x + by, y + by, k)
                for x, y, k in a.entities
                if x + by >= 0 and y + by <= len(a.words)
            )
            for by in (-3, -2, -1, 1, 2, 3)
        ]
        assert b.entities in ways


def test_no_pretraining_sentence_can_occur_in_a_task() -> None:
    assert all(hashlib.sha256(t.encode()).digest()[0] % 2 == 0 for t in pretraining_text(800, 5))
    for split in generate(SMALL).splits.values():
        assert all(hashlib.sha256(" ".join(s.words).encode()).digest()[0] % 2 == 1 for s in split)


@pytest.mark.parametrize(
    "spec", ["ner:sentence=3", "ner:sloppy=much", "ner:shared=1.5", "ner:dev=3"]
)
def test_options_of_the_corpus_are_checked(spec: str) -> None:
    with pytest.raises(UserError, match='the corpus "ner"|The corpus "ner"'):
        parse(spec, 0)


def test_the_table_gives_back_what_was_put_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    corpus = load("ner:sentences=30,dev=12,test=12", 3)
    content = generate(parse("ner:sentences=30,dev=12,test=12", 3))
    for split, sentences in content.splits.items():
        rows, table = corpus.splits[split], corpus.table(split)
        assert len(rows) == len(sentences) == len(table)
        for i, s in enumerate(sentences):
            assert tuple(rows.words(i)) == s.words == tuple(table[i]["words"])
            spans = [(a, b, corpus.types[t]) for a, b, t in rows.spans(i)]
            assert spans == sorted(s.entities, key=lambda e: (e[0], e[1]))
            assert corpus.domains[rows.domain[i]] == s.domain
    assert corpus.covered.all()
    assert load("ner:sentences=30,dev=12,test=12", 3).hash == corpus.hash


# Tag sets


@given(st.integers(1, 6), st.integers(0, 12), st.integers(0, 50))
def test_disjoint_tag_sets_give_every_type_to_one_platform(
    platforms: int, more: int, seed: int
) -> None:
    types = tuple(f"T{i}" for i in range(platforms + more))
    sets = tag_sets("disjoint", types, np.ones((platforms, len(types)), bool), seed)
    assert (sets.sum(axis=0) == 1).all()
    assert sets.sum(axis=1).max() - sets.sum(axis=1).min() <= 1


@given(st.integers(3, 5), st.integers(0, 4), st.integers(0, 50))
def test_clinic_tag_sets_give_each_platform_a_type_of_its_own(
    platforms: int, more: int, seed: int
) -> None:
    types = tuple(f"T{i}" for i in range(platforms + more))
    sets = tag_sets("clinic", types, np.ones((platforms, len(types)), bool), seed)
    homes = sets.sum(axis=0)
    assert set(homes) <= {1, 2}
    assert all((sets[k] & (homes == 1)).any() for k in range(platforms))


def test_clinic_draws_are_even_between_one_and_two_platforms() -> None:
    types = tuple("ABCDE")
    two = [
        (tag_sets("clinic", types, np.ones((3, 5), bool), s).sum(axis=0) == 2).sum()
        for s in range(400)
    ]
    assert 0.42 < np.mean(two) / 2 < 0.58


def test_given_tag_sets_and_what_is_wrong_with_them() -> None:
    types, covered = ("Disease", "Drug", "Test"), np.ones((2, 3), bool)
    assert tag_sets("Drug+Test/Disease", types, covered, 0).tolist() == [
        [False, True, True],
        [True, False, False],
    ]
    covered[0, 1] = False
    for spec, why in (
        ("Drug/Disease", 'platform 1 are not annotated with "Drug"'),
        ("Test/Disese", 'Did you mean "Disease"'),
        ("Test/Disease/Drug", "name 3 platforms, and there are 2"),
        ("disjoint", 'here use "all"'),
        ("clinical", 'Did you mean "clinic"'),
    ):
        with pytest.raises(UserError, match=why):
            tag_sets(spec, types, covered, 0)
    assert (tag_sets("all", types, covered, 0) == covered).all()


def test_the_union_is_made_of_names_alone() -> None:
    # The order of the platforms and how often a name is said leave no trace.
    assert union([["Drug", "ADE"], ["Disease", "Drug"]]) == union([["Disease"], ["ADE"], ["Drug"]])


# The cut by domain


def test_domains_are_cut_among_their_silos_and_never_mixed() -> None:
    domain = np.array([0] * 40 + [1] * 20 + [2] * 20)
    parts = cut("domain", 4, 0, 80, {"domain": domain})
    assert [set(domain[ix]) for ix in parts.indices] == [{0}, {0}, {1}, {2}]
    assert parts.sizes == (20, 20, 20, 20)
    assert sorted(np.concatenate(parts.indices)) == list(range(80))
    with pytest.raises(UserError, match="2 silos cannot hold 3 domains"):
        cut("domain", 2, 0, 80, {"domain": domain})


# The metric


@st.composite
def _tagged(draw: st.DrawFn) -> tuple[list[list[tuple[int, int, int]]], int]:
    """Sentences of ten words with spans that do not overlap."""
    sentences = []
    for _ in range(draw(st.integers(1, 6))):
        spans, at = [], 0
        for gap, length, kind in draw(
            st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 2)))
        ):
            if at + gap + length > 10:
                break
            spans.append((at + gap, at + gap + length, kind))
            at += gap + length
        sentences.append(spans)
    return sentences, len(sentences)


def _iob(spans: list[tuple[int, int, int]]) -> list[str]:
    tags = ["O"] * 10
    for a, b, kind in spans:
        tags[a:b] = [f"B-{kind}"] + [f"I-{kind}"] * (b - a - 1)
    return tags


@given(_tagged(), _tagged())
def test_scores_equal_seqeval(gold: tuple, predicted: tuple) -> None:
    n = min(gold[1], predicted[1])
    g, p = gold[0][:n], predicted[0][:n]
    s = score(g, p, [0] * n, np.ones((1, 3), bool))
    theirs = {"mode": "strict", "scheme": IOB2, "zero_division": 0}
    a, b = [_iob(x) for x in g], [_iob(x) for x in p]
    assert s.precision == pytest.approx(precision_score(a, b, **theirs))
    assert s.recall == pytest.approx(recall_score(a, b, **theirs))
    assert s.micro_f1 == pytest.approx(f1_score(a, b, **theirs))
    if any(g) or any(p):
        per_type = f1_score(a, b, average=None, **theirs)
        assert s.per_type[~np.isnan(s.per_type)] == pytest.approx(per_type)


def test_scores_by_hand_with_a_type_that_one_domain_does_not_cover() -> None:
    gold = [[(0, 2, 0)], [(1, 2, 1), (3, 4, 0)]]
    predicted = [[(0, 2, 0), (3, 5, 1)], [(1, 2, 1), (3, 5, 0)]]
    everywhere = score(gold, predicted, [0, 1], np.ones((2, 2), bool))
    assert everywhere.per_domain.tolist() == [pytest.approx(2 / 3), pytest.approx(1 / 2)]
    assert everywhere.mean_f1 == pytest.approx((2 / 3 + 1 / 2) / 2)
    # The first domain's annotation does not cover type 1: the prediction of it there is neither
    # right nor wrong.
    partly = score(gold, predicted, [0, 1], np.array([[True, False], [True, True]]))
    assert partly.per_domain.tolist() == [1.0, pytest.approx(1 / 2)]
    assert (partly.precision, partly.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))


def test_nothing_to_find_and_nothing_found() -> None:
    s = score([[]], [[]], [0], np.ones((1, 2), bool))
    assert s.micro_f1 == 0.0 and np.isnan(s.per_domain).all()


def test_a_sentence_that_cannot_be_is_told() -> None:
    assert "no words" in Sentence((), (), "d").problem()
    assert "holds a space" in Sentence(("a b",), (), "d").problem()
    assert "span 0-3" in Sentence(("a", "b"), ((0, 3, "X"),), "d").problem()
    assert len(pack([Sentence(("a",), (), "d")], ("X",), ("d",)).entities) == 0


def test_a_sample_of_a_split_is_drawn_evenly_over_its_domains() -> None:
    domain = np.repeat([0, 1, 2], [100, 30, 3])
    some = scored_rows(domain, 23)
    assert np.bincount(domain[some]).tolist() == [10, 10, 3]
    assert some.tolist() == sorted(set(some.tolist())) == scored_rows(domain, 23).tolist()
    assert scored_rows(domain, 0).tolist() == scored_rows(domain, 133).tolist() == list(range(133))
