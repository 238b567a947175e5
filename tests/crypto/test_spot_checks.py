"""Of a large session a silo checks some signatures itself, and every one whose key it uses."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import comb

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from crypto.derive import Label, digest
from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.sum.params import Policy, most_corrupt
from crypto.sum.records import KeyList, KeyOffer, NonceList, NonceReveal, SumHeader
from crypto.sum.spot_checks import drawn, spot_checks
from tests.crypto.world import BROADCAST, World


@pytest.mark.parametrize("members", [257, 400, 1000, 3000])
def test_so_few_are_enough(members: int) -> None:
    """By exact counting: the draws that a forged list would have to pass."""
    policy = Policy()
    k, m, others = spot_checks(members, members, policy), most_corrupt(members), members - 1
    assert k < others / 2
    # the largest number of true signers that would still be found out
    signers = max(g for g in range(others) if comb(g, k) * 2**policy.security <= comb(others, k))
    honest = signers + 1 - m
    assert honest > 0
    escapes = (1 - k / others) ** honest * members
    assert escapes <= 2.0**-policy.security
    fewer = k - 1  # and with one fewer, our bound does not hold
    signed = others * 2.0 ** (-policy.security / fewer)
    assert (1 - fewer / others) ** (signed - m) * members > 2.0**-policy.security * 0.5


@pytest.mark.parametrize("members, roster", [(257, 257), (600, 1000), (1000, 1000)])
def test_the_best_that_a_coordinator_can_do(members: int, roster: int) -> None:
    """It forges some offers and shows the list to some of the honest, all of whom must miss them.
    Then one silo must draw no reveal of somebody who did not sign: the forged, and those who were
    not shown this list. By counting draws, for every such choice.
    """
    k, m, others = spot_checks(members, roster, Policy()), most_corrupt(roster), members - 1
    ways = comb(others, k)
    for forged in (1, 2, 5, 20):
        honest = members - m - forged
        one_misses = Fraction(comb(others - forged, k), ways)
        all_miss = one_misses
        for shown in range(1, honest + 1):
            unsigned = forged + honest - shown
            last = Fraction(comb(others - unsigned, k), ways)
            assert float(all_miss) * float(last) <= 2.0**-86
            all_miss *= one_misses


def test_small_sessions_are_checked_in_full_and_so_are_those_with_too_few_honest() -> None:
    assert [spot_checks(n, n, Policy()) for n in (3, 100, 256)] == [2, 99, 255]
    assert spot_checks(334, 1000, Policy()) == 333  # 333 of the roster may be corrupt


def test_draws_are_not_foreseeable_and_hold_the_silo_itself() -> None:
    names = [f"silo-{i:03d}" for i in range(400)]
    draws = {frozenset(drawn(names, "silo-007", 400, Policy())) for _ in range(5)}
    assert len(draws) == 5
    k = spot_checks(400, 400, Policy())
    assert all("silo-007" in d and len(d) == k + 1 for d in draws)


def test_a_silo_that_the_coordinator_plays_is_refused_by_whoever_would_use_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every silo draws nobody: the forged key passes setup, and still no sum begins with it. One
    draw of it would have refused the whole list.
    """
    monkeypatch.setattr("crypto.sum.spot_checks.spot_checks", lambda *_: 0)
    world, played = World(8), "silo-003"
    offers = {name: silo.offer() for name, silo in world.silos.items()}
    nonce = b"n" * 32
    commitment = digest(Label.NONCE, played.encode(), nonce)
    key = X25519PrivateKey.generate().public_key().public_bytes_raw()
    offers[played] = KeyOffer(played, key, commitment, bytes(64))
    keys = KeyList(tuple(offers[name] for name in sorted(offers)))
    honest = [silo for name, silo in world.silos.items() if name != played]
    reveals = {silo.silo: silo.receive_keys(keys) for silo in honest}
    reveals[played] = NonceReveal(played, nonce, bytes(64))
    nonces = NonceList(tuple(reveals[name] for name in sorted(reveals)))
    for silo in honest:
        silo.receive_nonces(nonces)
    victim, encoding = honest[0], Encoding(32, 8, (4,), (1.0,))
    assert victim.sid is not None

    def begin(number: int, alive: tuple[str, ...]) -> None:
        header = SumHeader(
            sid=victim.sid or b"",
            round=0,
            exchange="train",
            number=number,
            broadcast=BROADCAST,
            alive=alive,
            encoding=encoding,
            weight_cap=1.0,
        )
        victim.begin(header, BROADCAST, encoding.sizes)

    with pytest.raises(Refusal, match="silo-003 is not signed by its identity") as refused:
        begin(1, world.names)
    assert refused.value.attack == "key-substitution"
    begin(2, tuple(n for n in world.names if n != played))  # among the others, it may

    monkeypatch.setattr("crypto.sum.spot_checks.spot_checks", lambda *_: 7)
    other = World(8).silos["silo-005"]
    mine = other.offer()
    with pytest.raises(Refusal, match="not signed"):
        other.receive_keys(KeyList(tuple(mine if o.silo == mine.silo else o for o in keys.offers)))


def test_a_reveal_that_is_drawn_must_be_of_this_session(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(5)
    for silo in world.silos.values():
        world.setup.receive_offer(silo.offer())
    keys = world.setup.key_list()
    reveals = [silo.receive_keys(keys) for silo in world.silos.values()]
    split = NonceList((*reveals[:4], replace(reveals[4], signature=bytes(64))))
    with pytest.raises(Refusal, match="did not sign"):
        world.silos["silo-000"].receive_nonces(split)
    wrong = NonceList((*reveals[:4], replace(reveals[4], nonce=bytes(32))))
    monkeypatch.setattr("crypto.sum.spot_checks.spot_checks", lambda *_: 0)
    with pytest.raises(Refusal, match="another nonce"):  # without dice: of everybody
        world.silos["silo-000"].receive_nonces(wrong)
