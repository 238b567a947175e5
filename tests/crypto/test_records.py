"""Records survive the wire; anything else that comes from it is refused and crashes nothing."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.sum import records
from tests.crypto.world import World, vectors

KINDS = (
    "KeyOffer", "KeyList", "NonceReveal", "NonceList", "SumHeader", "UploadRecord", "Proposal", "Endorsement",
    "UnmaskRequest", "ShareRelease",
)  # fmt: skip


def everything() -> dict[str, Any]:
    """One record of every kind, out of a real sum with a dropped silo."""
    world = World(5)
    offers = {name: silo.offer() for name, silo in world.silos.items()}
    for offer in offers.values():
        world.setup.receive_offer(offer)
    keys = world.setup.key_list()
    reveals = {name: silo.receive_keys(keys) for name, silo in world.silos.items()}
    for reveal in reveals.values():
        world.setup.receive_reveal(reveal)
    nonces = world.setup.nonce_list()
    for silo in world.silos.values():
        silo.receive_nonces(nonces)
    header = world.header(Encoding(21, 5, (3,), (1.0,)))
    opened = world.begin(header)
    data = vectors(world.names, (3,))
    record, frames = world.silos["silo-000"].upload(data["silo-000"])
    opened.begin_upload(record)
    opened.add_frame("silo-000", 0, next(frames))
    opened.finish_upload("silo-000")
    for name in world.names[1:4]:
        world.upload(opened, name, data[name])
    proposals = opened.propose()
    signed = [world.silos[name].endorse(proposal) for name, proposal in proposals.items()]
    for endorsement in signed:
        opened.receive_endorsement(endorsement)
    request = opened.unmask_requests()["silo-001"]
    release = world.silos["silo-001"].release(request)
    assert release.pair_shares
    setup = (offers["silo-000"], keys, reveals["silo-000"], nonces)
    made = (*setup, header, record, proposals["silo-001"], signed[0], request, release)
    return dict(zip(KINDS, made, strict=True))


MADE = everything()


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_through_msgpack(kind: str) -> None:
    record = MADE[kind]
    wire = msgpack.packb(record.to_record())
    back = type(record).from_record(msgpack.unpackb(wire))
    assert back == record
    if kind == "SumHeader":
        assert back.h == record.h


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=70),
    st.binary(max_size=40),
    st.lists(st.one_of(st.integers(), st.binary(max_size=33), st.text(max_size=3)), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_field_of_junk_is_refused_or_harmless(kind: str, data: st.DataObject) -> None:
    record = MADE[kind].to_record()
    field = data.draw(st.sampled_from(sorted(record)))
    junk = data.draw(JUNK)
    try:
        back = type(MADE[kind]).from_record(record | {field: junk})
    except Refusal as refusal:
        assert refusal.attack in ("wrong-shape", "oversize")
    else:
        assert back.to_record()[field] == junk  # it was a value such a field may have


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", [None, 3, [], {}, b"x", "x"])
def test_no_record_at_all(kind: str, junk: object) -> None:
    with pytest.raises(Refusal):
        type(MADE[kind]).from_record(junk)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_or_extra_field(kind: str) -> None:
    record = MADE[kind].to_record()
    with pytest.raises(Refusal):
        type(MADE[kind]).from_record(record | {"extra": 1})
    for field in record:
        with pytest.raises(Refusal):
            type(MADE[kind]).from_record(
                {name: value for name, value in record.items() if name != field}
            )


def test_lists_without_end_are_refused() -> None:
    release = MADE["ShareRelease"].to_record()
    with pytest.raises(Refusal) as caught:
        records.ShareRelease.from_record(release | {"self_shares": [["s", bytes(17)]] * 5000})
    assert caught.value.attack == "oversize"
    upload = MADE["UploadRecord"].to_record()
    with pytest.raises(Refusal) as caught:
        records.UploadRecord.from_record(upload | {"blobs": [["silo-001", bytes(2**20)]]})
    assert caught.value.attack == "oversize"


@pytest.mark.parametrize("names", [["b", "a"], ["a", "a"], [""], ["x" * 65], ["é"], ["a\n"], [3]])
def test_lists_of_names(names: list) -> None:
    with pytest.raises(Refusal):
        records.Proposal.from_record({"h": bytes(32), "survivors": names})


def test_every_field_of_a_header_is_in_h() -> None:
    from dataclasses import fields, replace

    header = MADE["SumHeader"]
    e = header.encoding
    changes: dict[str, Any] = {
        "sid": bytes(32), "round": 1, "exchange": "other", "number": 99, "broadcast": bytes(32),
        "alive": header.alive[:-1], "weight_cap": 2.0, "encoding": replace(e, rotate=True),
        "contributors": 3,
    }  # fmt: skip
    assert set(changes) == {field.name for field in fields(header)}
    inner: dict[str, Any] = {
        "lane_bits": 16, "parties": 6, "sizes": (4,), "ranges": (2.0,), "rounding": "stochastic", "rotate": True,
    }  # fmt: skip
    assert set(inner) == {field.name for field in fields(e)}
    hashes = {header.h}
    hashes |= {replace(header, **{name: value}).h for name, value in changes.items()}
    hashes |= {
        replace(header, encoding=replace(e, **{name: value})).h for name, value in inner.items()
    }
    assert len(hashes) == 1 + len(changes) + len(inner) - 1  # rotate stands in both lists


def test_words_of_another_byte_order_are_not_words() -> None:
    with pytest.raises(ValueError):
        Encoding(32, 3, (4,), (1.0,)).decode(np.zeros(2, ">u8"), 1)
