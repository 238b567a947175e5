"""The coordinator's half of naming bags (methods.common.bag_names): who holds the key, who has asked,
what is owed to whom. It relays points that tell it nothing.

Its notes are arrays of `State.memory`, so that a run goes on after a crash. If a holder is gone for
good and somebody lacks names, another committee is elected and everybody asks anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crypto.oprf.committee import committee_size, elect
from methods.base import Arrays, Broadcast, Folded, State

__all__ = ["Relay"]

_MINE = "naming/"
_NOBODY = np.zeros(0, np.int32)


@dataclass(frozen=True)
class Relay:
    silos: int
    first: int  #: the first round that needs names

    def committee(self, state: State, present: Sequence[int]) -> tuple[int, ...]:
        """The one there is, if all of it is here; else another, under which everybody asks anew."""
        now = tuple(map(int, state.memory.get(_MINE + "committee", _NOBODY)))
        if now and set(now) <= set(present):
            return now
        return elect(present, self.silos, int(state.memory.get(_MINE + "turn", [0])[0]))

    def all_named(self, state: State, round: int, present: tuple[int, ...]) -> bool:
        if round < self.first or len(present) < committee_size(self.silos):
            return True
        return set(present) <= self._served(state)

    def say_committee(self, state: State, round: int, present: tuple[int, ...]) -> Broadcast:
        """Who holds the key, and who need not ask. What a silo still has from a round that was begun
        again does not count: what holds is in these notes alone.
        """
        committee = self.committee(state, present)
        same = committee == tuple(map(int, state.memory.get(_MINE + "committee", _NOBODY)))
        served = sorted(self._served(state)) if same else []
        return Broadcast(
            {"committee": np.array(committee, np.int32), "named": np.array(served, np.int32)}
        )

    def _served(self, state: State) -> set[int]:
        """Who has its names, or is owed them."""
        return {*map(int, state.memory.get(_MINE + "named", _NOBODY)), *_silos(state, "parts")}

    def take_questions(self, state: State, folded: Folded) -> State:
        committee = self.committee(state, folded.survivors)
        same = committee == tuple(map(int, state.memory.get(_MINE + "committee", _NOBODY)))
        notes = {k: v for k, v in state.memory.items() if same or not k.startswith(_MINE)}
        turn = int(state.memory.get(_MINE + "turn", [0])[0])
        notes[_MINE + "turn"] = np.array([turn if same else turn + 1], np.int32)
        notes[_MINE + "committee"] = np.array(committee, np.int32)
        named = set(map(int, notes.get(_MINE + "named", _NOBODY)))
        for silo, sent in folded.sealed.items():
            # under a committee that was lost while it was asked
            if tuple(map(int, sent["points/committee"])) != committee:
                continue
            if not len(sent["points/blinded"]):  # it has names, or no bags, or wants no more
                named.add(silo)
            elif len(sent["points/signature"]) == 1:
                notes[f"{_MINE}blinded/{silo}"] = sent["points/blinded"]
                notes[f"{_MINE}signature/{silo}"] = sent["points/signature"]
        notes[_MINE + "named"] = np.array(sorted(named), np.int32)
        return State(state.model, notes)

    def pass_questions(self, state: State, round: int, present: tuple[int, ...]) -> Broadcast:
        """All questions, to the holders of the key."""
        silos, notes = _silos(state, "blinded"), state.memory
        if not silos:
            return Broadcast({})
        points = [notes[f"{_MINE}blinded/{s}"] for s in silos]
        asked = {
            "committee": notes[_MINE + "committee"],
            "silos": np.array(silos, np.int32),
            "counts": np.array([len(p) for p in points], np.int32),
            "points": np.concatenate(points),
            "signatures": np.concatenate([notes[f"{_MINE}signature/{s}"] for s in silos]),
        }
        holders = set(map(int, notes[_MINE + "committee"]))
        return Broadcast({}, {s: asked for s in present if s in holders})

    def take_parts(self, state: State, folded: Folded) -> State:
        """Per silo that asked: the parts of all holders. If one is missing, it asks again later."""
        silos, committee = (
            _silos(state, "blinded"),
            list(map(int, state.memory[_MINE + "committee"])),
        )
        starts = np.cumsum([0, *(len(state.memory[f"{_MINE}blinded/{s}"]) for s in silos)])
        notes = {
            k: v
            for k, v in state.memory.items()
            if not k.startswith((_MINE + "blinded/", _MINE + "signature/"))
        }
        said = [folded.sealed[h] for h in committee if h in folded.sealed]
        whole = len(said) == len(committee) and all(
            len(s["parts/evaluated"]) == starts[-1]
            and len(s["parts/proofs"]) == len(silos)
            and len(s["parts/key"]) == len(s["parts/signature"]) == 1
            for s in said
        )
        for k, silo in enumerate(silos if whole else ()):
            proofs = np.stack([s["parts/proofs"][k] for s in said])
            if not proofs.any(axis=1).all():  # a holder refused this silo's question
                continue
            part = [s["parts/evaluated"][starts[k] : starts[k + 1]] for s in said]
            notes[f"{_MINE}parts/{silo}"] = np.stack(part)
            notes[f"{_MINE}proofs/{silo}"] = proofs
        if whole:
            for name in ("key", "signature"):
                notes[f"{_MINE}holders/{name}"] = np.concatenate([s[f"parts/{name}"] for s in said])
        return State(state.model, notes)

    def replies(self, state: State, cohort: Sequence[int]) -> dict[int, Arrays]:
        """For a broadcast to each silo alone: under which committee it has names, and what is owed to
        it.
        """
        notes, owed = state.memory, set(_silos(state, "parts"))
        out: dict[int, Arrays] = {}
        for s in sorted(self._served(state) & set(cohort)):
            out[s] = {"names/committee": notes[_MINE + "committee"]}
            if s in owed:
                out[s] = {
                    **out[s],
                    "names/parts": notes[f"{_MINE}parts/{s}"],
                    "names/proofs": notes[f"{_MINE}proofs/{s}"],
                    "names/keys": notes[_MINE + "holders/key"],
                    "names/signatures": notes[_MINE + "holders/signature"],
                }
        return out

    def replied(self, state: State, survivors: Sequence[int]) -> dict[str, np.ndarray]:
        """The coordinator's notes after these silos had their replies: to be kept with whatever else
        the method keeps.
        """
        notes = {k: v for k, v in state.memory.items() if k.startswith(_MINE)}
        named = set(map(int, notes.get(_MINE + "named", _NOBODY)))
        for s in set(_silos(state, "parts")) & set(survivors):
            named.add(s)
            del notes[f"{_MINE}parts/{s}"], notes[f"{_MINE}proofs/{s}"]
        if notes:
            notes[_MINE + "named"] = np.array(sorted(named), np.int32)
        return notes

    def nobody_asked(self, state: State, round: int, present: tuple[int, ...]) -> bool:
        return not _silos(state, "blinded")


def _silos(state: State, what: str) -> list[int]:
    """The silos of which there is such a note."""
    start = f"{_MINE}{what}/"
    return sorted(int(k.removeprefix(start)) for k in state.memory if k.startswith(start))
