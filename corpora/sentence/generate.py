"""The built-in sentence-relation corpus, made on the fly from a seed: clinical notes that nobody
wrote.

A sentence has one or two clauses. A clause joins two entities by a relation (or merely mentions
both), in one of many wordings, the common ones far more frequent than the rare: what a silo with
few examples has not seen, another has. The marked pair either stands in one clause, whose relation
is its label, or says nothing (None), in one of four ways: both entities are merely mentioned; the
relation is denied; they stand in different clauses, each with a partner of its own; or head and
tail are right but the relation is between the other two. So the words alone do not give a relation
away: the model must look at who stands where.

Relations are skewed as in clinical notes (from 30 % down to 3 % of those that state one).

Every sentence belongs, by one bit of its hash, either to tasks or to pretraining
(`pretraining_text`): no sentence that the shipped encoder was pretrained on can occur in any task,
whatever the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache

import numpy as np

from corpora.distant.phrases import expand
from corpora.pretraining import for_pretraining
from corpora.recipe import at_least, parse_recipe, shares
from corpora.sentence import phrases as say
from corpora.sentence.table import Content, Example, SentenceCorpus, cached, divide

__all__ = [
    "NONE",
    "SETTINGS",
    "Recipe",
    "generate",
    "lexicon",
    "load",
    "parse",
    "pretraining_text",
    "public_examples",
]

NONE = "None"
_VERSION = 1  #: part of the cache key: bump it when the same recipe would give other sentences
_LEXICON_SEED = 20_200_912  #: the lexicon is the same in every corpus: it is public
_NAMES = (
    "reveals",
    "given_for",
    "indicates",
    "causes",
    "investigates",
    "improves",
    "withheld_for",
    "worsens",
)
Clause = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]


@dataclass(frozen=True)
class Recipe:
    sentences: int = 1_600  #: training examples, D_v included
    none: float = 0.4  #: share of examples without a relation
    second: float = 0.5  #: how often a stated relation stands beside a second clause
    commonness: float = 0.7  #: exponent of the wordings' frequencies: 0 all alike, 1 a few dominate
    #: share of training labels replaced by another relation of the same types
    label_noise: float = 0.02
    dev: int = 600
    test: int = 2_000
    seed: int = 0


SETTINGS = {"sentence": Recipe()}


def parse(spec: str, seed: int) -> Recipe:
    """`sentence`, or with options: `sentence:none=0,sentences=4000`."""
    recipe = parse_recipe(spec, SETTINGS, seed)
    shares(spec, recipe, ("none", "second", "label_noise"))
    at_least(spec, recipe, 20, ("sentences", "dev", "test"))
    return recipe


def load(spec: str, seed: int, public: float) -> SentenceCorpus:
    """The corpus `spec` names, from the cache or made now; a share `public` of the training data
    becomes D_v.
    """
    recipe = parse(spec, seed)
    source = {"generator": "sentence", "version": _VERSION, "public": public, **asdict(recipe)}
    return cached(source, lambda: generate(recipe, public, spec))


def generate(recipe: Recipe, public: float, name: str = "sentence") -> Content:
    rng = np.random.default_rng([recipe.seed, 0x5E47])
    wanted = {"train": recipe.sentences, "dev": recipe.dev, "test": recipe.test}
    seen: set[str] = set()
    drawn: dict[str, list[Example]] = {}
    for split, count in wanted.items():
        drawn[split] = []
        while len(drawn[split]) < count:
            example = _example(recipe, rng)
            if example.text not in seen and not for_pretraining(example.text):
                seen.add(example.text)
                drawn[split].append(example)
    drawn["train"] = [_mislabel(e, recipe, rng) for e in drawn["train"]]
    splits = {**divide(drawn["train"], drawn["dev"], public, recipe.seed), "test": drawn["test"]}
    note = f"synthetic, made from seed {recipe.seed}: figures are not comparable with any paper's"
    relations = ((NONE,) if recipe.none > 0 else ()) + _NAMES
    return Content(name, note, relations, NONE if recipe.none > 0 else "", splits)


def public_examples(count: int) -> list[Example]:
    """Always the same sentences, with entities, that can be in no task: for statistics of features
    that everybody may know.
    """
    rng = np.random.default_rng(0x57A7)
    found: list[Example] = []
    while len(found) < count:
        example = _example(Recipe(), rng)
        if for_pretraining(example.text):
            found.append(example)
    return found


def pretraining_text(count: int, seed: int) -> Iterator[str]:
    """Sentences of the same language that can be in no task."""
    rng = np.random.default_rng([seed, 0x9E7A])
    recipe = Recipe(commonness=0.3)
    made = 0
    while made < count:
        text = _example(recipe, rng).text
        if for_pretraining(text):
            made += 1
            yield text


# What stands in a sentence


@cache
def lexicon() -> dict[str, tuple[str, ...]]:
    """Names by type: made once, the same for every seed."""
    rng = np.random.default_rng(_LEXICON_SEED)
    onsets = "b c d f g l m n p r s t v z br cl dr tr pl st".split()
    vowels = ["a", "e", "i", "o", "u"]

    def stem() -> str:
        return "".join(
            str(rng.choice(onsets)) + str(rng.choice(vowels))
            for _ in range(int(rng.integers(2, 4)))
        )

    drugs = [stem() + str(rng.choice(say.DRUG_ENDINGS)) for _ in range(2_400)]
    eponyms = [
        f"{stem()}{rng.choice(list('nrlx'))} {rng.choice(say.EPONYM_ENDINGS)}" for _ in range(700)
    ]
    problems = [f"{site} {condition}" for site in say.SITES for condition in say.CONDITIONS]
    qualified = [
        f"{rng.choice(say.QUALIFIERS)} {p}"
        for p in (*rng.choice(problems, 400), *(say.COMPLAINTS * 4))
    ]
    return {
        "problem": tuple(
            dict.fromkeys(
                [*rng.choice(problems, 400).tolist(), *qualified, *say.COMPLAINTS, *eponyms]
            )
        ),
        "treatment": tuple(
            dict.fromkeys([*drugs, *(f"{s} {p}" for s in say.SITES for p in say.PROCEDURES[::2])])
        ),
        "test": tuple(
            dict.fromkeys([*(f"{s} {x}" for s in say.SITES for x in say.SCANS[::2]), *say.PANELS])
        ),
    }


@cache
def _clauses(key: str) -> tuple[tuple[Clause, ...], np.ndarray]:
    """Every wording of a relation, or of "head type/tail type" mentioned, in a fixed random order
    of frequency.
    """
    if key in say.RELATIONS:
        patterns = say.RELATIONS[key][3]
    else:
        head, tail = key.split("/")
        patterns = say.MENTIONS[head, tail]
    spelled = [c for p in patterns for c in expand(p)]
    order = np.random.default_rng([_LEXICON_SEED, len(spelled)]).permutation(len(spelled))
    return tuple(spelled[i] for i in order), 1.0 / np.arange(1, len(spelled) + 1)


def _pick(options: tuple[str, ...], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _wording(key: str, recipe: Recipe, rng: np.random.Generator) -> Clause:
    clauses, harmonic = _clauses(key)
    p = harmonic**recipe.commonness
    return clauses[
        int(np.searchsorted(np.cumsum(p / p.sum()), rng.random(), side="right").clip(0, len(p) - 1))
    ]


def _relation(rng: np.random.Generator) -> str:
    shares = np.cumsum([say.RELATIONS[r][2] for r in _NAMES])
    return _NAMES[int(np.searchsorted(shares / shares[-1], rng.random(), side="right"))]


class _Sentence:
    """Words put one after another; entities remember where they stand."""

    def __init__(self) -> None:
        self.text = ""
        self.spans: dict[str, tuple[int, int]] = {}

    def say(self, words: str, name: str = "") -> None:
        if not words:
            return
        start = len(self.text) + (1 if self.text else 0)
        self.text = f"{self.text} {words}" if self.text else words
        if name:
            self.spans[name] = (start, len(self.text))


def _put(
    s: _Sentence,
    clause: Clause,
    head: tuple[str, str],
    tail: tuple[str, str],
    rng: np.random.Generator,
) -> None:
    """A clause with its two entities, each (text, name)."""
    before, between, after, flipped = clause
    first, second = (tail, head) if flipped else (head, tail)
    s.say(" ".join(before))
    s.say(*first)
    if rng.random() < 0.15:
        s.say(_pick(say.ASIDES, rng))
    s.say(" ".join(between))
    s.say(*second)
    s.say(" ".join(after))


def _example(recipe: Recipe, rng: np.random.Generator) -> Example:
    """One labelled pair in a sentence."""
    relation = _relation(rng)
    head_type, tail_type = say.RELATIONS[relation][:2]
    none = rng.random() < recipe.none
    way = str(rng.choice(["mention", "denial", "across", "beside"])) if none else "stated"
    names = lexicon()

    def entity(kind: str) -> str:
        return _pick(names[kind], rng)

    marked = ((entity(head_type), "head"), (entity(tail_type), "tail"))
    other = _relation(rng)
    other_head, other_tail = say.RELATIONS[other][:2]
    key = f"{head_type}/{tail_type}" if way in ("mention", "beside") else relation
    main = _wording(key, recipe, rng)
    s = _Sentence()
    if rng.random() < 0.3:
        s.say(_pick(say.OPENINGS, rng))
    if way == "across":
        # Head in one clause, tail in the other, each with a partner that is not asked about.
        second = _wording(relation, recipe, rng)
        parts = [
            (main, marked[0], (entity(tail_type), "")),
            (second, (entity(head_type), ""), marked[1]),
        ]
    else:
        parts = [(main, *marked)]
        if way == "beside":  # the relation is stated, of two others of the same types
            parts.append(
                (_wording(relation, recipe, rng), (entity(head_type), ""), (entity(tail_type), ""))
            )
        elif rng.random() < recipe.second:
            parts.append(
                (_wording(other, recipe, rng), (entity(other_head), ""), (entity(other_tail), ""))
            )
        if rng.random() < 0.5:
            parts.reverse()
    for i, (clause, head, tail) in enumerate(parts):
        if i:
            s.say(_pick(say.LINKS, rng))
        if way == "denial" and "head" in (head[1], tail[1]):
            s.say(_pick(say.DENIALS, rng))
        elif rng.random() < 0.3:
            s.say(_pick(say.HEDGES, rng))
        _put(s, clause, head, tail, rng)
    if rng.random() < 0.3:
        s.say(_pick(say.CLOSINGS, rng))
    s.say(".")
    return Example(
        s.text, s.spans["head"], s.spans["tail"], head_type, tail_type, NONE if none else relation
    )


def _mislabel(e: Example, recipe: Recipe, rng: np.random.Generator) -> Example:
    """An annotator's slip: another relation that the two types allow."""
    if rng.random() >= recipe.label_noise:
        return e
    possible = [
        r for r in _NAMES if say.RELATIONS[r][:2] == (e.head_type, e.tail_type) and r != e.relation
    ]
    if recipe.none > 0 and e.relation != NONE:
        possible.append(NONE)
    return replace(e, relation=_pick(tuple(possible), rng)) if possible else e
