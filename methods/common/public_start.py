"""A start from public text (`PUBLIC`): how silos get what the coordinator trained and they do not.

Before the first round the coordinator trains all parameters on public text (`study.public_start`).
What silos train too is in every round's model anyway. The rest, such as the encoder below a head
(`TRAIN=head`), is told once to every silo, in an exchange that no silo sends anything in, and the
silo keeps it on its own disk. A silo that comes later is told when it comes.

**What is kept is bound.** A coordinator could show two silos different parameters, under which one
of them would have nothing to add, and read the other's update in the sum. So every broadcast names
the hash of these parameters, and each sum is bound to its round's broadcasts: silos that hold
others refuse, and are in no sum together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from methods.base import (
    Answer,
    Arrays,
    Broadcast,
    Contradiction,
    Exchange,
    Folded,
    Heard,
    Method,
    SiloView,
    State,
)
from methods.common.arrays import model_sha256
from methods.tasks.base import Task
from wire.stored import Lazily

__all__ = ["EXCHANGE", "with_public_start"]

EXCHANGE = "public start"
_HASH = (
    "public start"  #: of a broadcast: the hash of the parameters that silos hold and do not train
)
_TOLD = "public start/told"  #: of the state: which silos have them
_KEPT = "public start/"  #: before their names, in a silo's memory
_NOBODY: Arrays = {}


def with_public_start(method: Method, task: Task, silos: int) -> Method:
    """`method`, for silos that hold parameters which public text decided. Where they train all of
    them there are none, and it stays as it is.
    """
    if not task.not_trained():
        return method
    held = _Held(task)

    def init(seed: int) -> State:
        first = method.init(seed)
        return State(first.model, {**first.memory, _TOLD: np.zeros(silos, np.uint8)})

    def lacking(state: State, asked: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(i for i in asked if not state.memory[_TOLD][i])

    def tell(state: State, round: int, asked: tuple[int, ...]) -> Broadcast:
        """Made once for all where all lack it."""
        start, those = task.not_trained(), lacking(state, asked)
        if len(those) == len(asked):
            return Broadcast(start)
        return Broadcast(_NOBODY, dict.fromkeys(those, start))

    def keep(silo: SiloView[Any, Any], heard: Heard) -> Answer:
        start = {**heard.common, **heard.private}
        if not start:
            return Answer()
        held.check(start)
        others = {k: v for k, v in silo.memory.items() if not k.startswith(_KEPT)}
        return Answer(memory={**others, **{_KEPT + k: v for k, v in start.items()}})

    def told(state: State, folded: Folded) -> State:
        has = state.memory[_TOLD].copy()
        has[list(folded.survivors)] = 1
        return State(state.model, {**state.memory, _TOLD: has})

    first = Exchange(
        EXCHANGE,
        (),
        tell,
        keep,
        told,
        everyone=True,
        skip=lambda state, round, asked: not lacking(state, asked),
    )
    return replace(
        method, exchanges=(first, *(_bound(e, held) for e in method.exchanges)), init=init
    )


class _Held:
    """What this process holds of it: a silo's, read from its memory when it is first needed."""

    def __init__(self, task: Task) -> None:
        self._task, self._of, self._hash = task, _NOBODY, ""

    def check(self, start: Arrays) -> None:
        wanted = {k: (v.shape, v.dtype) for k, v in self._task.not_trained().items()}
        if {k: (v.shape, v.dtype) for k, v in start.items()} != wanted:
            raise Contradiction("the public start is of another network")

    def sha256(self) -> str:
        """Of what this task's models begin with; the coordinator's word."""
        if self._of is not self._task.start or not self._hash:
            self._of, self._hash = self._task.start, model_sha256(self._task.not_trained())
        return self._hash

    def use(self, memory: Arrays, named: bytes) -> None:
        """The silo's models begin with what it kept, if that is what the broadcast names."""
        if self.sha256() == named.hex():
            return
        names = [k.removeprefix(_KEPT) for k in memory if k.startswith(_KEPT)]
        kept = {k: memory[_KEPT + k] for k in names}
        if model_sha256(kept) != named.hex():
            raise Contradiction(
                "the round is on a public start that this silo does not have"
                if kept
                else "this silo was not told the public start, or its disk has lost it"
            )
        self._task.start_from(kept)


def _bound(exchange: Exchange, held: _Held) -> Exchange:
    """The exchange, with silos that hold what the broadcast names; its method sees nothing of it.
    One that asks silos outside of the round has no use for the model.
    """

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        said = exchange.broadcast(_without(state), round, cohort)
        if exchange.everyone:
            return said
        name = np.frombuffer(bytes.fromhex(held.sha256()), np.uint8)
        return replace(said, common={**said.common, _HASH: name})

    def answer(silo: SiloView[Any, Any], heard: Heard) -> Answer:
        if not exchange.everyone:
            if _HASH not in heard.common:
                raise Contradiction("the broadcast names no public start")
            held.use(silo.memory, np.asarray(heard.common[_HASH]).tobytes())
        common = Lazily((k for k in heard.common if k != _HASH), heard.common.__getitem__)
        own = Lazily((k for k in silo.memory if not k.startswith(_KEPT)), silo.memory.__getitem__)
        # the method counts its own exchanges, of which this one is none
        certified = {at - 1: silos for at, silos in silo.certified.items() if at}
        seen = replace(silo, memory=own, certified=certified)
        made = exchange.answer(seen, replace(heard, common=common))
        if made.memory is None:
            return made
        kept = {k: silo.memory[k] for k in silo.memory if k.startswith(_KEPT)}
        return replace(made, memory={**kept, **made.memory})

    def fold(state: State, folded: Folded) -> State:
        after = exchange.fold(_without(state), folded)
        return State(after.model, {**after.memory, _TOLD: state.memory[_TOLD]})

    return replace(
        exchange,
        broadcast=broadcast,
        answer=answer,
        fold=fold,
        skip=lambda state, round, asked: exchange.skip(_without(state), round, asked),
    )


def _without(state: State) -> State:
    return State(state.model, {k: v for k, v in state.memory.items() if k != _TOLD})
