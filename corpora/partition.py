"""Which silo holds what: a partition is a list of indices per silo, cut from one recorded seed.

| spec             | cut |
|------------------|-----|
| `iid`            | units shuffled and dealt in equal parts; the remainder is spread, one each, over the
first silos |
| `pair`           | all units of an entity pair stay together; pairs are dealt so that silos are about
equally large |
| `entropy`, `entropy:released` | documents by the structural entropy of their graph: the range is cut into as many
equal intervals as there are silos, upper ends included; a silo whose interval is empty stays empty |
| `dirichlet:A`    | per class a draw p ~ Dir(A) over silos; the class's shuffled units are cut at the
cumulative floors |
| `domain`         | silos are dealt to domains (genres, styles, corpora), more to the larger ones, and each
domain's shuffled units are cut in equal parts among its silos |

`,sample=N` behind any of them draws N units first and cuts those; the others are nobody's. Which
they are depends on the seed and on nothing else, so that one silo with all (`centralised`) and ten
that share them have the same. `iid,sample=1000` is for studies that must end.

A Dirichlet cut that leaves a silo empty is drawn again, up to a hundred times; after that single
units move from the largest silo to the empty ones, and the note says so (with many silos and a
small A no draw would ever do).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from config.errors import UserError, nearest

__all__ = ["REDRAWS", "Partition", "cut", "parse", "sample_of"]

REDRAWS = 100
_KINDS = ("iid", "pair", "dirichlet", "domain")
_ENTROPIES = ("degree_entropy", "released")
_NEEDS = {"pair": "pair", "domain": "domain", "dirichlet": "label", **{e: e for e in _ENTROPIES}}


@dataclass(frozen=True)
class Partition:
    indices: tuple[np.ndarray, ...]  #: per silo, sorted positions in the training split
    spec: str
    seed: int
    note: str = ""  #: what a report must say of it; empty when there is nothing to say

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(i) for i in self.indices)


def sample_of(spec: str) -> tuple[str, str]:
    """("iid", ",sample=1000"), or ("iid", "") where all units are cut."""
    kind, comma, rest = spec.partition(",")
    if not comma:
        return kind, ""
    name, _, count = rest.partition("=")
    if name != "sample" or not count.isdigit() or not int(count):
        raise UserError(
            f'What follows the comma in PARTITION must be a sample, as in "{kind},sample=1000", not "{rest}".'
        )
    return kind, f",sample={int(count)}"


def parse(spec: str) -> tuple[str, float]:
    """("iid", 0.0), ("pair", 0.0), ("dirichlet", alpha), or the name of an entropy and 0.0."""
    kind, colon, value = spec.partition(":")
    if kind == "entropy":
        if colon and value not in _ENTROPIES:
            raise UserError(
                f'Partition "entropy" is by {" or ".join(_ENTROPIES)}, not by "{value}".'
            )
        return value or _ENTROPIES[0], 0.0
    if kind not in _KINDS:
        raise UserError(f'Unknown partition "{spec}".{nearest(kind, [*_KINDS, "entropy"])}')
    if kind != "dirichlet":
        if colon:
            raise UserError(f'Partition "{kind}" takes no value, but "{spec}" gives one.')
        return kind, 0.0
    try:
        alpha = float(value)
    except ValueError:
        alpha = float("nan")
    if not 0.0 < alpha < float("inf"):
        raise UserError(
            f'Partition "dirichlet" needs a positive number, as in "dirichlet:0.05", not "{spec}".'
        )
    return kind, alpha


def cut(spec: str, silos: int, seed: int, size: int, keys: Mapping[str, np.ndarray]) -> Partition:
    """Divide `size` units among `silos`; `keys` are the task's `partition_keys()`."""
    whole, sample = sample_of(spec)
    if not sample:
        return _cut(spec, silos, seed, size, keys)
    count = int(sample.partition("=")[2])
    if count > size:
        raise UserError(f"PARTITION={spec} draws {count} training examples, and there are {size}.")
    drawn = np.sort(np.random.default_rng([seed, 0x5A3B]).permutation(size)[:count])
    some = _Some(keys, drawn)
    of_those = _cut(whole, silos, seed, count, some)
    note = f"a sample of {count} of {size} training examples"
    return Partition(
        tuple(drawn[ix] for ix in of_those.indices),
        spec,
        seed,
        "; ".join(filter(None, (note, of_those.note))),
    )


class _Some(Mapping[str, np.ndarray]):
    """The keys of some units, each computed when it is asked for."""

    def __init__(self, keys: Mapping[str, np.ndarray], units: np.ndarray) -> None:
        self._keys, self._units = keys, units

    def __getitem__(self, key: str) -> np.ndarray:
        return np.asarray(self._keys[key])[self._units]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _cut(spec: str, silos: int, seed: int, size: int, keys: Mapping[str, np.ndarray]) -> Partition:
    kind, alpha = parse(spec)
    need = _NEEDS.get(kind)
    if need is not None and need not in keys:
        if kind in _ENTROPIES:
            raise UserError(
                'Partition "entropy" cuts documents by their structure, which this task does not have.'
            )
        raise UserError(f'Partition "{spec}" cuts by {need}, which this task does not have.')
    if silos > size:
        raise UserError(
            f"{silos} silos cannot share {size} training examples: each needs at least one."
        )
    rng = np.random.default_rng([seed, 0x9A47])
    note = ""
    if kind == "iid":
        parts = _iid(size, silos, rng)
    elif kind == "domain":
        parts = _by_domain(np.asarray(keys["domain"]), silos, rng)
    elif kind == "pair":
        parts = _by_group(np.asarray(keys["pair"]), silos, rng)
        empty = sum(len(p) == 0 for p in parts)
        if empty:
            note = f"{empty} of {silos} silos are empty: there are fewer entity pairs than silos"
    elif kind in _ENTROPIES:
        parts, note = _by_interval(np.asarray(keys[kind]), silos, kind)
    else:
        parts, note = _dirichlet(np.asarray(keys["label"]), silos, alpha, rng)
    return Partition(tuple(np.sort(p).astype(np.int64) for p in parts), spec, seed, note)


def _iid(size: int, silos: int, rng: np.random.Generator) -> list[np.ndarray]:
    # array_split gives the first size % silos parts one unit more: the remainder is spread, never
    # discarded.
    return list(np.array_split(rng.permutation(size), silos))


def _by_domain(domains: np.ndarray, silos: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Whole domains in the order of their numbers; a domain with more silos is cut among them."""
    present, counts = np.unique(domains, return_counts=True)
    if silos < len(present):
        raise UserError(
            f"{silos} silos cannot hold {len(present)} domains, one or more silos each; use more."
        )
    homes = np.ones(len(present), dtype=np.int64)
    for _ in range(silos - len(present)):  # the next silo goes where units per silo are most
        homes[int(np.argmax(counts / homes))] += 1
    return [
        part
        for domain, k in zip(present, homes)
        for part in np.array_split(rng.permutation(np.flatnonzero(domains == domain)), k)
    ]


def _by_group(groups: np.ndarray, silos: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Whole groups, in random order, each to the silo that is smallest so far (ties: lowest
    index).
    """
    _, group_of, counts = np.unique(groups, return_inverse=True, return_counts=True)
    load = np.zeros(silos, dtype=np.int64)
    home = np.empty(len(counts), dtype=np.int64)
    for g in rng.permutation(len(counts)):
        home[g] = int(np.argmin(load))
        load[home[g]] += counts[g]
    silo_of = home[group_of]
    return [np.flatnonzero(silo_of == k) for k in range(silos)]


def _by_interval(values: np.ndarray, silos: int, kind: str) -> tuple[list[np.ndarray], str]:
    """Equal intervals of [min, max], upper ends included; nothing is random."""
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high, silos + 1)[1:-1]
    silo_of = np.searchsorted(edges, values, side="left")
    parts = [np.flatnonzero(silo_of == k) for k in range(silos)]
    note = f"{kind} from {low:.2f} to {high:.2f}, in intervals of {(high - low) / silos:.2f}"
    empty = [k for k, p in enumerate(parts) if len(p) == 0]
    if empty:
        note += f"; {len(empty)} of {silos} silos are empty: no document lies in their interval"
    return parts, note


def _dirichlet(
    labels: np.ndarray, silos: int, alpha: float, rng: np.random.Generator
) -> tuple[list[np.ndarray], str]:
    classes = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    parts: list[list[np.ndarray]] = []
    draws = 0
    while draws < REDRAWS:
        draws += 1
        parts = [[] for _ in range(silos)]
        for members in classes:
            p = rng.dirichlet(np.full(silos, alpha))
            # underflow at tiny alpha: all mass at one silo is the limit
            if not np.isfinite(p).all():
                p = np.eye(silos)[rng.integers(silos)]
            cuts = np.floor(np.cumsum(p)[:-1] * len(members)).astype(np.int64)
            for k, piece in enumerate(np.split(rng.permutation(members), cuts)):
                parts[k].append(piece)
        if all(sum(map(len, p)) for p in parts):
            break
    joined = [np.concatenate(p) for p in parts]
    empty = [k for k, p in enumerate(joined) if len(p) == 0]
    if not empty:
        note = f"drawn {draws} times until no silo was empty" if draws > 1 else ""
        return joined, note
    for k in empty:
        largest = max(range(silos), key=lambda j: (len(joined[j]), -j))
        joined[k], joined[largest] = joined[largest][-1:], joined[largest][:-1]
    return joined, (
        f"repaired: {len(empty)} of {silos} silos were empty after {REDRAWS} draws; "
        "each was given one example of the then largest silo"
    )
