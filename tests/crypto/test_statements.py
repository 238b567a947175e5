"""Statements of one silo to the others: one purpose, one silo, one content each."""

from __future__ import annotations

from crypto.identity.keys import Identity
from crypto.identity.statements import SIGNATURE_BYTES, Signer, simulated_signer


def _three() -> dict[str, Signer]:
    identities = {name: Identity.generate() for name in ("a", "b", "c")}
    roster = {name: identity.public for name, identity in identities.items()}
    return {name: Signer(name, identity, roster) for name, identity in identities.items()}


def test_a_statement_is_its_silos_own_and_serves_nothing_else() -> None:
    silos = _three()
    signed = silos["a"].sign("similarities", b"data")
    assert len(signed) == SIGNATURE_BYTES
    check = silos["b"].verify
    assert check("a", "similarities", b"data", signed)
    assert not check("b", "similarities", b"data", signed)
    assert not check("a", "names", b"data", signed)
    assert not check("a", "similarities", b"dat", signed)
    assert not check("a", "similaritie", b"sdata", signed)
    assert not check("a", "similarities", b"data", signed[:-1])
    assert not check("a", "similarities", b"data", b"")
    assert not check("stranger", "similarities", b"data", signed)
    # another consortium's silo of the same name
    assert not _three()["b"].verify("a", "similarities", b"data", signed)


def test_a_simulations_signatures_come_from_its_seed() -> None:
    names = ("silo-000", "silo-001")
    one, other = (simulated_signer(7, name, names) for name in names)
    signed = one.sign("x", b"y")
    assert signed == simulated_signer(7, "silo-000", names).sign("x", b"y")
    assert other.verify("silo-000", "x", b"y", signed)
    assert not simulated_signer(8, "silo-001", names).verify("silo-000", "x", b"y", signed)
