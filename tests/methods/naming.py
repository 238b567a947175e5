"""The naming of bags played among views of silos, by an honest coordinator: what tests of rounds
that need names start from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from methods.base import Exchange, Folded, Heard, SiloView, State
from methods.common.bag_names import Naming, names_of

__all__ = ["named", "passed", "relayed"]

Views = Sequence[SiloView[Any, Any]]


def passed(exchange: Exchange, state: State, views: Views, round: int = 0) -> State:
    """One exchange with these silos."""
    present = tuple(v.index for v in views)
    said = exchange.broadcast(state, round, present)
    sealed = {}
    for v in views:
        heard = Heard(round, present, said.common, said.private.get(v.index, {}))
        sealed[v.index] = exchange.answer(v, heard).sealed
    return exchange.fold(state, Folded(round, present, {}, sealed))


def relayed(naming: Naming, views: Views, round: int = 0) -> State:
    """The coordinator's state when all points were evaluated."""
    state = State({})
    for exchange in naming.exchanges():
        state = passed(exchange, state, views, round)
    return state


def named(naming: Naming, views: Views, round: int = 0) -> list[SiloView[Any, Any]]:
    """The same silos, with their names on disk."""
    present = tuple(v.index for v in views)
    replies = naming.relay.replies(relayed(naming, views, round), present)
    out = []
    for v in views:
        _, memory = names_of(naming, v, Heard(round, present, {}, replies.get(v.index, {})))
        out.append(replace(v, memory=memory or v.memory))
    return out
