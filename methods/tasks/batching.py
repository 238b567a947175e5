"""The lengths of texts: to how many pieces they may be cut, and batches of texts that are alike in
length, so that little is padded, in an order that the seed decides. And batches scored on several
cores, where a process may use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from config.errors import UserError

__all__ = [
    "LEAST_LENGTH",
    "batches_by_length",
    "check_length",
    "chunks_by_length",
    "for_each",
    "use_threads",
]

P = TypeVar("P")
R = TypeVar("R")

LEAST_LENGTH = 16  #: pieces to which a text may be cut
_SORT_WITHIN = 16  #: batches are made alike in length within groups of this many


def check_length(key: str, length: int, most: int) -> None:
    """Refuses an option that cuts texts to fewer pieces than make sense, or to more than the
    encoder has positions for.
    """
    if not LEAST_LENGTH <= length <= most:
        raise UserError(f'Option "{key}" must be between {LEAST_LENGTH} and {most}, not {length}.')


def batches_by_length(
    lengths: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """One epoch as positions: shuffled, then sorted by length within groups of batches, then
    shuffled again. The last batch is kept however small.
    """
    order = rng.permutation(len(lengths))
    group = size * _SORT_WITHIN
    cuts = []
    for g in range(0, len(order), group):
        block = order[g : g + group]
        block = block[np.argsort(lengths[block], kind="stable")]
        cuts += [block[b : b + size] for b in range(0, len(block), size)]
    for c in rng.permutation(len(cuts)):
        yield cuts[c]


def chunks_by_length(lengths: np.ndarray, chosen: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """The positions `chosen`, each once, in parts of at most `most` that are alike in length."""
    order = chosen[np.argsort(lengths[chosen], kind="stable")]
    for at in range(0, len(order), most):
        yield order[at : at + most]


_pool: list[ThreadPoolExecutor] = []


def use_threads(count: int) -> None:
    """How many batches this process may score at once. A silo scores one: it has one core."""
    _pool[:] = [ThreadPoolExecutor(count)] if count > 1 else []


def for_each(work: Callable[[P], R], parts: Iterable[P]) -> list[R]:
    """`work` of every part, in order. A part is computed on one thread, however many there are: its
    sums of floats do not depend on that.
    """
    return list(_pool[0].map(work, parts)) if _pool else [work(part) for part in parts]
