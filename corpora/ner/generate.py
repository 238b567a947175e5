"""The built-in NER corpus, made on the fly from a seed: three ways of writing, six entity types, no
two silos alike.

A sentence has one to three clauses of its style (`corpora.ner.phrases`). An entity's name comes, at
the rate `shared`, from what all styles call it, else from the style's own words; so a model that
learnt a type in one style knows part of it in another and must carry the rest over by context.
Complaints are symptoms, diseases or adverse effects by context alone. Drugs have thousands of
made-up names: test sentences hold many that no silo has seen.

Training annotation is a little sloppy, as annotation is: at the rate `sloppy` a sentence has one
span off by a word. Dev and test are exact. All splits are annotated with all six types here; who
may see which is decided by the tag sets (`corpora.ner.tags`).

Every sentence belongs, by one bit of its hash, either to tasks or to pretraining
(`pretraining_text`): no sentence that the shipped language model was pretrained on can occur in any
task, whatever the seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache

import numpy as np

from corpora.ner import phrases as say
from corpora.ner.table import Content, NerCorpus, Sentence, cached
from corpora.pretraining import for_pretraining
from corpora.recipe import at_least, parse_recipe, shares
from corpora.sentence.phrases import CONDITIONS, DRUG_ENDINGS, SITES

__all__ = ["SETTINGS", "Recipe", "generate", "load", "parse", "pretraining_text"]

_VERSION = 1  #: part of the cache key: bump it when the same recipe would give other sentences
_LEXICON_SEED = 20_230_709  #: the lexicon is the same in every corpus: it is public
_DRUGS = 3_000
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Recipe:
    sentences: int = 900  #: training sentences, equally many of each style
    dev: int = 300
    test: int = 900
    shared: float = 0.4  #: how often an entity is called what it is called in all styles
    #: how often a symptom or effect is one that only its context tells apart
    complaint: float = 0.4
    plain: float = 0.1  #: share of sentences without any entity
    sloppy: float = 0.1  #: share of training sentences with one span off by a word
    #: share of training sentences whose annotation is of another version of the text
    misaligned: float = 0.0
    seed: int = 0


SETTINGS = {"ner": Recipe()}


def parse(spec: str, seed: int) -> Recipe:
    """`ner`, or with options: `ner:sentences=3000,sloppy=0`."""
    recipe = parse_recipe(spec, SETTINGS, seed)
    shares(spec, recipe, ("shared", "complaint", "plain", "sloppy", "misaligned"))
    at_least(spec, recipe, 12, ("sentences", "dev", "test"))
    return recipe


def load(spec: str, seed: int) -> NerCorpus:
    """The corpus `spec` names, from the cache or made now."""
    recipe = parse(spec, seed)
    return cached(
        {"generator": "ner", "version": _VERSION, **asdict(recipe)}, lambda: generate(recipe, spec)
    )


def generate(recipe: Recipe, name: str = "ner") -> Content:
    rng = np.random.default_rng([recipe.seed, 0x4E52])
    wanted = {"train": recipe.sentences, "dev": recipe.dev, "test": recipe.test}
    seen: set[str] = set()
    drawn: dict[str, list[Sentence]] = {}
    for split, count in wanted.items():
        drawn[split] = []
        while len(drawn[split]) < count:
            sentence = _sentence(say.DOMAINS[len(drawn[split]) % len(say.DOMAINS)], recipe, rng)
            text = " ".join(sentence.words)
            if text not in seen and not for_pretraining(text):
                seen.add(text)
                drawn[split].append(sentence)
    drawn["train"] = [
        _misalign(_annotate_sloppily(s, recipe, rng), recipe, rng) for s in drawn["train"]
    ]
    note = f"synthetic, made from seed {recipe.seed}: figures are not comparable with any paper's"
    covered = {d: frozenset(say.TYPES) for d in say.DOMAINS}
    return Content(name, note, say.TYPES, say.DOMAINS, covered, drawn)


def pretraining_text(count: int, seed: int) -> Iterator[str]:
    """Sentences of the same language that can be in no task, and between them what an encyclopaedia
    would say.
    """
    rng = np.random.default_rng([seed, 0x9E7B])
    recipe = Recipe()
    made = 0
    while made < count:
        style = say.DOMAINS[int(rng.integers(len(say.DOMAINS)))]
        text = (
            _glossary(style, recipe, rng)
            if rng.random() < 0.2
            else " ".join(_sentence(style, recipe, rng).words)
        )
        if for_pretraining(text):
            made += 1
            yield text


# What entities are called


@cache
def _names() -> dict[tuple[str, str], tuple[str, ...]]:
    """(type, style or "") -> names: made once, the same for every seed."""
    rng = np.random.default_rng(_LEXICON_SEED)
    onsets = [
        "b",
        "c",
        "d",
        "f",
        "g",
        "l",
        "m",
        "n",
        "p",
        "r",
        "s",
        "t",
        "v",
        "z",
        "br",
        "cl",
        "dr",
        "tr",
        "pl",
        "st",
    ]
    stems = [
        "".join(
            str(rng.choice(onsets)) + str(rng.choice(list("aeiou")))
            for _ in range(int(rng.integers(2, 4)))
        )
        for _ in range(_DRUGS)
    ]
    names = {
        (kind, style): list(some)
        for kind, table in say.NAMES.items()
        for style, some in table.items()
    }
    third = _DRUGS // 3
    generic = [s + str(rng.choice(DRUG_ENDINGS)) for s in stems]
    names["Drug", ""] += generic[:third]
    names["Drug", "report"] += generic[third : 2 * third]
    names["Drug", "note"] += generic[third : 2 * third : 2]
    names["Drug", "forum"] += [s + str(rng.choice(say.BRANDS)) for s in stems[2 * third :]]
    names["Disease", "report"] += [f"{s} {c}" for s in SITES[::2] for c in CONDITIONS[::4]]
    names["Effect", "report"] += [f"{s} {c}" for s in SITES[1::2] for c in CONDITIONS[1::4]]
    return {key: tuple(dict.fromkeys(some)) for key, some in names.items()}


def _pick(options: tuple[str, ...], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _name(kind: str, style: str, recipe: Recipe, rng: np.random.Generator) -> str:
    names = _names()
    if kind in ("Symptom", "Effect") and rng.random() < recipe.complaint:
        return _pick(say.COMPLAINTS, rng)
    if kind == "Disease" and rng.random() < recipe.complaint / 4:
        return _pick(say.COMPLAINTS, rng)
    if (kind, "") in names and rng.random() < recipe.shared:
        return _pick(names[kind, ""], rng)
    return _pick(names[kind, style], rng)


# How sentences are put together


def _spelled(pattern: str, rng: np.random.Generator) -> list[str]:
    return _ALTERNATIVES.sub(lambda m: _pick(tuple(m[1].split("|")), rng), pattern).split()


class _Writer:
    """Words put one after another; slots become entities that remember where they stand."""

    def __init__(self, style: str, recipe: Recipe, rng: np.random.Generator) -> None:
        self.style, self.recipe, self.rng = style, recipe, rng
        self.words: list[str] = []
        self.entities: list[tuple[int, int, str]] = []

    def say(self, pattern: str) -> None:
        for word in _spelled(pattern, self.rng):
            if not word.startswith("<"):
                self.words.append(word)
                continue
            kind = word.strip("<>")
            start = len(self.words)
            self.words += _name(kind, self.style, self.recipe, self.rng).split()
            self.entities.append((start, len(self.words), kind))


def _sentence(style: str, recipe: Recipe, rng: np.random.Generator) -> Sentence:
    w = _Writer(style, recipe, rng)
    if rng.random() < 0.35:
        w.say(_pick(say.OPENINGS[style], rng))
    if rng.random() < recipe.plain:
        w.say(_pick(say.FILLERS[style], rng))
    else:
        for i in range(1 + int(rng.random() < 0.5) + int(rng.random() < 0.15)):
            if i:
                w.say(_pick(say.LINKS[style], rng))
            w.say(
                _pick(say.FILLERS[style] if i and rng.random() < 0.15 else say.CLAUSES[style], rng)
            )
    w.say(_pick(say.CLOSINGS[style], rng))
    return Sentence(tuple(w.words), tuple(w.entities), style)


def _glossary(style: str, recipe: Recipe, rng: np.random.Generator) -> str:
    kind = _pick(say.TYPES, rng)
    w = _Writer(style, recipe, rng)
    w.say(_pick(say.GLOSSARY, rng).replace("TYPE", kind))
    return " ".join(w.words).lower()


def _misalign(s: Sentence, recipe: Recipe, rng: np.random.Generator) -> Sentence:
    """All spans one to three words early or late, as after a change of the text that nobody told
    the annotation of.
    """
    if not recipe.misaligned or rng.random() >= recipe.misaligned:
        return s
    by = int(rng.integers(1, 4)) * (1 if rng.random() < 0.5 else -1)
    moved = tuple((a + by, b + by, kind) for a, b, kind in s.entities)
    return replace(
        s, entities=tuple((a, b, kind) for a, b, kind in moved if a >= 0 and b <= len(s.words))
    )


def _annotate_sloppily(s: Sentence, recipe: Recipe, rng: np.random.Generator) -> Sentence:
    """One span loses or gains a word, where its neighbours leave room."""
    if rng.random() >= recipe.sloppy or not s.entities:
        return s
    i = int(rng.integers(len(s.entities)))
    start, end, kind = s.entities[i]
    before = s.entities[i - 1][1] if i else 0
    after = s.entities[i + 1][0] if i + 1 < len(s.entities) else len(s.words)
    moved = [(a, b) for a, b in ((start - 1, end), (start, end + 1), (start + 1, end), (start, end - 1))
             if before <= a < b <= after]  # fmt: skip
    if not moved:
        return s
    a, b = moved[int(rng.integers(len(moved)))]
    return replace(s, entities=(*s.entities[:i], (a, b, kind), *s.entities[i + 1 :]))
