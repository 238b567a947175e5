"""The built-in documents, made on the fly from a seed: what drugs did to patients and rats that
never were.

There are three kinds of document, which differ in length, in how many drugs and problems they name,
and in how they say it: letters state what they mean within a sentence; abstracts have wordings of
their own; case series name a drug in one sentence and say what came of it in the next, without
naming it again. Cut by structure, silos therefore write differently. Of every drug and problem of a
document it is asked whether the one caused the other; most of the time it did not: it was given for
it, relieved it, is denied to have caused it, or the two merely stand side by side.

Entities have several mentions, under their name and an abbreviation. A problem may stand beside the
more general one above it; as in CDR only the special one is related, and the general pair is left
out (`filtered=0` keeps it).

Every document belongs, by one bit of its hash, either to tasks or to pretraining
(`pretraining_text`): no document that the shipped encoder was pretrained on can occur in any task,
whatever the seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice

import numpy as np

from config.errors import UserError
from corpora.document import phrases as say
from corpora.document.hypernyms import leave_out
from corpora.document.table import Content, Document, DocumentCorpus, Entity, Pair, cached
from corpora.pretraining import for_pretraining
from corpora.recipe import at_least, parse_recipe, shares
from corpora.sentence import phrases as sentence_phrases
from corpora.sentence.generate import lexicon

__all__ = [
    "SETTINGS",
    "Recipe",
    "generate",
    "load",
    "parse",
    "pretraining_text",
    "public_documents",
]

_VERSION = 2  #: part of the cache key: bump it when the same recipe would give other documents
_RELATIONS = ("causes", "treats", "relieves")
_ALTERNATIVES = re.compile(r"\{([^}]*)\}")


@dataclass(frozen=True)
class _Kind:
    share: float
    drugs: tuple[int, int]  #: at least, at most
    problems: tuple[int, int]
    positive: float  #: share of the pairs that are related
    across: float  #: how often a relation is told over two sentences
    fillers: float  #: sentences that say nothing, per sentence that does


_KINDS = {
    "letter": _Kind(0.35, (1, 2), (1, 2), 0.45, 0.1, 0.3),
    "abstract": _Kind(0.40, (1, 3), (2, 3), 0.30, 0.4, 0.3),
    "series": _Kind(0.25, (2, 3), (2, 4), 0.25, 0.7, 0.4),
}


@dataclass(frozen=True)
class Recipe:
    documents: int = 400
    relations: int = 1  #: causes; 2: and treats; 3: and relieves
    #: how many ways there are of saying each thing; 0: all there are, which need more documents
    wordings: int = 3
    hypernyms: float = 0.3  #: how often a special problem stands beside its general one
    filtered: int = 1  #: 0 counts the general pair as a negative
    label_noise: float = 0.02  #: share of training pairs whose label is turned round
    dev: int = 120
    test: int = 300
    seed: int = 0


SETTINGS = {"document": Recipe()}


def parse(spec: str, seed: int) -> Recipe:
    """`document`, or with options: `document:relations=3,documents=1000`."""
    recipe = parse_recipe(spec, SETTINGS, seed)
    shares(spec, recipe, ("hypernyms", "label_noise", "filtered"))
    at_least(spec, recipe, 10, ("documents", "dev", "test"))
    at_least(spec, recipe, 0, ("wordings",))
    if not 1 <= recipe.relations <= len(_RELATIONS):
        raise UserError(
            f'Option "relations" of the corpus "document" must be between 1 and {len(_RELATIONS)}.'
        )
    return recipe


def load(spec: str, seed: int) -> DocumentCorpus:
    """The corpus `spec` names, from the cache or made now."""
    recipe = parse(spec, seed)
    return cached(
        {"generator": "document", "version": _VERSION, **asdict(recipe)},
        lambda: generate(recipe, spec),
    )


def generate(recipe: Recipe, name: str = "document") -> Content:
    rng = np.random.default_rng([recipe.seed, 0xD0C5])
    seen: set[str] = set()
    splits: dict[str, list[Document]] = {}
    for split, wanted in (("train", recipe.documents), ("dev", recipe.dev), ("test", recipe.test)):
        splits[split] = []
        while len(splits[split]) < wanted:
            document = _document(recipe, rng, f"{split}-{len(splits[split])}")
            if document.text not in seen and not for_pretraining(document.text):
                seen.add(document.text)
                splits[split].append(document)
    splits["train"] = [_mislabel(d, recipe, rng) for d in splits["train"]]
    general = "left out" if recipe.filtered else "kept"
    note = (
        f"synthetic, made from seed {recipe.seed}: figures are not comparable with any paper's; pairs with the more "
        f"general of two problems are {general}"
    )
    return Content(name, note, _RELATIONS[: recipe.relations], splits)


def public_documents(count: int) -> list[Document]:
    """Always the same ones, for statistics that everybody may know."""
    return list(islice(_of_no_task(Recipe(), np.random.default_rng(0x57A7)), count))


def pretraining_text(wanted: int, seed: int) -> Iterator[str]:
    """Documents with their mentions marked by stars, as the task marks them."""
    found = _of_no_task(Recipe(wordings=0), np.random.default_rng([seed, 0x9E7B]))
    return map(_starred, islice(found, wanted))


def _of_no_task(recipe: Recipe, rng: np.random.Generator) -> Iterator[Document]:
    made = iter(lambda: _document(recipe, rng, ""), None)
    return (document for document in made if for_pretraining(document.text))


def _starred(document: Document) -> str:
    ends = {m for e in document.entities for m in e.mentions}
    text, at = "", 0
    for start, end in sorted(ends):
        text += f"{document.text[at:start]}* {document.text[start:end]} *"
        at = end
    return text + document.text[at:]


# What stands in a document


@dataclass
class _Concept:
    """An entity while its document is written: its names, its place in the tree, and where it was
    mentioned.
    """

    id: str
    type: str
    name: str
    short: str
    place: str
    spans: list[tuple[int, int]]


class _Text:
    """Sentences put one after another; concepts remember where they stand."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.text, self.sentences, self._rng = "", [], rng  # type: ignore[var-annotated]

    def sentence(
        self, pattern: str, drug: _Concept | None = None, problem: _Concept | None = None
    ) -> None:
        spelled = _ALTERNATIVES.sub(lambda m: _pick(m[1].split("|"), self._rng), pattern)
        start = len(self.text) + bool(self.text)
        for word in spelled.split():
            concept = {"H": drug, "T": problem}.get(word)
            if concept is None:
                self._say(word)
                continue
            first = not concept.spans
            self._mention(
                concept, concept.name if first or self._rng.random() < 0.6 else concept.short
            )
            if first and self._rng.random() < 0.4:
                self._say("(")
                self._mention(concept, concept.short)
                self._say(")")
        self._say(".")
        self.sentences.append((start, len(self.text)))

    def _say(self, words: str) -> tuple[int, int]:
        start = len(self.text) + bool(self.text)
        self.text = f"{self.text} {words}" if self.text else words
        return start, len(self.text)

    def _mention(self, concept: _Concept, words: str) -> None:
        concept.spans.append(self._say(words))


def _pick(options: list[str] | tuple[str, ...], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _drug(rng: np.random.Generator) -> _Concept:
    names = lexicon()["treatment"][:2_000]  # the made-up names of drugs; procedures come after them
    k = int(rng.integers(len(names)))
    return _Concept(f"C{k:06d}", "Drug", *say.names_of(names[k]), place="", spans=[])


def _problem(rng: np.random.Generator, special: bool, like: _Concept | None = None) -> _Concept:
    """A problem, qualified if `special`; `like` one: the general problem above it."""
    if like is not None:
        site, condition = (int(n) for n in like.place[1:].split(".")[:2])
    else:
        site = int(rng.integers(len(sentence_phrases.SITES)))
        condition = int(rng.integers(len(sentence_phrases.CONDITIONS)))
    name = f"{sentence_phrases.SITES[site]} {sentence_phrases.CONDITIONS[condition]}"
    place = f"P{site:02d}.{condition:03d}"
    if special:
        q = int(rng.integers(len(say.QUALIFIERS)))
        name, place = f"{say.QUALIFIERS[q]} {name}", f"{place}.{q:03d}"
    return _Concept(place, "Problem", *say.names_of(name), place=place, spans=[])


def _between(bounds: tuple[int, int], rng: np.random.Generator) -> int:
    return int(rng.integers(bounds[0], bounds[1] + 1))


def _cast(
    kind: _Kind, recipe: Recipe, rng: np.random.Generator
) -> tuple[list[_Concept], list[_Concept]]:
    """Who appears: drugs and problems, no concept twice."""
    drugs: dict[str, _Concept] = {}
    for _ in range(_between(kind.drugs, rng)):
        d = _drug(rng)
        drugs.setdefault(d.id, d)
    problems: dict[str, _Concept] = {}
    for _ in range(_between(kind.problems, rng)):
        special = rng.random() < 0.5
        p = _problem(rng, special)
        problems.setdefault(p.id, p)
        if special and rng.random() < recipe.hypernyms:
            above = _problem(rng, False, like=p)
            problems.setdefault(above.id, above)
    return list(drugs.values()), list(problems.values())


def _document(recipe: Recipe, rng: np.random.Generator, name: str) -> Document:
    shares = np.cumsum([k.share for k in _KINDS.values()])
    style = list(_KINDS)[int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))]
    kind = _KINDS[style]
    drugs, problems = _cast(kind, recipe, rng)
    general = {
        p.place for p in problems if any(q.place.startswith(p.place + ".") for q in problems)
    }
    truth: dict[tuple[str, str], tuple[str, ...]] = {}
    blocks: list[list[tuple[str, _Concept | None, _Concept | None]]] = []
    for d in drugs:
        for p in problems:
            # What is said of a general problem is said of the special one: the general is only
            # mentioned.
            fate = "listed" if p.place in general else _fate(kind, rng)
            truth[d.id, p.id] = (fate,) if fate in _RELATIONS[: recipe.relations] else ()
            blocks += _told(fate, style, kind=kind, d=d, p=p, wordings=recipe.wordings, rng=rng)
    for c in (*drugs, *problems):
        if rng.random() < 0.25:
            one = "drug" if c.type == "Drug" else "problem"
            blocks.append([(_pick(say.ONE_SIDED[one], rng), c, c)])
    blocks += [
        [(_pick(say.FILLERS, rng), None, None)]
        for _ in range(int(rng.binomial(len(blocks) + 1, kind.fillers)))
    ]
    text = _Text(rng)
    first = (drugs[int(rng.integers(len(drugs)))], problems[int(rng.integers(len(problems)))])
    text.sentence(_pick(say.TITLES[style], rng), *first)
    for b in rng.permutation(len(blocks)):
        for pattern, drug, problem in blocks[b]:
            text.sentence(pattern, drug, problem)
    for c in (*drugs, *problems):  # whoever was never mentioned is, at the end
        if not c.spans:
            text.sentence(
                _pick(say.ONE_SIDED["drug" if c.type == "Drug" else "problem"], rng), c, c
            )
    cast = [*drugs, *problems]
    entities = tuple(Entity(c.id, c.type, tuple(c.spans)) for c in cast)
    at = {c.id: i for i, c in enumerate(cast)}
    pairs = tuple(Pair(at[d.id], at[p.id], truth[d.id, p.id]) for d in drugs for p in problems)
    document = Document(name, text.text, tuple(text.sentences), entities, pairs)
    return (
        leave_out(document, {c.id: (c.place,) for c in problems}) if recipe.filtered else document
    )


def _fate(kind: _Kind, rng: np.random.Generator) -> str:
    if rng.random() < kind.positive:
        return "causes"
    return _pick(("treats", "relieves", "other", "denied", "listed", "unsaid", "unsaid"), rng)


def _told(
    fate: str,
    style: str,
    *,
    kind: _Kind,
    d: _Concept,
    p: _Concept,
    wordings: int,
    rng: np.random.Generator,
) -> list[list[tuple[str, _Concept | None, _Concept | None]]]:
    """The sentences that say how a drug and a problem are related; those of one block stand
    together.
    """
    across = rng.random() < kind.across

    def one(ways: tuple[str, ...]) -> str:
        return _pick(ways[: wordings or None], rng)

    def two(back: tuple[str, ...]) -> list[tuple[str, _Concept | None, _Concept | None]]:
        block: list[tuple[str, _Concept | None, _Concept | None]] = [(one(say.GIVEN), d, None)]
        if rng.random() < 0.25:
            block.append((_pick(say.FILLERS, rng), None, None))
        return [*block, (one(back), None, p)]

    if fate == "causes":
        return [two(say.BACK_YES) if across else [(one(say.STATED[style]), d, p)]]
    if fate in say.OTHER:
        return [two(say.BACK_NO) if across else [(one(say.OTHER[fate]), d, p)]]
    if fate == "denied":
        return [[(f"{one(say.DENIED)} {one(say.STATED[style])}", d, p)]]
    if fate == "listed":
        return [[(one(say.LISTED), d, p)]]
    return []


def _mislabel(document: Document, recipe: Recipe, rng: np.random.Generator) -> Document:
    """An annotator's slips: a relation overlooked, or seen where there is none."""

    def slip(p: Pair) -> Pair:
        if rng.random() >= recipe.label_noise:
            return p
        return replace(p, relations=() if p.relations else _RELATIONS[:1])

    return replace(document, pairs=tuple(slip(p) if p.counted else p for p in document.pairs))
