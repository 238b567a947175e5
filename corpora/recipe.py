"""A built-in corpus's name with its options, `name:key=value,key=value`, into the recipe that a
generator follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from config.errors import UserError, nearest

__all__ = ["at_least", "parse_recipe", "shares"]

R = TypeVar("R")


def parse_recipe(spec: str, known: Mapping[str, R], seed: int) -> R:
    """`known`: the built-in corpora, by name. A recipe is a dataclass of numbers with a `seed`."""
    name, _, options = spec.partition(":")
    if name not in known:
        raise UserError(f'Unknown built-in corpus "{name}".{nearest(name, known)}')
    recipe: Any = replace(known[name], seed=seed)  # type: ignore[type-var]
    kinds = {f.name: type(getattr(recipe, f.name)) for f in fields(recipe)}
    for option in filter(None, options.split(",")):
        key, _, value = option.partition("=")
        if key not in kinds:
            raise UserError(f'The corpus "{name}" has no option "{key}".{nearest(key, kinds)}')
        try:
            recipe = replace(recipe, **{key: kinds[key](value)})
        except ValueError:
            wanted = "a whole number" if kinds[key] is int else "a number"
            raise UserError(
                f'Option "{key}" of the corpus "{name}" must be {wanted}, not "{value}".'
            ) from None
    return recipe


def shares(spec: str, recipe: Any, keys: Iterable[str]) -> None:
    for key in keys:
        if not 0.0 <= getattr(recipe, key) <= 1.0:
            raise UserError(
                f'Option "{key}" of the corpus "{spec.partition(":")[0]}" must be between 0 and 1.'
            )


def at_least(spec: str, recipe: Any, least: float, keys: Iterable[str]) -> None:
    for key in keys:
        if getattr(recipe, key) < least:
            raise UserError(
                f'Option "{key}" of the corpus "{spec.partition(":")[0]}" must be at least {least:g}.'
            )
