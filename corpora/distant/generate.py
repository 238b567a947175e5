"""The built-in distant-supervision corpus, made on the fly from a seed.

A public knowledge base of medical facts (drug treats disease, gene regulates gene, ...) is drawn
first. Then sentences mention its pairs, and pairs that are in no fact (NA). A row is labelled by
the knowledge base alone, so it is wrong whenever its sentence does not express the fact:

* a share `noise` of the rows of a fact only *mention* the pair: in a context of the fact's usual
  topic (a trial, a prescription), which says nothing but is found more often around that relation
  than elsewhere; in a denial ("there is no evidence that"); or beside a clause that states the
  relation of two other entities;
* a share `missing` of the NA pairs is described by expressing sentences: the knowledge base is
  incomplete;
* a share `double` of the pairs is in two facts, and each of their sentences is labelled with both.

Train, dev and test share entities and no pair. Dev and test are held out with clean gold: the facts
that at least one of their sentences does express. Everything is drawn in whole arrays; half a
million sentences take seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

import numpy as np

from config.errors import UserError
from corpora.distant import phrases as say
from corpora.distant.language import GROUPS, IN_GROUP, LEXICON_SEED, TYPES, Drawn, Language, realise
from corpora.distant.table import NA, Content, Corpus, cached
from corpora.recipe import at_least, parse_recipe, shares

__all__ = ["SETTINGS", "Recipe", "generate", "load", "parse"]

_VERSION = 7  #: part of the cache key: bump it when the same recipe would give other sentences


@dataclass(frozen=True)
class Recipe:
    sentences: int = 12_000  #: training rows
    noise: float = 0.55  #: share of a fact's rows that do not express it
    positive: float = 0.55  #: share of rows whose pair is in a fact
    bag: float = 7.0  #: mean rows of a fact in training
    na_bag: float = 1.2  #: mean rows of an NA pair
    #: share of NA training pairs that do have a relation the knowledge base lacks
    missing: float = 0.002
    double: float = 0.03  #: share of pairs in two facts
    denial: float = 0.4  #: of the sentences that state nothing, those that deny a relation
    #: and those that state the relation of other entities; the rest are mere mentions
    other: float = 0.25
    topic: float = 0.3  #: how often a mention of a fact's pair is in the relation's own topic
    entities: int = 160  #: per type
    filler: int = 1_500  #: words without meaning
    #: spellings of each relation and topic that are used; 0: all. Fewer are learned from fewer rows
    ways: int = 0
    dev: int = 1_000  #: rows
    test: int = 3_000
    auc_points: int = 0  #: points of the curve that count; 0: all
    seed: int = 0


#: Named settings. The second has the size of NYT10's training split, for measuring speed and
#: memory.
SETTINGS = {
    "distant": Recipe(),
    "nyt10-sized": Recipe(
        sentences=466_876,
        positive=0.28,
        entities=3_000,
        filler=20_000,
        dev=5_000,
        test=20_000,
        auc_points=2_000,
    ),
}


def parse(spec: str, seed: int) -> Recipe:
    """`distant`, `nyt10-sized`, or either with options: `distant:noise=0.5,sentences=8000`."""
    recipe = parse_recipe(spec, SETTINGS, seed)
    shares(spec, recipe, ("noise", "positive", "missing", "double", "denial", "other", "topic"))
    at_least(spec, recipe, 20, ("sentences", "dev", "test", "entities", "filler"))
    at_least(spec, recipe, 1, ("bag", "na_bag"))
    at_least(spec, recipe, 0, ("ways",))
    return recipe


def load(spec: str, seed: int) -> Corpus:
    """The corpus `spec` names, from the cache or made now."""
    recipe = parse(spec, seed)
    source = {"generator": "distant", "version": _VERSION, **asdict(recipe)}
    return cached(source, lambda: generate(recipe, spec))


def generate(recipe: Recipe, name: str = "distant") -> Content:
    rng = np.random.default_rng([recipe.seed, 0xD157])
    language = Language(recipe.entities, recipe.filler, recipe.ways)
    kb = _knowledge(recipe, rng)
    splits, gold = {}, {}
    for split, rows in (("train", recipe.sentences), ("dev", recipe.dev), ("test", recipe.test)):
        pairs = kb.take(split)
        drawn = _rows(recipe, pairs, rows, rng, train=split == "train")
        splits[split] = realise(
            language, drawn, (1 - recipe.denial - recipe.other, recipe.denial, recipe.other), rng
        )
        said = splits[split]
        true = (said.expresses == 1) & (said.relation > 0)
        facts = np.stack([said.head[true], said.tail[true], said.relation[true]], axis=1)
        gold[split] = np.unique(facts, axis=0).astype(np.int32).reshape(-1, 3)
    gold.pop("train")
    train = splits["train"]
    positive = train.relation > 0
    return Content(
        name=name,
        note=(
            f"synthetic, made from seed {recipe.seed}: {recipe.noise:.0%} of the rows labelled with a fact do not "
            "express it; figures on it do not compare with any published number"
        ),
        words=tuple(language.words),
        entities=tuple(language.entities),
        relations=(NA, *say.RELATIONS),
        splits=splits,
        gold=gold,
        public_words=True,
        auc_points=recipe.auc_points,
        figures={
            "false_positive_rate": float((train.expresses[positive] == 0).mean()),
            "positive_rows": float(positive.mean()),
        },
    )


# The knowledge base


@dataclass(frozen=True)
class _Pairs:
    """Entity pairs with one fact, two, or none (relation 0); `second` is 0 where there is no second
    fact.
    """

    head: np.ndarray
    tail: np.ndarray
    group: np.ndarray  #: which pair of types
    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True)
class _Knowledge:
    positive: _Pairs
    none: _Pairs
    share: dict[str, tuple[slice, slice]]

    def take(self, split: str) -> tuple[_Pairs, _Pairs]:
        p, n = self.share[split]
        return tuple(
            _Pairs(*(getattr(x, f.name)[cut] for f in fields(_Pairs)))
            for x, cut in ((self.positive, p), (self.none, n))
        )  # type: ignore[return-value]


def _knowledge(recipe: Recipe, rng: np.random.Generator) -> _Knowledge:
    """Enough pairs for all splits, each pair in one split only. Relations are unequally frequent,
    as in life.
    """
    counts: dict[str, tuple[int, int]] = {}
    for split, rows in (("train", recipe.sentences), ("dev", recipe.dev), ("test", recipe.test)):
        bag = recipe.bag if split == "train" else min(recipe.bag, 4.0)
        positives = (
            rows * (recipe.positive if split == "train" else 0.4) / (bag * (1 + recipe.double))
        )
        negatives = rows * (1 - recipe.positive if split == "train" else 0.6) / recipe.na_bag
        # Half as many again, since bag sizes are drawn; rows are cut to the number asked for.
        counts[split] = (int(positives * 1.5) + 3, int(negatives * 1.5) + 3)
    n_pos, n_neg = (sum(c[i] for c in counts.values()) for i in (0, 1))
    frequency = 1.0 / np.arange(1, len(say.RELATIONS) + 1) ** 0.5
    order = np.random.default_rng(LEXICON_SEED).permutation(len(frequency))
    weight = np.concatenate([[0.0], frequency[order]])
    by_group = np.array([weight[r].sum() for r in IN_GROUP])
    group, head, tail = _distinct_pairs(recipe, n_pos + n_neg, by_group / by_group.sum(), rng)
    first, second = np.zeros(len(group), np.int64), np.zeros(len(group), np.int64)
    for g, relations in enumerate(IN_GROUP):
        here = np.flatnonzero(group[:n_pos] == g)
        first[here] = rng.choice(
            relations, size=len(here), p=weight[relations] / weight[relations].sum()
        )
        if len(relations) > 1:
            twice = here[rng.random(len(here)) < recipe.double]
            step = rng.integers(1, len(relations), size=len(twice))
            second[twice] = relations[
                (np.searchsorted(relations, first[twice]) + step) % len(relations)
            ]
    share, p, n = {}, 0, 0
    for split, (a, b) in counts.items():
        share[split] = (slice(p, p + a), slice(n, n + b))
        p, n = p + a, n + b
    columns = (head, tail, group, first, second)
    return _Knowledge(
        _Pairs(*(c[:n_pos] for c in columns)), _Pairs(*(c[n_pos:] for c in columns)), share
    )


def _distinct_pairs(
    recipe: Recipe, wanted: int, chance: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random pairs, no two of the same entities; some entities are in far more pairs than
    others.
    """
    size = recipe.entities
    # Beyond half of what there is, drawing at random would go on for long.
    if any(wanted * share > size * (size - 1) / 2 for share in chance):
        raise UserError(
            f"{size} entities per type are too few for {wanted} pairs; give more with entities=."
        )
    popular = 1.0 / np.arange(1, size + 1) ** 0.4
    kinds = np.array([[TYPES.index(a), TYPES.index(b)] for a, b in GROUPS])
    everybody = size * len(TYPES)
    # a group and two entities as one number: quicker to compare than three
    codes = np.zeros(0, np.int64)
    while len(codes) < wanted:
        g = rng.choice(len(GROUPS), size=wanted * 2, p=chance)
        h, t = (
            kinds[g, side] * size + rng.choice(size, size=wanted * 2, p=popular / popular.sum())
            for side in (0, 1)
        )
        drawn = ((g * everybody + h) * everybody + t)[h != t]
        codes = np.unique(np.concatenate([codes, drawn]))
    chosen = codes[rng.permutation(len(codes))[:wanted]]
    rest, tail = np.divmod(chosen, everybody)
    group, head = np.divmod(rest, everybody)
    return group, head, tail


# From pairs to rows


def _bag_sizes(mean: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """At least one sentence a pair; rates differ between pairs, so that a few are written about a
    lot.
    """
    rate = rng.gamma(6.0, (mean - 1.0) / 6.0, size=count) if mean > 1 else np.zeros(count)
    return 1 + rng.poisson(rate)


def _rows(
    recipe: Recipe, pairs: tuple[_Pairs, _Pairs], rows: int, rng: np.random.Generator, train: bool
) -> Drawn:
    positive, none = pairs
    share = recipe.positive if train else 0.4
    bag = recipe.bag if train else min(recipe.bag, 4.0)
    sizes = _bag_sizes(bag, len(positive.head), rng)
    of = np.repeat(np.arange(len(sizes)), sizes)
    weight = np.cumsum(1 + (positive.second[of] > 0))
    of = of[: int(np.searchsorted(weight, rows * share))]
    fact = np.where(
        (positive.second[of] > 0) & (rng.random(len(of)) < 0.5),
        positive.second[of],
        positive.first[of],
    )
    says = np.where(rng.random(len(of)) < recipe.noise, 0, fact)
    topical = np.where(rng.random(len(of)) < recipe.topic, fact, 0)
    labels = np.stack(
        [positive.first[of], np.where(positive.second[of] > 0, positive.second[of], -1)], axis=1
    )
    left = rows - int((labels >= 0).sum())
    na_of = np.repeat(np.arange(len(none.head)), _bag_sizes(recipe.na_bag, len(none.head), rng))[
        :left
    ]
    hidden = np.zeros(len(none.head), np.int64)
    if train:  # facts the knowledge base lacks; at test there are none: its gold is clean
        lacking = rng.random(len(hidden)) < recipe.missing
        hidden[lacking] = [rng.choice(IN_GROUP[g]) for g in none.group[lacking]]
    na_says = np.where(rng.random(len(na_of)) < recipe.noise, 0, hidden[na_of])
    nothing = np.zeros(len(na_of), np.int64)
    na_labels = np.stack([nothing, np.full(len(na_of), -1)], axis=1)
    return Drawn(
        head=np.concatenate([positive.head[of], none.head[na_of]]),
        tail=np.concatenate([positive.tail[of], none.tail[na_of]]),
        group=np.concatenate([positive.group[of], none.group[na_of]]),
        says=np.concatenate([says, na_says]),
        about=np.concatenate([fact, nothing]),
        topic=np.concatenate([topical, nothing]),
        labels=np.concatenate([labels, na_labels]),
    )
