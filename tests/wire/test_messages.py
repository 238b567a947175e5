"""Nothing that arrives can be anything but a message or a BadMessage."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wire import messages as m
from wire.bundle import Inbox, pack, pieces
from wire.counter import wire_size

EXAMPLES = [
    m.Hello("0.1.0", b"x" * 32),
    m.Welcome(b"r" * 32, 3),
    m.SumStep("offer", {"silo": "silo-000", "public": b"k"}),
    m.Broadcast(
        number=1,
        round=0,
        exchange=0,
        cohort=[0, 1],
        common=[["a", "<f4", [2]]],
        private=[],
        header={},
        encoding={},
    ),
    m.Chunk(1, "masked", 0),
    m.Go(1),
    m.Ready(1),
    m.Send(1),
    m.SealedStart(1, []),
    m.SumStart(1, {}),
    m.Closed(1, True),
    m.RoundOver(2),
    m.Refused(1, "replay", "a go message while idle"),
    m.Stop("over"),
    m.Ping(),
    m.Probe("0.1.0"),
    m.Probed(1_700_000_000_000, "0.1.0"),
]


def test_every_kind_has_an_example() -> None:
    assert {type(e) for e in EXAMPLES} == set(m.Message.__subclasses__())


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda e: e.kind)
def test_round_trip(message: m.Message) -> None:
    assert m.decode(m.encode(message)) == message


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(m.BadMessage):
        m.decode(data)


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_field_of_another_type_is_refused(message: m.Message, data: st.DataObject) -> None:
    body = msgpack.unpackb(m.encode(message))
    if len(body) == 1:
        return
    at = data.draw(st.integers(1, len(body) - 1))
    other = data.draw(
        st.one_of(
            st.none(), st.integers(), st.text(), st.binary(), st.booleans(), st.lists(st.integers())
        )
    )
    wrong = type(other) is not type(body[at]) or (type(other) is int and not 0 <= other < 1 << 63)
    body[at] = other
    try:
        packed = msgpack.packb(body)
    except OverflowError:
        return
    if wrong:
        with pytest.raises(m.BadMessage):
            m.decode(packed)
    else:
        assert m.decode(packed).kind == message.kind


def test_too_many_fields_and_oversize_headers_are_refused() -> None:
    with pytest.raises(m.BadMessage, match="2 fields instead of 1"):
        m.decode(msgpack.packb(["go", 1, 2]))
    with pytest.raises(m.BadMessage, match="over the limit"):
        m.decode(b"\xc0" * (m.HEADER_BYTES + 1))
    with pytest.raises(m.BadMessage, match="over the limit"):
        m.encode(m.Stop("x" * m.HEADER_BYTES))


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        hnp.arrays(
            st.sampled_from([np.float32, np.uint8, np.int64, np.uint16]),
            hnp.array_shapes(min_side=0, max_side=5),
        ),
        max_size=4,
    )
)
def test_bundles_come_back_as_they_went(arrays: dict[str, np.ndarray]) -> None:
    bundle = pack(arrays)
    inbox = Inbox(bundle.layout, limit=1 << 20)
    for i, piece in enumerate(pieces(bundle.buffer)):
        inbox.add(i, piece)
    back = inbox.arrays()
    assert inbox.complete and list(back) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    assert inbox.bundle().digest == bundle.digest


_JUNK = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=4) | st.booleans() | st.just("<f4"),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(st.lists(_JUNK, max_size=4) | st.lists(st.tuples(_JUNK, _JUNK, _JUNK).map(list), max_size=3))
def test_bad_field_no_layout_ends_the_process(layout: list) -> None:
    """A type that was a list could not be looked up, and the TypeError ended whoever received it."""
    try:
        Inbox(layout, limit=1 << 16)
    except m.BadMessage:
        pass
    with pytest.raises(m.BadMessage, match="unknown type"):
        Inbox([["a", [], [1]]], limit=1 << 16)


def test_a_bundle_over_several_frames_and_pieces_out_of_order() -> None:
    big = np.arange(700_000, dtype=np.float32)  # 2.8 MB: three frames
    bundle = pack({"big": big})
    parts = list(pieces(bundle.buffer))
    assert [len(p) for p in parts] == [
        m.FRAME_BYTES,
        m.FRAME_BYTES,
        len(bundle.buffer) - 2 * m.FRAME_BYTES,
    ]
    inbox = Inbox(bundle.layout, limit=1 << 22)
    with pytest.raises(m.BadMessage):
        inbox.add(1, parts[1])
    inbox.add(0, parts[0])
    with pytest.raises(m.BadMessage):
        inbox.add(0, parts[0])
    with pytest.raises(m.BadMessage):
        inbox.add(1, parts[1][:-1])
    inbox.add(1, parts[1])
    inbox.add(2, parts[2])
    np.testing.assert_array_equal(inbox.arrays()["big"], big)
    with pytest.raises(m.BadMessage):
        inbox.add(3, b"")


def test_the_digest_notices_names_shapes_and_values() -> None:
    a = np.arange(6, dtype=np.float32)
    digests = {
        pack(x).digest
        for x in (
            {"a": a},
            {"b": a},
            {"a": a.reshape(2, 3)},
            {"a": a + 1},
            {"a": a.view(np.uint32)},
            {"a": a, "b": a},
        )
    }
    assert len(digests) == 6


@pytest.mark.parametrize(
    "layout",
    [
        [["a", "|O", [1]]],
        [["a", "<f4", [-1]]],
        [["a", "<f4", [1 << 40]]],
        [["a", "<f4", [1 << 12, 1 << 12, 1 << 12]]],
        [["a", "<f4", "3"]],
        [["a", "<f4", [1]], ["a", "<f4", [1]]],
        [[1, "<f4", [1]]],
        ["a"],
        [["a", "<f4", [1] * 9]],
        [["a", "<f4", [1]]] * 5000,
    ],
)
def test_impossible_announcements_are_refused_before_memory_is_taken(layout: list) -> None:
    with pytest.raises(m.BadMessage):
        Inbox(layout, limit=1 << 20)


def test_objects_do_not_travel() -> None:
    with pytest.raises(TypeError):
        pack({"a": np.array([object()])})


def test_wire_size_by_hand() -> None:
    # CURVE MESSAGE: "\x07MESSAGE" 8 + nonce 8 + box 16 + flags 1 = 33; ZMTP length 1+1, or 1+8
    # above 255.
    assert wire_size(0) == 35
    assert wire_size(222) == 222 + 33 + 2
    assert wire_size(223) == 223 + 33 + 9
    assert wire_size(1 << 20) == (1 << 20) + 42
