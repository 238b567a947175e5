"""The oblivious function: RFC 9497's vectors, vectors of our own, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from crypto.errors import Refusal
from crypto.oprf import committee as oprf
from crypto.oprf import group, voprf
from crypto.oprf.committee import Evaluation, committee_size, elect
from crypto.oprf.peers import Peers

# RFC 9497, appendix A.1.2: VOPRF mode, ristretto255-SHA512
SEED = b"\xa3" * 32
KEY = "e6f73f344b79b379f1a0dd37e07ff62e38d9f71345ce62ae3a9bc60b04ccd909"
PUBLIC = "c803e2cc6b05fc15064549b5920659ca4a77b2cca6f04f6b357009335476ad4e"
INPUTS = (b"\x00", b"\x5a" * 17)
FACTORS = (
    "64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706",
    "222a5e897cf59db8145db8d16e597e8facb80ae7d4e26d9881aa6f61d645fc0e",
)
BATCHES = [
    (
        (0,),
        FACTORS[:1],
        ("863f330cc1a1259ed5a5998a23acfd37fb4351a793a5b3c090b642ddc439b945",),
        ("aa8fa048764d5623868679402ff6108d2521884fa138cd7f9c7669a9a014267e",),
        FACTORS[1],
        "ddef93772692e535d1a53903db24367355cc2cc78de93b3be5a8ffcc6985dd06"
        "6d4346421d17bf5117a2a1ff0fcb2a759f58a539dfbe857a40bce4cf49ec600d",
    ),
    (
        (1,),
        FACTORS[:1],
        ("cc0b2a350101881d8a4cba4c80241d74fb7dcbfde4a61fde2f91443c2bf9ef0c",),
        ("60a59a57208d48aca71e9e850d22674b611f752bed48b36f7a91b372bd7ad468",),
        FACTORS[1],
        "401a0da6264f8cf45bb2f5264bc31e109155600babb3cd4e5af7d181a2c9dc0a"
        "67154fabf031fd936051dec80b0b6ae29c9503493dde7393b722eafdf5a50b02",
    ),
    (
        (0, 1),
        FACTORS,
        (
            "863f330cc1a1259ed5a5998a23acfd37fb4351a793a5b3c090b642ddc439b945",
            "90a0145ea9da29254c3a56be4fe185465ebb3bf2a1801f7124bbbadac751e654",
        ),
        (
            "aa8fa048764d5623868679402ff6108d2521884fa138cd7f9c7669a9a014267e",
            "cc5ac221950a49ceaa73c8db41b82c20372a4c8d63e5dded2db920b7eee36a2a",
        ),
        "419c4f4f5052c53c45f3da494d2b67b220d02118e0857cdbcf037f9ea84bbe0c",
        "cc203910175d786927eeb44ea847328047892ddf8590e723c37205cb74600b0a"
        "5ab5337c8eb4ceae0494c2cf89529dcf94572ed267473d567aeed6ab873dee08",
    ),
]
OUTPUTS = (
    "b58cfbe118e0cb94d79b5fd6a6dafb98764dff49c14e1770b566e42402da1a7d"
    "a4d8527693914139caee5bd03903af43a491351d23b430948dd50cde10d32b3c",
    "8a9a2f3c7f085b65933594309041fc1898d42d0858e59f90814ae90571a6df60"
    "356f4610bf816f27afdd84f47719e480906d27ecd994985890e5f539e7ea74b6",
)
unhex = bytes.fromhex


def test_the_rfcs_key() -> None:
    key = voprf.derive_key(SEED, b"test key")
    assert key.hex() == KEY and group.multiply_base(key).hex() == PUBLIC


@pytest.mark.parametrize(("which", "factors", "blinded", "evaluated", "number", "proof"), BATCHES)
def test_the_rfcs_vectors(
    which: Sequence[int],
    factors: Sequence[str],
    blinded: Sequence[str],
    evaluated: Sequence[str],
    number: str,
    proof: str,
) -> None:
    inputs = [INPUTS[i] for i in which]
    points = [voprf.blinded(x, unhex(f)) for x, f in zip(inputs, factors)]
    assert [p.hex() for p in points] == list(blinded)
    parts = voprf.evaluated(unhex(KEY), points)
    assert [p.hex() for p in parts] == list(evaluated)
    assert voprf.prove(unhex(KEY), points, parts, number=unhex(number)).hex() == proof
    assert voprf.proved(unhex(PUBLIC), points, parts, unhex(proof))
    elements = [voprf.unblinded(p, unhex(f)) for p, f in zip(parts, factors)]
    values = [voprf.finalized(x, e) for x, e in zip(inputs, elements)]
    assert [v.hex() for v in values] == [OUTPUTS[i] for i in which]


def test_a_proof_is_of_this_key_this_batch_and_what_it_is_bound_to() -> None:
    key, other = group.scalar(5), group.scalar(6)
    points = [voprf.blinded(bytes([i]), group.scalar(i + 2)) for i in range(4)]
    parts = voprf.evaluated(key, points)
    public = group.multiply_base(key)
    proof = voprf.prove(key, points, parts, b"this")
    assert voprf.proved(public, points, parts, proof, b"this")
    assert not voprf.proved(public, points, parts, proof, b"that")
    assert not voprf.proved(group.multiply_base(other), points, parts, proof, b"this")
    assert not voprf.proved(public, points, [*parts[:3], points[0]], proof, b"this")
    assert not voprf.proved(public, points[::-1], parts[::-1], proof, b"this")
    assert not voprf.proved(public, points[:3], parts[:3], proof, b"this")
    assert not voprf.proved(public, [], [], proof, b"this")
    for i in (0, 31, 32, 63):
        bad = bytearray(proof)
        bad[i] ^= 1
        assert not voprf.proved(public, points, parts, bytes(bad), b"this")
    more = int.from_bytes(proof[32:], "little") + group.ORDER  # the same number, written otherwise
    same = proof[:32] + more.to_bytes(32, "little")
    assert not voprf.proved(public, points, parts, same, b"this")


@pytest.mark.parametrize("bad", [b"", bytes(32), b"\xff" * 32, b"\x01" + bytes(31), bytes(33)])
def test_what_is_no_point_is_refused(bad: bytes) -> None:
    with pytest.raises(group.BadPoint):
        group.point(bad)


def test_the_identity_is_no_answer() -> None:
    with pytest.raises(group.BadPoint):
        group.multiply(bytes(32), group.BASE)
    assert group.point(group.BASE) == group.BASE
    assert group.add(group.BASE, group.BASE) == group.multiply_base(group.scalar(2))


# The key shared among silos

CONTEXT = "c0c716ee72732067edf3ed452ede590c342ae798e72baf655fc9f3c86f326368"
PART = "3c104f4443afa2d22fb941196389ab6bd68589eb89d1ed23a469b6d1a7381a11"
POINTS = [
    "70162b073c35ef35078bb122222e3d075a18a88f553d1fbe2998e69eaf84d573",
    "567c15768707f3c46e11263699891ae219d75104e05ab136cfe86dfedc2a967d",
]
VALUES = [
    "b890a776732d54ba77975a38ca8ca80125a06e7d975bddbf0af60571b5afaeb6",
    "cd19b697a8df7064e1adabc1f89daa6578685e63f5e0938d9cc3bfdbf91430f5",
]


def peers(silos: int = 4) -> list[Peers]:
    return [Peers.simulated(7, i, silos) for i in range(silos)]


def parts_of(everybody: list[Peers], who: int, inputs: Sequence[bytes]) -> list[Evaluation]:
    committee = elect(range(len(everybody)), len(everybody), 0)
    asked = oprf.request(everybody[who], committee, inputs)
    return [
        Evaluation(
            j,
            *oprf.evaluate(everybody[j], committee, asked, 100),
            *oprf.public_part(everybody[j], committee),
        )
        for j in committee
    ]


def test_vectors_of_our_own() -> None:
    """The identities of a simulation with seed 7, four silos, committee (0, 1): fixed for good."""
    silos = peers()
    asked = oprf.request(silos[2], (0, 1), [b"aspra\x1ftreats\x1ffebra", b"x"])
    values = oprf.finish(
        silos[2],
        (0, 1),
        [b"aspra\x1ftreats\x1ffebra", b"x"],
        parts_of(silos, 2, [b"aspra\x1ftreats\x1ffebra", b"x"]),
    )
    assert silos[0].context.hex() == CONTEXT
    assert oprf.public_part(silos[0], (0, 1))[0].hex() == PART
    assert [p.hex() for p in asked.points] == POINTS
    assert [v.hex() for v in values] == VALUES


def test_every_silo_gets_the_function_under_the_sum_of_the_keys() -> None:
    silos = peers()
    keys = [int.from_bytes(oprf._key(silos[j], (0, 1)), "little") for j in (0, 1)]
    whole = group.scalar(sum(keys))
    expected = voprf.finalized(b"x", voprf.blinded(b"x", whole))[:32]
    for who in range(4):
        assert oprf.finish(silos[who], (0, 1), [b"x"], parts_of(silos, who, [b"x"])) == [expected]


def test_points_tell_nothing_and_are_the_same_when_asked_again() -> None:
    silos = peers()
    one, other = (oprf.request(silos[i], (0, 1), [b"x", b"y"]) for i in (2, 3))
    assert not set(one.points) & set(other.points)
    assert one == oprf.request(silos[2], (0, 1), [b"x", b"y"])
    assert not set(one.points) & set(oprf.request(silos[2], (1, 2), [b"x", b"y"]).points)


def test_an_evaluation_for_another_silo_committee_run_or_holder_is_not_believed() -> None:
    silos, inputs = peers(), [b"x", b"y"]
    good = parts_of(silos, 2, inputs)
    oprf.finish(silos[2], (0, 1), inputs, good)
    for bad in (
        parts_of(silos, 3, inputs),
        [good[0], replace(good[1], points=good[0].points)],
        [good[0], replace(good[1], public=good[0].public, signature=good[0].signature)],
        [good[0], replace(good[1], points=good[1].points[::-1])],
        [good[0], replace(good[1], points=good[1].points[:1])],
        [good[0], replace(good[1], points=(good[1].points[0], bytes(32)))],
        [good[0], replace(good[1], holder=0)],
        good[:1],
        good[::-1],
    ):
        with pytest.raises(Refusal, match="oprf-proof"):
            oprf.finish(silos[2], (0, 1), inputs, bad)
    with pytest.raises(Refusal, match="oprf-proof"):
        oprf.finish(silos[2], (0, 2), inputs, good)
    stranger = Peers.simulated(8, 2, 4)
    with pytest.raises(Refusal, match="oprf-proof"):
        oprf.finish(stranger, (0, 1), inputs, good)


def test_a_proofs_coefficients_hang_on_every_point_of_the_batch() -> None:
    """In the RFC each hangs on its own pair alone, and errors of many pairs can be made to cancel."""
    silo = peers()[0]
    points = [voprf.blinded(bytes([i]), group.scalar(i + 2)) for i in range(3)]

    def first(evaluations: Sequence[bytes], asked: Sequence[bytes] = points) -> bytes:
        """The share that the first pair has in the combination."""
        bound = oprf._bound(silo, (0, 1), (0, 2), asked, evaluations)
        return voprf._composites(group.BASE, points[:1], points[:1], bound)[0]

    assert first(points) == first(list(points))
    assert first(points) != first([points[0], points[1], points[0]])
    assert first(points) != first(points, [points[0], points[1], points[0]])


def test_a_holder_counts_for_each_silo_and_run() -> None:
    silos = peers()
    asked = [oprf.request(silos[2], (0, 1), [b"%d" % i]) for i in range(3)]
    oprf.evaluate(silos[0], (0, 1), asked[0], 2)
    oprf.evaluate(silos[0], (0, 1), asked[0], 2)
    oprf.evaluate(silos[0], (0, 1), asked[1], 2)
    with pytest.raises(Refusal, match="oprf-quota"):
        oprf.evaluate(silos[0], (0, 1), asked[2], 2)
    with pytest.raises(Refusal, match="oprf-quota"):  # under another committee it is counted too
        oprf.evaluate(silos[0], (0, 3), oprf.request(silos[2], (0, 3), [b"z"]), 2)
    oprf.evaluate(silos[0], (0, 1), oprf.request(silos[3], (0, 1), [b"x"]), 2)


def test_what_was_refused_costs_nothing() -> None:
    silos = peers()
    asked = oprf.request(silos[2], (0, 1), [b"x"])
    with pytest.raises(Refusal, match="oprf-request"):
        oprf.evaluate(silos[0], (0, 1), replace(asked, silo=3), 1)
    with pytest.raises(Refusal, match="oprf-request"):
        oprf.evaluate(silos[0], (0, 1), replace(asked, points=()), 1)
    with pytest.raises(Refusal, match="oprf-committee"):
        oprf.evaluate(silos[3], (0, 1), asked, 1)
    oprf.evaluate(silos[0], (0, 1), asked, 1)


@pytest.mark.parametrize(
    ("silos", "size"), [(1, 1), (2, 2), (3, 2), (4, 2), (7, 3), (10, 4), (64, 22)]
)
def test_a_committee_outnumbers_the_corrupt(silos: int, size: int) -> None:
    assert committee_size(silos) == size
    assert len(elect(range(silos), silos, 0)) == size
    assert elect(range(size - 1), silos, 0) == ()


def test_who_is_not_in_a_committee_does_not_change_it() -> None:
    committee = elect(range(10), 10, 1)
    assert committee == (4, 5, 6, 7)
    assert elect([1, 4, 5, 6, 7, 9], 10, 1) == committee
    assert elect([0, 1, 5, 6, 7, 8], 10, 1) == (5, 6, 7, 8)


def test_a_silo_whose_identity_is_not_the_rosters_is_none() -> None:
    one, other = peers()[:2]
    with pytest.raises(ValueError, match="another identity"):
        Peers(0, other._identity, one._identities, lambda: b"", one._journal)
