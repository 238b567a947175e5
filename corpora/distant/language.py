"""Turning "this pair, this relation" into words, for whole arrays of sentences at once.

A sentence is a row of phrase numbers: opening, clause, asides, a second clause about other
entities, closing. Phrases are runs of one flat array, so that half a million sentences are one
gather and no loop over sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from corpora.distant import phrases as say
from corpora.distant.table import Sentences

__all__ = ["GROUPS", "IN_GROUP", "LEXICON_SEED", "TYPES", "Drawn", "Language", "realise"]

LEXICON_SEED = 20_210_817  #: the lexicon is the same in every corpus: it is public
TYPES = ("drug", "gene", "disease", "symptom")
#: pairs of types that relations join
GROUPS = tuple(dict.fromkeys((h, t) for h, t, _ in say.RELATIONS.values()))
#: per group, the numbers of its relations (NA is 0)
IN_GROUP = tuple(
    np.array([r for r, (h, t, _) in enumerate(say.RELATIONS.values(), start=1) if (h, t) == g])
    for g in GROUPS
)
_MENTION, _DENIAL, _OTHER = 1, 2, 3  #: the three ways to state nothing about a pair


@dataclass(frozen=True)
class Drawn:
    """What each sentence is to say: which pair, which relation it expresses (0: none), which labels
    it gets.
    """

    head: np.ndarray
    tail: np.ndarray
    group: np.ndarray
    says: np.ndarray
    about: np.ndarray  #: the relation that a denial or a clause about others speaks of; 0: any
    topic: np.ndarray  #: the relation whose topic a mere mention follows; 0: any topic
    labels: np.ndarray  #: (sentences, 2), the second -1 where there is only one


class Language:
    """Words, entity names and phrases as numbers. A phrase is a run of `flat` from `at[p]` to `at[p
    + 1]`.
    """

    def __init__(self, entities: int, filler: int, ways: int = 0) -> None:
        rng = np.random.default_rng(LEXICON_SEED)
        self.ways = ways
        self.per_type = entities
        self._number: dict[str, int] = {}
        self._phrases: list[tuple[int, ...]] = []
        self._known: dict[tuple[int, ...], int] = {}
        self.empty = self.phrase(())
        self.period = self.phrase((".",))
        self.says = [self._patterns(p) for _, _, p in say.RELATIONS.values()]
        self.mentions = [[self._patterns(topic) for topic in say.MENTIONS[g]] for g in GROUPS]
        self.denials, self.hedges = self._plain(say.DENIALS), self._plain(say.HEDGES)
        self.openings, self.closings = self._plain(say.OPENINGS), self._plain(say.CLOSINGS)
        self.links = self._plain(say.LINKS)
        self.manners, self.asides = self._plain(say.MANNERS), self._plain(say.ASIDES)
        invented = _invent(filler + 5 * entities, rng)
        fillers, names = invented[:filler], invented[filler:]
        self.entities = _entity_names(entities, names, rng)
        self.entity = np.array([self.phrase(tuple(e.split())) for e in self.entities])
        common = 1.0 / np.arange(1, len(fillers) + 1) ** 0.7
        runs = rng.integers(1, 4, size=max(2_000, filler))
        drawn = rng.choice(len(fillers), size=int(runs.sum()), p=common / common.sum())
        self.filler = np.array(
            [
                self.phrase(tuple(fillers[i] for i in run))
                for run in np.split(drawn, np.cumsum(runs)[:-1])
            ]
        )
        self.at = np.concatenate([[0], np.cumsum([len(p) for p in self._phrases])])
        self.flat = np.fromiter(
            (w for p in self._phrases for w in p), dtype=np.int32, count=int(self.at[-1])
        )

    def phrase(self, words: Sequence[str]) -> int:
        numbers = tuple(self._number.setdefault(w, len(self._number)) for w in words)
        if numbers not in self._known:
            self._known[numbers] = len(self._phrases)
            self._phrases.append(numbers)
        return self._known[numbers]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self._number)

    def spell(self, phrases: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of phrase numbers as one array of words, the rows' offsets, and where each phrase
        starts in its row.
        """
        length = (self.at[1:] - self.at[:-1])[phrases]
        ends = np.cumsum(length, axis=1)
        offsets = np.concatenate([[0], np.cumsum(ends[:, -1])]).astype(np.int64)
        flat_length = length.ravel()
        goes_to = np.cumsum(flat_length) - flat_length
        source = np.repeat(self.at[phrases.ravel()] - goes_to, flat_length) + np.arange(offsets[-1])
        return self.flat[source], offsets, ends - length

    def _plain(self, phrases: Sequence[str]) -> np.ndarray:
        return np.array([self.phrase(p.split()) for p in phrases])

    def _patterns(self, patterns: Sequence[str]) -> np.ndarray:
        """(spellings, 4): phrase before, between, after, and 1 where the tail comes first."""
        spelled = [s for p in patterns for s in say.expand(p)]
        table = np.array(
            [[self.phrase(a), self.phrase(b), self.phrase(c), int(f)] for a, b, c, f in spelled]
        )
        # Some of each pattern, not all of the first ones.
        return (
            table[np.random.default_rng(len(table)).permutation(len(table))[: self.ways]]
            if self.ways
            else table
        )


def _invent(count: int, rng: np.random.Generator) -> list[str]:
    """Distinct made-up words of two to four syllables."""
    onset = np.array(
        [
            "b",
            "br",
            "c",
            "cl",
            "d",
            "dr",
            "f",
            "fl",
            "g",
            "gr",
            "l",
            "m",
            "n",
            "p",
            "pr",
            "r",
            "s",
            "st",
            "t",
            "tr",
            "v",
        ]
    )
    nucleus, coda = (
        np.array(["a", "e", "i", "o", "u", "ae", "io"]),
        np.array(["", "", "n", "r", "l", "x", "m"]),
    )
    found: dict[str, None] = {}
    while len(found) < count:
        shape = (count, 4)
        syllables = np.strings.add(
            np.strings.add(rng.choice(onset, shape), rng.choice(nucleus, shape)),
            rng.choice(coda, shape),
        )
        lengths = rng.integers(2, 5, size=count)
        found.update(dict.fromkeys("".join(row[:n]) for row, n in zip(syllables, lengths)))
    return list(found)[:count]


def _entity_names(count: int, stems: list[str], rng: np.random.Generator) -> list[str]:
    endings = {
        "drug": ("mab", "pril", "statin", "azole", "olol", "cillin"),
        "disease": ("itis", "oma", "osis", "opathy", "emia", "algia"),
    }
    qualifiers = stems[4 * count : 4 * count + max(8, count // 8)]
    names: list[str] = []
    for k, kind in enumerate(TYPES):
        for i in range(count):
            stem = stems[k * count + i]
            if kind == "gene":
                names.append(f"{stem[:3]}{i}")
            elif kind == "symptom":
                names.append(f"{stem} {('pain', 'loss', 'fever', 'rash', 'weakness')[i % 5]}")
            elif kind == "disease":
                names.append(
                    f"{qualifiers[int(rng.integers(len(qualifiers)))]} {stem}{endings[kind][i % 6]}"
                )
            else:
                names.append(f"{stem}{endings[kind][i % 6]}")
    return names


def _choose(table: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of a phrase table, the first ones far more often: a few ways to say it are common, many
    are rare.
    """
    chance = 1.0 / np.arange(1, len(table) + 1) ** 0.7
    # common ones are not those listed first
    order = np.random.default_rng(len(table)).permutation(len(table))
    return table[order[rng.choice(len(table), size=count, p=chance / chance.sum())]]


def _clauses(
    language: Language,
    group: np.ndarray,
    says: np.ndarray,
    about: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """A pattern for every clause: one that expresses `says`, or a mention in the topic of
    `about`.
    """
    out = np.zeros((len(group), 4), dtype=np.int64)
    for r in range(1, len(say.RELATIONS) + 1):
        here = np.flatnonzero(says == r)
        out[here] = _choose(language.says[r - 1], len(here), rng)
    for g, topics in enumerate(language.mentions):
        quiet = np.flatnonzero((says == 0) & (group == g))
        # Each relation of the group has a topic of its own, which its pairs are usually mentioned
        # in.
        own = np.searchsorted(IN_GROUP[g], about[quiet]) % len(topics)
        topic = np.where(about[quiet] > 0, own, rng.integers(len(topics), size=len(quiet)))
        for t, table in enumerate(topics):
            here = quiet[topic == t]
            out[here] = _choose(table, len(here), rng)
    return out


def realise(
    language: Language, d: Drawn, ways: tuple[float, float, float], rng: np.random.Generator
) -> Sentences:
    """The sentences as packed rows, one row per label. `ways`: shares of mention, denial and other
    entities' clause.
    """
    n, empty = len(d.head), language.empty
    way = np.where(d.says > 0, 0, rng.choice([_MENTION, _DENIAL, _OTHER], size=n, p=ways))
    # Who denies something of a pair that has a relation denies that relation.
    some = np.stack([rng.choice(r, size=n) for r in IN_GROUP])[d.group, np.arange(n)]
    spoken = np.where(d.about > 0, d.about, some)
    core = _clauses(language, d.group, np.where(way == _DENIAL, spoken, d.says), d.topic, rng)
    beside = _clauses(
        language, d.group, np.where(way == _OTHER, spoken, 0), np.zeros(n, np.int64), rng
    )
    third = _other_entity(d.head, language.per_type, rng)
    fourth = _other_entity(d.tail, language.per_type, rng)

    def sometimes(share: float, table: np.ndarray) -> np.ndarray:
        return np.where(rng.random(n) < share, rng.choice(table, size=n), empty)

    def only(where: np.ndarray, phrase: np.ndarray) -> np.ndarray:
        return np.where(where, phrase, empty)

    def ordered(
        pattern: np.ndarray, head: np.ndarray, tail: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        flipped = pattern[:, 3] == 1
        return language.entity[np.where(flipped, tail, head)], language.entity[
            np.where(flipped, head, tail)
        ]

    first, second = ordered(core, d.head, d.tail)
    other_first, other_second = ordered(beside, third, fourth)
    # sometimes a second clause that states nothing either
    extra = (way == _OTHER) | (rng.random(n) < 0.2)
    before = extra & (rng.random(n) < 0.5)
    after = extra & ~before
    link = rng.choice(language.links, size=n)
    clause = (beside[:, 0], other_first, beside[:, 1], other_second, beside[:, 2])
    opening, closing = sometimes(0.3, language.openings), sometimes(0.35, language.closings)
    aside = sometimes(0.2, language.asides)
    columns = [
        opening,
        only(opening != empty, rng.choice(language.filler, size=n)),
        *(only(before, c) for c in clause),
        only(before, link),
        np.where(
            way == _DENIAL, rng.choice(language.denials, size=n), sometimes(0.35, language.hedges)
        ),
        core[:, 0],
        first,
        aside,
        only(aside != empty, rng.choice(language.filler, size=n)),
        sometimes(0.25, language.manners),
        core[:, 1],
        second,
        core[:, 2],
        only(after, link),
        *(only(after, c) for c in clause),
        closing,
        only(closing != empty, rng.choice(language.filler, size=n)),
        np.full(n, language.period),
    ]
    tokens, offsets, at = language.spell(np.stack(columns, axis=1))
    one_at, two_at = at[:, 10], at[:, 15]
    flipped = core[:, 3] == 1
    sentences = Sentences(
        tokens=tokens,
        offsets=offsets,
        head_at=np.where(flipped, two_at, one_at).astype(np.int32),
        tail_at=np.where(flipped, one_at, two_at).astype(np.int32),
        head=d.head.astype(np.int32),
        tail=d.tail.astype(np.int32),
        relation=d.labels[:, 0].astype(np.int32),
        expresses=(d.says == d.labels[:, 0]).astype(np.int8),
    )
    # A pair in two facts: each of its sentences is a row under either label.
    twice = np.flatnonzero(d.labels[:, 1] >= 0)
    rows = np.concatenate([np.arange(n), twice])
    labels = np.concatenate([d.labels[:, 0], d.labels[twice, 1]])
    order = rng.permutation(len(rows))
    taken = sentences.take(rows[order])
    relation = labels[order].astype(np.int32)
    says = d.says[rows[order]]
    return replace(taken, relation=relation, expresses=(says == relation).astype(np.int8))


def _other_entity(entity: np.ndarray, per_type: int, rng: np.random.Generator) -> np.ndarray:
    """For each entity another of its type."""
    step = rng.integers(1, per_type, size=len(entity))
    return entity - entity % per_type + (entity + step) % per_type
