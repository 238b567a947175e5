"""Who annotates what: one tag set per platform, drawn as the paper's two experiments draw them, or
given.

| spec       | tag sets (Wang et al. 2023) |
|------------|------------------------------|
| `all`      | whatever the corpus annotates there: natural corpora that disagree need nothing else |
| `disjoint` | every type belongs to one platform, as many to each (section 5.2, OntoNotes) |
| `clinic`   | one type for each platform that no other has; every other type at one or two platforms (appendix D) |
| given      | `Drug+Effect/Disease/Test`: the platforms' sets in the order of the domains, or of the silos |

The union of the tag sets is what the model predicts with. It is made of names alone, the names that
the platforms say they annotate: nobody counts entities for it, so a type that a silo annotates but
never found is in it as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from config.errors import UserError, nearest

__all__ = ["SCHEMES", "tag_sets", "union"]

SCHEMES = ("all", "disjoint", "clinic")


def union(declared: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """T: every name that anybody declares, in an order that tells nothing."""
    return tuple(sorted({name for names in declared for name in names}))


def tag_sets(spec: str, types: tuple[str, ...], covered: np.ndarray, seed: int) -> np.ndarray:
    """(platforms, types) bool: T^k of every platform; `covered` is of the same shape and says what
    the data hold.
    """
    platforms = len(covered)
    if spec == "all":
        return covered.copy()
    if "/" in spec or "+" in spec or spec in types:
        return _given(spec, types, covered)
    if spec not in SCHEMES:
        raise UserError(f'Unknown tag sets "{spec}".{nearest(spec, SCHEMES)}')
    if not covered.all():
        raise UserError(
            f'Tag sets "{spec}" are drawn from types that are annotated everywhere; here use "all".'
        )
    if platforms > len(types):
        raise UserError(
            f'Tag sets "{spec}" need a type for each of {platforms} platforms, and there are {len(types)}.'
        )
    rng = np.random.default_rng([seed, 0x7A65])
    sets = np.zeros_like(covered)
    order = rng.permutation(len(types))
    if spec == "disjoint":
        for k, part in enumerate(np.array_split(order, platforms)):
            sets[k, part] = True
        return sets
    sets[np.arange(platforms), order[:platforms]] = True
    for t in order[platforms:]:
        homes = 1 + int(rng.random() < 0.5)
        sets[rng.choice(platforms, min(homes, platforms), replace=False), t] = True
    return sets


def _given(spec: str, types: tuple[str, ...], covered: np.ndarray) -> np.ndarray:
    parts = spec.split("/")
    if len(parts) != len(covered):
        raise UserError(
            f'Tag sets "{spec}" name {len(parts)} platforms, and there are {len(covered)}.'
        )
    sets = np.zeros_like(covered)
    for k, part in enumerate(parts):
        for name in filter(None, part.split("+")):
            if name not in types:
                raise UserError(
                    f'Tag sets "{spec}": there is no type "{name}".{nearest(name, types)}'
                )
            t = types.index(name)
            if not covered[k, t]:
                raise UserError(
                    f'Tag sets "{spec}": the data of platform {k + 1} are not annotated with "{name}".'
                )
            sets[k, t] = True
        if not sets[k].any():
            raise UserError(f'Tag sets "{spec}": platform {k + 1} has none.')
    return sets
