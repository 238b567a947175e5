"""What attacks on the state machines have in common: a sum taken as far as the attack begins, and
what is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import crypto.sum.silo
from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.numbers.prg import Mask, add_masks
from crypto.numbers.shamir import rebuild
from crypto.sum.coordinator import OpenSum
from crypto.sum.opening import Opening
from crypto.sum.records import Endorsement, KeyList, Proposal, UnmaskRequest
from crypto.sum.silo_states import TRANSITIONS, Call, SiloState
from tests.crypto.world import World, vectors

SIZES = (40,)
Patch = pytest.MonkeyPatch


def encoding(n: int) -> Encoding:
    return Encoding(32, n, SIZES, (2.0,))


def refused(attack: str, act: Callable[[], object], culprit: str | None = None) -> None:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.attack == attack, caught.value
    assert str(caught.value).startswith(f"refused ({attack}): ")
    if culprit is not None:
        assert caught.value.culprit == culprit


def allow(patch: Patch, *more: tuple[SiloState, Call, SiloState]) -> None:
    """Take a row of the transition table away from the defence."""
    table = dict(TRANSITIONS) | {(state, call): after for state, call, after in more}
    patch.setattr(crypto.sum.silo, "TRANSITIONS", table)


def until_keys(n: int = 4) -> tuple[World, KeyList]:
    world = World(n)
    for silo in world.silos.values():
        world.setup.receive_offer(silo.offer())
    return world, world.setup.key_list()


def run_to_proposal(
    world: World,
) -> tuple[OpenSum, dict[str, list[np.ndarray]], dict[str, np.ndarray]]:
    """Everybody has uploaded; the coordinator kept a copy of each masked vector."""
    data = vectors(world.names, SIZES)
    opened = world.begin(world.header(encoding(len(world.names))))
    kept = {}
    for name in world.names:
        record, frames = world.silos[name].upload(data[name])
        opened.begin_upload(record)
        words = next(frames)
        kept[name] = words.copy()
        opened.add_frame(name, 0, words)
        opened.finish_upload(name)
    return opened, data, kept


def certificate(
    world: World, opened: OpenSum, survivors: tuple[str, ...], signers: tuple[str, ...]
) -> tuple[Endorsement, ...]:
    h = opened.header.h
    among = [name for name in signers if name in survivors]  # nobody else signs
    return tuple(
        world.silos[name].endorse(Proposal(h, survivors, dealt(opened, name, survivors)))
        for name in among
    )


def dealt(
    opened: OpenSum, holder: str, survivors: tuple[str, ...]
) -> tuple[tuple[str, bytes], ...]:
    """The survivors' blobs that are addressed to a holder."""
    return tuple(
        (dealer, blob)
        for dealer in survivors
        for to, blob in opened._records[dealer].blobs
        if to == holder
    )


def gather(world: World, opened: OpenSum, survivors: tuple[str, ...]) -> Opening:
    """What a coordinator does with a survivor set of its own choosing, once the silos go along with
    it.
    """
    h = opened.header.h
    signed = certificate(world, opened, survivors, opened.topology.holders)
    got = Opening(h, opened.topology, survivors, opened._records)
    for holder in set(opened.topology.holders) & set(survivors):
        got.receive(world.silos[holder].release(UnmaskRequest(h, survivors, signed, ())))
    return got


def seed_of(got: Opening, key: tuple[str, str | None]) -> bytes:
    shares = dict(list(got._shares[key].items())[: got._threshold])
    (seed,) = rebuild({point: [share] for point, share in shares.items()})
    assert seed is not None
    return seed


def strip(words: np.ndarray, masks: list[tuple[bytes, int]]) -> np.ndarray:
    bare = words.copy()
    add_masks(bare, [Mask(seed, -sign) for seed, sign in masks])
    return bare


def released(world: World) -> tuple[OpenSum, dict, dict]:
    opened, data, _ = run_to_proposal(world)
    proposals = opened.propose()
    for name in world.names:
        opened.receive_endorsement(world.silos[name].endorse(proposals[name]))
    return opened, data, {n: world.silos[n].release(r) for n, r in opened.unmask_requests().items()}
