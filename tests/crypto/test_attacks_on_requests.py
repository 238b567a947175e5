"""Too much, or something else, asked of the state machines; over sockets:
tests/system/test_attacks_on_requests.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import crypto.sum.silo
from crypto.derive import Label, digest
from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.numbers.prg import Mask, add_masks
from crypto.sum.records import SumHeader
from crypto.sum.silo_limits import Limits
from crypto.sum.silo_states import SiloState
from tests.crypto.attacks import SIZES, Patch, encoding, refused
from tests.crypto.world import World, plain, vectors


def test_model_inconsistency(monkeypatch: Patch) -> None:
    """A victim that was shown another model: its masks belong to another sum, and nothing adds
    up.
    """
    world = World(4).enrol()
    data = vectors(world.names, SIZES)
    common = world.header(encoding(4))
    special = replace(common, broadcast=digest(Label.CONTEXT, b"a model made for one"))
    victim = world.silos["silo-000"]
    refused("model-inconsistency", lambda: victim.begin(special, common.broadcast, SIZES))

    def play() -> np.ndarray:
        """The coordinator shows each silo a header that fits what it showed, and adds up whatever
        comes.
        """
        total = np.zeros(common.encoding.words, np.uint64)
        for name in world.names:
            shown = special if name == victim.silo else common
            silo = World(4).enrol().silos[name]
            silo.begin(shown, shown.broadcast, SIZES)
            _, frames = silo.upload(data[name])
            total += next(frames)
            # Give the attacker all the self masks for nothing: only the pairwise ones stand in its
            # way.
            add_masks(total, [Mask(seeds[name], -1)])
        return common.encoding.decode(total, 4)[0]

    seeds = {}
    real = crypto.sum.silo.deal

    def spy(h: bytes, name: str, **dealt: Any) -> object:
        seeds[name] = dealt["seeds"][0]
        return real(h, name, **dealt)

    monkeypatch.setattr(crypto.sum.silo, "deal", spy)
    right = plain(common.encoding, data, world.names)[0]
    assert np.abs(play() - right).min() > 0

    monkeypatch.setattr(SumHeader, "h", property(lambda self: digest(Label.CONTEXT, self.sid)))
    assert np.array_equal(play(), right)  # with the broadcast not in h, the split goes unnoticed


def test_undeclared_upload(monkeypatch: Patch) -> None:
    world = World(5).enrol()
    silo = world.silos["silo-000"]
    refused("undeclared-upload", lambda: silo.upload(vectors(world.names, SIZES)["silo-000"]))
    without = world.header(encoding(5), world.names[1:])
    refused("undeclared-upload", lambda: silo.begin(without, without.broadcast, SIZES))
    opened = world.begin(world.header(encoding(5)))
    words = np.zeros(opened.header.encoding.words, np.uint64)
    refused("undeclared-upload", lambda: opened.add_frame("silo-000", 0, words), "silo-000")
    refused("undeclared-upload", lambda: opened.finish_upload("silo-000"), "silo-000")

    monkeypatch.setattr(Limits, "check_alive", lambda *_: None)
    without = world.header(encoding(5), world.names[1:])
    silo.begin(without, without.broadcast, SIZES)
    silo.upload(vectors(world.names, SIZES)["silo-000"])


def header_attacks(world: World) -> list[tuple[str, SumHeader]]:
    e = encoding(4)
    return [
        ("wrong-shape", world.header(replace(e, sizes=(41,)))),
        ("wrong-shape", world.header(Encoding(32, 4, (40, 1), (1.0, 1.0)))),
        ("oversize", world.header(replace(e, sizes=(2**33,)))),
        ("range-widening", world.header(replace(e, ranges=(1e6,)))),
        ("range-widening", world.header(replace(e, lane_bits=16))),
        ("range-widening", world.header(replace(e, parties=3))),
        ("range-widening", world.header(replace(e, parties=5))),  # more than the roster has
        ("weight-hog", world.header(e, weight_cap=1e12)),
        ("weight-hog", world.header(e, weight_cap=0.5)),
        ("weight-hog", world.header(e, weight_cap=float("nan"))),
        ("unknown-silo", world.header(e, alive=("mallory", *world.names))),
        ("unknown-silo", world.header(e, alive=world.names)),
    ]


@pytest.mark.parametrize("index", range(11))
def test_headers_that_ask_too_much(index: int, monkeypatch: Patch) -> None:
    limits = Limits(lane_bits=frozenset({32, 21}))
    world = World(4, limits=limits).enrol()
    attack, header = header_attacks(world)[index]
    if index == 10:
        header = replace(header, alive=(*header.alive, header.alive[0]))  # unsorted, and one twice
    silo = world.silos["silo-000"]
    sizes = (2**33,) if attack == "oversize" else SIZES
    refused(attack, lambda: silo.begin(header, header.broadcast, sizes))
    assert silo.state is SiloState.READY

    monkeypatch.setattr(Limits, "check_header", lambda *_: None)
    monkeypatch.setattr(Limits, "check_headroom", lambda *_: None)
    monkeypatch.setattr(Limits, "check_alive", lambda *_: None)
    silo.begin(header, header.broadcast, sizes)
    assert silo.state is SiloState.OPEN


def test_a_sum_that_is_tried_again_with_fewer_keeps_the_room_it_had() -> None:
    """All of the roster were asked, eight are left: the rest is coded as it was."""
    world = World(10).enrol()
    world.begin(world.header(encoding(10), world.names[:8]))
    assert world.silos["silo-000"].state is SiloState.OPEN


def test_range_caps_of_the_method_come_before_the_silos_default() -> None:
    world = World(4).enrol()
    header = world.header(encoding(4))
    silo = world.silos["silo-000"]
    refused("range-widening", lambda: silo.begin(header, header.broadcast, SIZES, caps=(1.0,)))
    refused("wrong-shape", lambda: silo.begin(header, header.broadcast, SIZES, caps=(9.0, 9.0)))
    silo.begin(header, header.broadcast, SIZES, caps=(2.0,))


def test_wrong_shape_of_an_upload() -> None:
    world = World(4).enrol()
    opened = world.begin(world.header(encoding(4)))
    record, frames = world.silos["silo-000"].upload(vectors(world.names, SIZES)["silo-000"])
    words = next(frames)
    for false in (
        replace(record, commitments=record.commitments[:-1]),
        replace(record, blobs=record.blobs[1:]),
        replace(record, blobs=((record.blobs[0][0], b""), *record.blobs[1:])),
    ):
        refused("wrong-shape", partial(opened.begin_upload, false), "silo-000")
    refused(
        "key-substitution",
        lambda: opened.begin_upload(replace(record, signature=bytes(64))),
        "silo-000",
    )
    refused("unknown-silo", lambda: opened.begin_upload(replace(record, silo="mallory")), "mallory")
    opened.begin_upload(record)
    refused("wrong-shape", lambda: opened.finish_upload("silo-000"), "silo-000")
    refused("wrong-shape", lambda: opened.add_frame("silo-000", 1, words), "silo-000")
    refused("wrong-shape", lambda: opened.add_frame("silo-000", 0, words[:-1]), "silo-000")
    refused(
        "wrong-shape", lambda: opened.add_frame("silo-000", 0, words.view(np.int64)), "silo-000"
    )
    opened.add_frame("silo-000", 0, words)
    refused("wrong-shape", lambda: opened.add_frame("silo-000", 1, words), "silo-000")


def test_refusals_have_names() -> None:
    with pytest.raises(ValueError):
        Refusal("no such attack", "x")
