"""A roster is what everybody in it signed: each way of changing one is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from crypto.identity.card import Card, RosterRefused, make_card
from crypto.identity.keyfile import KeyFileError, PassphraseNeeded
from crypto.identity.keys import Identity
from crypto.identity.roster import Roster, found, parse
from wire.keyring import Keyring, read_card
from wire.keys import CurveKeys

NAMES = ("north", "east", "south")


class World:
    def __init__(self, *names: str) -> None:
        self.keys = {name: (Identity.generate(), CurveKeys.generate()) for name in ("hub", *names)}
        self.roster = found("a consortium", self.card("hub", "coordinator"))
        for name in names:
            self.roster = self.roster.add(self.card(name))

    def card(self, name: str, role: str = "silo") -> Card:
        identity, curve = self.keys[name]
        return make_card(name, role, identity, curve.public.decode())

    def identities(self, *names: str) -> dict[str, Identity]:
        return {name: self.keys[name][0] for name in names}

    def signed(self) -> Roster:
        return self.roster.sign(self.identities("hub", *NAMES))


@pytest.fixture
def world() -> World:
    return World(*NAMES)


def refused(attack: str) -> pytest.RaisesExc[RosterRefused]:
    return pytest.raises(RosterRefused, match=rf"refused \({attack}\)|{attack}")


def test_in_force_when_all_have_signed_and_the_file_is_the_roster(world: World) -> None:
    with refused("unsigned-roster"):
        world.roster.verify()
    partly = world.roster.sign(world.identities("north", "hub"))
    with pytest.raises(RosterRefused, match="east, south did not sign version 1"):
        partly.verify()
    signed = partly.merge(world.roster.sign(world.identities("south"))).merge(
        world.roster.sign(world.identities("east"))
    )
    signed.verify()
    # of three that were made, the first by name
    assert signed.group is not None and signed.group.maker == "east"
    again = parse(signed.to_text().encode())
    assert again == signed and again.digest == world.roster.digest
    again.verify()


def test_the_common_secret_is_the_silos_and_not_the_coordinators(world: World) -> None:
    signed = world.signed()
    secrets = {signed.secret(name, world.keys[name][0]) for name in NAMES}
    assert len(secrets) == 1 and len(secrets.pop()) == 32
    with refused("unknown-silo"):
        signed.secret("hub", world.keys["hub"][0])
    with refused("key-substitution"):
        signed.secret("north", world.keys["hub"][0])
    other = world.roster.sign(world.identities(*NAMES), b"s" * 32)
    assert other.secret("south", world.keys["south"][0]) == b"s" * 32


def _changed(roster: Roster, path: list, value: object) -> Roster:
    table = json.loads(roster.to_text())
    place = table
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return parse(json.dumps(table).encode())


def test_tampering_is_refused_by_name(world: World) -> None:
    signed, ghost = world.signed(), World("ghost")
    for path, value in ((["version"], 2), (["consortium"], "another"), (["revoked"], [])):
        if path != ["revoked"]:
            with refused("tampered-roster"):
                _changed(signed, path, value).check()
    # An invented silo, with all its own signatures in order.
    card = ghost.card("ghost")
    invented = replace(signed, silos=(*signed.silos, card))
    with refused("tampered-roster"):
        replace(invented, signatures={**signed.signatures}, group=None).check()
    with refused("unsigned-roster"):
        replace(invented, signatures={}, group=None).sign(
            {"hub": world.keys["hub"][0], "ghost": ghost.keys["ghost"][0]}
        ).verify()
    # A swapped key: another identity, or another transport key, under a known name.
    posed = make_card("north", "silo", Identity.generate(), CurveKeys.generate().public.decode())
    with refused("tampered-roster"):
        replace(signed, silos=(posed, *signed.silos[1:])).check()
    with refused("key-substitution"):  # the card is signed by its own identity
        replace(
            signed, silos=(replace(signed.silos[0], curve=posed.curve), *signed.silos[1:])
        ).check()
    with refused("sybil-majority"):
        replace(
            signed, silos=(*signed.silos, replace(card, identity=signed.silos[0].identity))
        ).check()
    # The boxes of the common secret, too.
    assert signed.group is not None
    with refused("tampered-roster"):
        replace(
            signed, group=replace(signed.group, boxes={**signed.group.boxes, "north": bytes(80)})
        ).check()
    for text in (
        b"",
        b"[]",
        b"{}",
        signed.to_text().replace('"version": 1', '"version": "1"').encode(),
    ):
        with pytest.raises(RosterRefused):
            parse(text)


def test_a_change_makes_the_next_version_and_revoked_keys_stay_out(world: World) -> None:
    signed = world.signed()
    second = signed.revoke("east", "it left")
    assert (second.version, second.signatures, second.group) == (2, {}, None)
    assert [c.name for c in second.silos] == ["north", "south"] and second.revoked[0].since == 2
    # nobody has signed it yet: it is still being written
    assert second.revoke("south", "too").version == 2
    with refused("revoked-key"):
        second.add(world.card("east"))
    with refused("unknown-silo"):
        second.sign(world.identities("east"))
    third = second.sign(world.identities("hub", "north", "south"))
    third.verify()
    assert third.secret("north", world.keys["north"][0]) != signed.secret(
        "north", world.keys["north"][0]
    )
    with refused("unknown-silo"):
        signed.revoke("west", "")
    with refused("key-substitution"):
        signed.add(world.card("north"))


def test_rotation_needs_the_old_key(world: World) -> None:
    signed = world.signed()
    old, new = world.keys["north"][0], Identity.generate()
    card = make_card("north", "silo", new, CurveKeys.generate().public.decode())
    with refused("key-substitution"):
        signed.rotate(card)
    with refused("key-substitution"):
        signed.rotate(card.succeeding(Identity.generate()))
    rotated = signed.rotate(card.succeeding(old))
    assert rotated.version == 2 and rotated.silos[0].identity == new.public
    assert rotated.revoked[0].identity == old.public
    hub = make_card("hub", "coordinator", Identity.generate(), CurveKeys.generate().public.decode())
    assert signed.rotate(hub.succeeding(world.keys["hub"][0])).coordinator == hub.succeeding(
        world.keys["hub"][0]
    )


# A party's folder


def _consortium(path: Path, passphrase: str = "") -> tuple[dict[str, Keyring], Roster]:
    rings = {"hub": Keyring.create(path / "hub", "hub", "coordinator")}
    rings |= {
        n: Keyring.create(path / n, n, "silo", passphrase if n == "north" else "") for n in NAMES
    }
    roster = found("a consortium", rings["hub"].card)
    for name in NAMES:
        roster = roster.add(read_card(path / name / "keys" / "card.json"))
    return rings, roster


def _signed(rings: dict[str, Keyring], roster: Roster) -> Roster:
    for ring in rings.values():
        roster = ring.sign(roster)
    return roster


def test_a_folder_pins_one_roster_and_no_older_one(tmp_path: Path) -> None:
    rings, roster = _consortium(tmp_path)
    first = _signed(rings, roster)
    north = rings["north"]
    with refused("unsigned-roster"):
        north.pinned()
    north.pin(first)
    assert north.pinned() == first
    with refused("split-view"):  # another content under a version that was signed
        north.sign(replace(first, consortium="another", signatures={}, group=None))
    second = _signed(
        {n: r for n, r in rings.items() if n != "east"}, first.revoke("east", "it left")
    )
    with refused("revoked-key"):
        rings["east"].pin(second)
    north.pin(second)
    with refused("old-roster"):
        north.pin(first)
    with refused("old-roster"):
        north.sign(first)
    # A third version that forgets what the second says is not signed, whoever made it.
    forgetful = replace(first, version=3, signatures={}, group=None)
    with refused("revoked-key"):
        north.sign(forgetful)
    silent = replace(second, version=3, signatures={}, group=None, silos=second.silos[:1])
    with refused("key-substitution"):
        north.sign(silent)
    with refused("tampered-roster"):
        north.sign(replace(second, version=3, signatures={}, group=None, consortium="another"))
    (tmp_path / "north" / "roster.json").write_text(first.to_text())  # a restored backup
    with refused("old-roster"):
        north.pinned()
    (tmp_path / "north" / "roster.json").write_text(second.to_text().replace("it left", "it  left"))
    with refused("tampered-roster"):
        north.pinned()


def test_rotated_keys_come_into_force_with_their_roster(tmp_path: Path) -> None:
    rings, roster = _consortium(tmp_path)
    first = _signed(rings, roster)
    for ring in rings.values():
        ring.pin(first)
    coming = rings["north"].rotate()
    with pytest.raises(KeyFileError, match="new keys already"):
        rings["north"].rotate()
    assert rings["north"].pinned() == first  # until then nothing changes
    second = _signed(rings, first.rotate(coming.card))
    renewed = rings["north"].pin(second)
    assert renewed.identity.public == coming.identity.public and renewed.pinned() == second
    assert (tmp_path / "north" / "retired" / "0" / "identity").exists()
    with refused("key-substitution"):
        rings["north"].pinned()  # the old keys, still in memory
    # cut short between its two renames
    (tmp_path / "north" / "keys").rename(tmp_path / "north" / "next")
    assert Keyring.load(tmp_path / "north").identity.public == coming.identity.public


def test_a_passphrase(tmp_path: Path) -> None:
    Keyring.create(tmp_path / "a", "a", "silo", "open sesame")
    assert Keyring.sealed(tmp_path / "a")
    with pytest.raises(PassphraseNeeded):
        Keyring.load(tmp_path / "a")
    with pytest.raises(KeyFileError, match="does not open with this passphrase"):
        Keyring.load(tmp_path / "a", "wrong")
    ring = Keyring.load(tmp_path / "a", "open sesame")
    assert ring.identity.public == ring.card.identity
    for name in ("identity", "curve"):
        path = tmp_path / "a" / "keys" / name
        assert path.stat().st_mode & 0o777 == 0o600
        assert ring.curve.secret not in path.read_bytes()
    (tmp_path / "a" / "keys" / "curve").unlink()  # one sealed file does not pass for another
    (tmp_path / "a" / "keys" / "curve").write_bytes(
        (tmp_path / "a" / "keys" / "identity").read_bytes()
    )
    (tmp_path / "a" / "keys" / "curve").chmod(0o600)
    with pytest.raises(KeyFileError, match="not a key file of this program"):
        Keyring.load(tmp_path / "a", "open sesame")
    with pytest.raises(KeyFileError, match="never overwritten"):
        Keyring.create(tmp_path / "a", "a", "silo")
