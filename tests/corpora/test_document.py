"""The built-in documents, structural entropy and its partition, the metrics, and what the encoder
was pretrained on.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import replace
from itertools import product

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from config.errors import UserError
from corpora.document import entropy, phrases
from corpora.document.generate import Recipe, generate, load, parse, pretraining_text
from corpora.document.scores import best_threshold, facts, known_facts, score
from corpora.document.table import Document, Entity, Pair, count
from corpora.partition import cut
from corpora.partition import parse as parse_partition
from tests.methods.small_document import tiny_content, tiny_task

SMALL = Recipe(documents=200, dev=10, test=10)


def test_same_seed_same_corpus_other_seed_other_corpus() -> None:
    small = replace(SMALL, documents=20)
    assert generate(small).splits == generate(small).splits
    assert generate(replace(small, seed=1)).splits["test"] != generate(small).splits["test"]


def test_mentions_are_words_of_the_text_and_every_entity_has_one() -> None:
    content = generate(SMALL)
    texts = [d.text for s in content.splits.values() for d in s]
    assert len(texts) == len(set(texts)) == 220
    for d in content.splits["train"]:
        assert not d.problem()
        assert [d.text[a:b].count(" .") for a, b in d.sentences] == [1] * len(d.sentences)
        for e in d.entities:
            assert e.mentions
            for a, b in e.mentions:
                assert (
                    (a == 0 or d.text[a - 1] == " ")
                    and d.text[b] == " "
                    and d.text[a:b] == d.text[a:b].strip()
                )
        assert len(d.pairs) == sum(e.type == "Drug" for e in d.entities) * sum(
            e.type == "Problem" for e in d.entities
        )


def test_documents_have_what_the_design_asks_of_them() -> None:
    train = generate(replace(SMALL, label_noise=0.0)).splits["train"]
    pairs = [(d, p) for d in train for p in d.candidates if p.relations]
    # relations across sentences
    assert 0.25 < sum(d.crosses(p) for d, p in pairs) / len(pairs) < 0.6
    # several mentions per entity
    assert sum(len(e.mentions) > 1 for d in train for e in d.entities) > 300
    left_out = [(d, p) for d in train for p in d.pairs if not p.counted]
    assert left_out  # hypernyms: a special problem is related, its general one is left out
    for d, p in left_out:
        general = d.entities[p.tail].id
        related = {d.entities[q.tail].id for q in d.pairs if q.head == p.head and q.relations}
        assert any(r.startswith(general + ".") for r in related)
    kept = generate(replace(SMALL, filtered=0)).splits["train"]
    assert not [p for d in kept for p in d.pairs if not p.counted]


def test_several_relations_and_label_noise() -> None:
    content = generate(replace(SMALL, relations=3, label_noise=0.0))
    assert content.relations == ("causes", "treats", "relieves")
    found = Counter(r for d in content.splits["train"] for p in d.pairs for r in p.relations)
    assert min(found.values()) > 20 and set(found) == set(content.relations)
    noisy = generate(replace(SMALL, label_noise=0.5)).splits
    clean = generate(replace(SMALL, label_noise=0.0)).splits
    assert count(noisy["test"]) == count(clean["test"])
    assert count(noisy["train"]).positive > 1.3 * count(clean["train"]).positive


def test_fewer_wordings_are_the_first_ones_and_say_all_that_there_is_to_say() -> None:
    def said(wordings: int) -> set[str]:
        """The sentences of all documents, entities and alternatives taken out: what was chosen
        from.
        """
        found = set()
        for d in generate(replace(SMALL, wordings=wordings)).splits["train"]:
            text = d.text
            for a, b in sorted((m for e in d.entities for m in e.mentions), reverse=True):
                text = f"{text[:a]}@{text[b:]}"
            found |= {s.strip() for s in re.sub(r"\( @ \) ", "", text).split(" .")}
        return found

    def forms(ways: tuple[str, ...]) -> set[str]:
        parts = [re.split(r"\{([^}]*)\}", w.replace("H", "@").replace("T", "@")) for w in ways]
        return {
            "".join(p)
            for w in parts
            for p in product(*(x.split("|") if i % 2 else [x] for i, x in enumerate(w)))
        }

    few, many = said(2), said(0)
    for ways in (
        *phrases.STATED.values(),
        *phrases.OTHER.values(),
        phrases.BACK_YES,
        phrases.BACK_NO,
        phrases.GIVEN,
    ):
        assert forms(ways[:2]) & few
        rest = forms(ways[2:]) - forms(ways[:2])
        assert not rest & few - forms(phrases.LISTED[:2])
    assert len(many) > 1.3 * len(few)


@pytest.mark.parametrize(
    ("spec", "says"),
    [("document:words=3", "words"), ("document:test=x", "whole number"), ("document:relations=4", "between 1 and 3"),
     ("document:dev=2", "at least 10"), ("document:hypernyms=2", "between 0 and 1")],
)  # fmt: skip
def test_a_mistake_in_the_recipe_is_named(spec: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse(spec, 0)


def test_the_table_gives_back_what_was_written() -> None:
    recipe = "document:documents=12,dev=10,test=10"
    corpus = load(recipe, 4)
    assert list(corpus.documents("train")) == generate(parse(recipe, 4)).splits["train"]
    assert corpus.counts("train") == count(list(corpus.documents("train")))
    assert load(recipe, 5).hash != corpus.hash == load(recipe, 4).hash
    assert corpus.table("dev").num_rows == 10


# What the encoder was pretrained on


def test_no_pretraining_document_can_occur_in_a_task() -> None:
    seen = list(pretraining_text(60, 5))
    assert all("* " in t for t in seen)
    plain = [t.replace("* ", "").replace(" *", "") for t in seen]
    assert all(hashlib.sha256(t.encode()).digest()[0] % 2 == 0 for t in plain)
    tasks = {d.text for s in generate(SMALL).splits.values() for d in s}
    assert all(hashlib.sha256(t.encode()).digest()[0] % 2 == 1 for t in tasks)


# Structural entropy

#: "a b . c ." with entities A (a), B (b and c); A is asked about with B.
BY_HAND = Document(
    "x",
    "a b . c .",
    ((0, 5), (6, 9)),
    (Entity("A", "s", ((0, 1),)), Entity("B", "s", ((2, 3), (6, 7)))),
    (Pair(0, 1, ()),),
)


def test_both_entropies_by_hand() -> None:
    """Nodes: S0 S1 | A B | a b c. Edges: S0S1, aA aS0 AS0, bB bS0 BS0, cB cS1 BS1, ab, and AB for
    the pair.

    Degrees without the pair: S0 5 (S1 a A b B), S1 3 (S0 c B), A 2, B 4, a 3, b 3, c 2.
    """
    degrees = dict(entropy.graph(BY_HAND).degree())
    assert sorted(degrees.values()) == [2, 2, 3, 3, 3, 4, 5]
    # With the pair undirected: A 3, B 5: degrees 5 3 3 5 3 3 2, so p = 2/7, 4/7, 1/7.
    by_paper = -sum(p * math.log(p) for p in (2 / 7, 4 / 7, 1 / 7))
    assert entropy.degree_entropy(BY_HAND) == pytest.approx(by_paper)
    # As released only the head's row has the pair: 5 3 3 4 3 3 2.
    by_code = -sum(d / 7 * math.log2(d / 7) for d in (5, 3, 3, 4, 3, 3, 2))
    assert entropy.released(BY_HAND) == pytest.approx(by_code)


def _adjacency_entropy(d: Document) -> float:
    """The released measure from an adjacency matrix, as the authors compute it."""
    used = sorted({e for p in d.pairs for e in (p.head, p.tail)})
    mentions = [(e, d.sentence_of(m)) for e in used for m in d.entities[e].mentions]
    ne, nm, ns = len(used), len(mentions), len(d.sentences)
    a = np.zeros((ne + nm + ns, ne + nm + ns))
    for i, (e, s) in enumerate(mentions):
        entity, sentence = used.index(e), ne + nm + s
        for x, y in ((ne + i, entity), (ne + i, sentence), (entity, sentence)):
            a[x, y] = a[y, x] = 1
        for j, (_, other) in enumerate(mentions):
            if i != j and s == other:
                a[ne + i, ne + j] = 1
    for s in range(ns - 1):
        a[ne + nm + s, ne + nm + s + 1] = a[ne + nm + s + 1, ne + nm + s] = 1
    for p in d.candidates:
        a[used.index(p.head), used.index(p.tail)] = 1
    share = a.sum(axis=1) / len(a)
    return float(-(share[share > 0] * np.log2(share[share > 0])).sum())


def test_the_graph_is_the_matrix_of_the_released_code() -> None:
    for d in generate(SMALL).splits["train"][:40]:
        assert entropy.released(d) == pytest.approx(_adjacency_entropy(d))
        assert networkx.number_of_selfloops(entropy.graph(d)) == 0


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60), st.integers(1, 12))
def test_the_partition_cuts_equal_intervals_with_their_upper_ends(
    values: list[float], silos: int
) -> None:
    if silos > len(values):
        return
    v = np.array(values)
    p = cut("entropy:released", silos, 0, len(v), {"released": v})
    assert sorted(np.concatenate(p.indices).tolist()) == list(range(len(v)))
    low, width = v.min(), (v.max() - v.min()) / silos
    for k, part in enumerate(p.indices):
        assert all(v[part] <= low + (k + 1) * width + 1e-9) and all(
            v[part] >= low + k * width - 1e-9
        )
    empty = sum(len(part) == 0 for part in p.indices)
    assert (f"{empty} of {silos} silos are empty" in p.note) == (empty > 0)


def test_entropy_at_an_edge_belongs_to_the_lower_silo_and_names_are_checked() -> None:
    v = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 4.0])
    p = cut("entropy", 4, 0, 6, {"degree_entropy": v})
    assert [i.tolist() for i in p.indices] == [[0, 1], [2], [3], [4, 5]]
    assert parse_partition("entropy") == ("degree_entropy", 0.0)
    assert parse_partition("entropy:released") == ("released", 0.0)
    with pytest.raises(UserError, match="degree_entropy or released"):
        parse_partition("entropy:graph")
    keys = tiny_task().partition_keys()
    assert set(keys) == {"label", "degree_entropy", "released"}
    assert keys["released"].tolist() == [
        entropy.released(d) for d in tiny_content().splits["train"]
    ]
    assert set(keys["label"].tolist()) == {0, 1}


# Metrics


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_scores_are_those_of_scikit_learn(seed: int, relations: int) -> None:
    rng = np.random.default_rng(seed)
    gold, predicted = rng.random((40, relations)) < 0.4, rng.random((40, relations)) < 0.4
    crosses = rng.random(40) < 0.5
    s = score(gold, predicted, crosses, np.zeros_like(gold))

    def theirs(rows: np.ndarray) -> tuple[float, float, float]:
        p, r, f, _ = precision_recall_fscore_support(
            gold[rows].ravel(), predicted[rows].ravel(), average="binary", zero_division=0.0
        )
        return float(p), float(r), float(f)

    assert (s.precision, s.recall, s.f1) == pytest.approx(theirs(np.ones(40, bool)))
    assert s.intra_f1 == pytest.approx(theirs(~crosses)[2])
    assert s.inter_f1 == pytest.approx(theirs(crosses)[2])
    assert s.ign_f1 == pytest.approx(s.f1)  # nothing was seen in training


def test_ign_f1_by_hand() -> None:
    """Four gold facts; three predicted, two of them right, of which one is known from training."""
    gold = np.array([[1], [1], [1], [1], [0]], bool)
    predicted = np.array([[1], [1], [0], [0], [1]], bool)
    known = np.array([[1], [0], [1], [0], [0]], bool)
    s = score(gold, predicted, np.zeros(5, bool), known)
    assert (s.precision, s.recall) == pytest.approx((2 / 3, 1 / 2))
    precision = (2 - 1) / (3 - 1)
    assert s.ign_f1 == pytest.approx(2 * precision * 0.5 / (precision + 0.5))


def test_names_are_compared_as_they_are_written() -> None:
    """As DocRED's own program does."""
    two = (Entity("a", "P", ((0, 3),)), Entity("r", "L", ((4, 8),)))
    upper, lower = (
        Document("1", text, ((0, 8),), two, (Pair(0, 1, ("saw",)),))
        for text in ("Lee Rome", "lee rome")
    )
    assert not known_facts([upper], ("saw",), facts([lower])).any()
    assert known_facts([upper], ("saw",), facts([upper])).all()


def test_a_fact_is_known_under_any_of_its_names() -> None:
    text = "Ann Lee saw Rome ; Lee left"
    two = (Entity("a", "P", ((0, 7), (19, 22))), Entity("r", "L", ((12, 16),)))
    d = Document("1", text, ((0, len(text)),), two, (Pair(0, 1, ("saw",)), Pair(1, 0, ())))
    two = (Entity("x", "P", ((0, 3),)), Entity("y", "L", ((4, 8),)))
    other = Document("2", "Lee Rome", ((0, 8),), two, (Pair(0, 1, ("saw",)),))
    assert facts([other]) == {("Lee", "Rome", "saw")}
    assert known_facts([d], ("saw", "left"), facts([other])).tolist() == [
        [True, False],
        [False, False],
    ]
    assert known_facts([d], ("saw", "left"), {("Lee", "Rome", "left")}).tolist() == [
        [False, False],
        [False, False],
    ]


@pytest.mark.parametrize(
    ("gold", "margins", "cut"),
    [
        ([1, 0, 1, 0], [3.0, 2.0, 1.0, -1.0], 0.0),  # three predictions, two right: F1 0.8
        ([0, 1, 0, 0], [-5.0, -1.0, -2.0, -3.0], -1.5),
        ([1, 1, 0, 0], [1.0, 1.0, 1.0, 0.0], 0.5),  # equal margins are cut together
        ([1, 1], [2.0, 1.0], 0.5),  # all of them
        ([0, 0], [2.0, 1.0], 0.0),  # nothing to find
    ],
)
def test_the_best_threshold_by_hand(gold: list[int], margins: list[float], cut: float) -> None:
    found = best_threshold(np.array(gold, bool)[:, None], np.array(margins, np.float32)[:, None])
    assert found == pytest.approx(cut)
