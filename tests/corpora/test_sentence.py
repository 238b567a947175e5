"""The generator, the public cut, the metrics, and what the small encoder was pretrained on."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from bench.pretrain import make as pretrain
from config.errors import UserError
from corpora.sentence import phrases as say
from corpora.sentence.generate import NONE, Recipe, generate, load, parse, pretraining_text
from corpora.sentence.scores import score
from corpora.sentence.table import Content, divide
from models.backbone import PRETRAINED
from tests.methods.small_sentence import tiny_content, tiny_folder

ROOT = Path(__file__).resolve().parents[2]


def _whole(recipe: Recipe) -> Content:
    return generate(recipe, 0.2)


def test_same_seed_same_corpus_other_seed_other_corpus() -> None:
    small = Recipe(sentences=60, dev=20, test=20)
    assert _whole(small).splits == _whole(small).splits
    assert _whole(replace(small, seed=1)).splits["test"] != _whole(small).splits["test"]


def test_spans_point_at_entities_and_no_sentence_is_in_two_splits() -> None:
    content = _whole(Recipe(sentences=400, dev=100, test=200))
    texts = [e.text for s in content.splits.values() for e in s]
    assert len(texts) == len(set(texts)) == 700
    for split in content.splits.values():
        for e in split:
            assert not e.problem()
            for a, b in (e.head, e.tail):
                assert e.text[a:b] == e.text[a:b].strip()
                assert (a == 0 or e.text[a - 1] == " ") and e.text[b] == " "
            assert (e.head_type, e.tail_type) in {r[:2] for r in say.RELATIONS.values()}


def test_relations_are_skewed_and_none_has_its_share() -> None:
    content = _whole(Recipe(sentences=3000, dev=20, test=20, label_noise=0.0))
    count = Counter(e.relation for s in ("train", "public") for e in content.splits[s])
    assert count[NONE] / 3000 == pytest.approx(0.4, abs=0.03)
    assert count["reveals"] > 5 * count["worsens"] > 0
    positive = generate(Recipe(sentences=60, dev=20, test=20, none=0.0), 0.2)
    assert NONE not in positive.relations
    assert positive.none == ""


def test_the_public_set_is_a_fifth_and_cut_before_anything_is_divided() -> None:
    train = list(tiny_content().splits["train"]) + list(tiny_content().splits["public"])
    cut = divide(train, list(tiny_content().splits["dev"]), 0.2, seed=3)
    assert (len(cut["public"]), len(cut["train"])) == (15, 60)
    assert sorted(e.text for e in cut["public"] + cut["train"]) == sorted(e.text for e in train)
    without_dev = divide(train, [], 0.2, seed=3)
    assert [len(without_dev[s]) for s in ("dev", "public", "train")] == [8, 13, 54]
    assert len(divide(train, [], 0.0, seed=3)["public"]) == 0


def test_the_cache_gives_back_what_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = "sentence:sentences=60,dev=20,test=20"
    corpus = load(spec, 0, 0.2)
    assert list(corpus.examples("test")) == list(generate(parse(spec, 0), 0.2).splits["test"])
    assert corpus.hash == load(spec, 0, 0.2).hash != load(spec, 1, 0.2).hash
    assert corpus.table("public")[0]["relation"] in corpus.relations
    assert len(load("sentence:sentences=60,dev=20,test=20", 0, 0.0).splits["public"]) == 0


@pytest.mark.parametrize(
    "spec", ["sentence:nome=0.3", "sentence:none=two", "sentence:none=1.5", "sentence:dev=3"]
)
def test_options_of_the_corpus_are_checked(spec: str) -> None:
    with pytest.raises(UserError, match="sentence"):
        parse(spec, 0)


def test_no_pretraining_sentence_can_occur_in_a_task() -> None:
    pretraining = set(pretraining_text(1500, 5))
    assert all(hashlib.sha256(t.encode()).digest()[0] % 2 == 0 for t in pretraining)
    for split in tiny_content().splits.values():
        assert all(hashlib.sha256(e.text.encode()).digest()[0] % 2 == 1 for e in split)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60),
    st.integers(-1, 4),
)
def test_scores_equal_sklearn(pairs: list[tuple[int, int]], none: int) -> None:
    gold, predicted = (np.array(x) for x in zip(*pairs))
    s = score(gold, predicted, 5, none)
    counted = [c for c in range(5) if c != none]
    occurring = [c for c in counted if c in gold or c in predicted]
    assert s.micro_f1 == pytest.approx(
        f1_score(gold, predicted, labels=counted, average="micro", zero_division=0)
    )
    macro = (
        f1_score(gold, predicted, labels=occurring, average="macro", zero_division=0)
        if occurring
        else 0.0
    )
    assert s.macro_f1 == pytest.approx(macro)
    if none == -1:
        assert s.micro_f1 == pytest.approx(s.accuracy)


def test_micro_f1_by_hand_without_none() -> None:
    # Gold A A B None; predicted A None B B: two hits of three predicted and three in gold.
    s = score(np.array([1, 1, 2, 0]), np.array([1, 0, 2, 2]), 3, none=0)
    assert (s.precision, s.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert s.macro_f1 == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert np.isnan(s.per_class[0])


# The encoder that is shipped


@pytest.mark.slow
def test_pretraining_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    """Also with another hash seed: nothing may hang on the order of a set."""
    code = (
        "from pathlib import Path; from bench.pretrain.make import make; from tests.methods.small_sentence import TINY;"
        f"print(make(TINY, Path({str(tmp_path)!r})))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = json.loads((tiny_folder() / "manifest.json").read_text("utf-8"))["sha256"]
    assert other.stdout.strip() == here


@pytest.mark.parametrize("name", ["bert", "document"])
def test_the_shipped_encoder_is_the_one_of_its_manifest_and_of_its_plan(name: str) -> None:
    folder = PRETRAINED / name
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert pretrain._sha256(folder) == manifest["sha256"]
    assert pretrain.Plan(**manifest["plan"]) == pretrain.PLANS[name]
    assert sum(p.stat().st_size for p in folder.iterdir()) < 5_000_000
    assert not [p for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pkl")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "document"])
def test_the_shipped_encoder_was_made_from_the_text_the_generator_gives_today(name: str) -> None:
    """If the language changes, the encoder must be made again: sottovoce pretrain."""
    manifest = json.loads((PRETRAINED / name / "manifest.json").read_text("utf-8"))
    text = "\n".join(pretrain.text_of(pretrain.PLANS[name]))
    assert hashlib.sha256(text.encode()).hexdigest() == manifest["text_sha256"]


def test_there_is_no_plan_of_that_name() -> None:
    with pytest.raises(UserError, match="bert"):
        pretrain.run("brt", False, print)
