"""The roster: who belongs to a consortium, by public key, signed by every one of them.

A version is in force when the coordinator and every silo in it have signed that very content, and a
party signs one content per version. So nobody alone, the coordinator least of all, can invent a
silo, swap a key or show two halves of the consortium two rosters. Whoever is revoked need not sign,
and a revoked key never comes back.

A version that anybody has signed never changes: every change makes the next version, which starts
without signatures.

The silos' common secret travels in it, sealed to each silo's own key: the first silo to sign makes
it. It belongs to one version: a silo that was revoked does not know the next one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crypto.derive import Label, digest, number
from crypto.identity.card import Card, RosterRefused, fingerprint, hexadecimal, only
from crypto.identity.group import SECRET_BYTES, Group
from crypto.identity.keys import Identity, verify

__all__ = ["Revoked", "Roster", "RosterRefused", "found", "parse"]

_FORMAT = 1
_MOST_BYTES = 8 << 20
_MOST_TEXT = 120


@dataclass(frozen=True)
class Revoked:
    name: str
    identity: bytes
    curve: str
    since: int  #: the first version without it
    why: str


@dataclass(frozen=True)
class Roster:
    consortium: str
    version: int
    coordinator: Card
    silos: tuple[Card, ...] = ()  #: in order of enrolment, which numbers them in a run
    revoked: tuple[Revoked, ...] = ()
    signatures: Mapping[str, bytes] = field(default_factory=dict)
    group: Group | None = None

    # Reading

    @property
    def cards(self) -> tuple[Card, ...]:
        return (self.coordinator, *self.silos)

    def card(self, name: str) -> Card | None:
        return next((c for c in self.cards if c.name == name), None)

    @property
    def digest(self) -> bytes:
        body = json.dumps(self._body(), sort_keys=True, separators=(",", ":")).encode()
        return digest(Label.ROSTER, number(_FORMAT), body)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.digest)

    @property
    def unsigned(self) -> tuple[str, ...]:
        """Who has still to sign this version."""
        return tuple(c.name for c in self.cards if c.name not in self.signatures)

    def _body(self) -> dict[str, Any]:
        return {
            "consortium": self.consortium,
            "version": self.version,
            "coordinator": self.coordinator.to_record(),
            "silos": [c.to_record() for c in self.silos],
            "revoked": [{**vars(r), "identity": r.identity.hex()} for r in self.revoked],
        }

    def to_text(self) -> str:
        record = {"sottovoce-roster": _FORMAT, **self._body()}
        record["signatures"] = {name: s.hex() for name, s in sorted(self.signatures.items())}
        if self.group is not None:
            record["group"] = self.group.to_record()
        return json.dumps(record, indent=1) + "\n"

    def check(self) -> None:
        """Everything but whether all have signed: each card, each signature there is, no key twice,
        none revoked.
        """
        for kind in ("name", "identity", "box", "curve"):
            values = [getattr(c, kind) for c in self.cards]
            if len(set(values)) != len(values):
                raise RosterRefused(
                    "sybil-majority", f"two parties of the roster have the same {kind}"
                )
        if self.coordinator.role != "coordinator" or any(c.role != "silo" for c in self.silos):
            raise RosterRefused(
                "tampered-roster", "a party stands in another role than its card says"
            )
        gone = {r.identity for r in self.revoked} | {r.curve for r in self.revoked}
        for c in self.cards:
            c.check()
            if c.identity in gone or c.curve in gone:
                raise RosterRefused("revoked-key", f"the key of {c.name} was revoked")
        content, by_name = self.digest, {c.name: c for c in self.cards}
        for name, signature in self.signatures.items():
            signer = by_name.get(name)
            if signer is None or not verify(signer.identity, signature, Label.ROSTER, content):
                raise RosterRefused(
                    "tampered-roster",
                    f"the signature of {name} is not on this content: it was changed after signing",
                )
        if self.group is not None:
            self.group.check(self.silos, self.signatures, content)

    def verify(self) -> None:
        """That this version is in force."""
        self.check()
        if self.unsigned:
            raise RosterRefused(
                "unsigned-roster", f"{', '.join(self.unsigned)} did not sign version {self.version}"
            )
        if self.silos and self.group is None:
            raise RosterRefused(
                "unsigned-roster", "it lacks the silos' common secret; a silo signs again"
            )

    def follow(self, earlier: Roster) -> None:
        """That nothing was forgotten since: no revocation, and no key that was neither kept nor
        revoked.
        """
        gone, here = {r.identity for r in self.revoked}, {c.identity for c in self.cards}
        if self.consortium != earlier.consortium:
            raise RosterRefused(
                "tampered-roster", f"it is of another consortium than version {earlier.version}"
            )
        for r in earlier.revoked:
            if r.identity not in gone:
                raise RosterRefused("revoked-key", f"it forgets that a key of {r.name} was revoked")
        for card in earlier.cards:
            if card.identity not in gone and card.identity not in here:
                raise RosterRefused(
                    "key-substitution", f"it lacks the key of {card.name} and does not say why"
                )

    # Changing: every change of a version that somebody has signed makes the next one

    def _next(self, **changes: Any) -> Roster:
        version = self.version + 1 if self.signatures else self.version
        return replace(self, version=version, signatures={}, group=None, **changes)

    def add(self, card: Card) -> Roster:
        card.check()
        if card.role != "silo":
            raise RosterRefused(
                "wrong-shape", f"{card.name} is a {card.role}'s card; add takes a silo's"
            )
        if self.card(card.name) is not None:
            raise RosterRefused(
                "key-substitution",
                f"{card.name} is in the roster already; new keys come in by rotate, or after revoke",
            )
        changed = self._next(silos=(*self.silos, card))
        changed.check()
        return changed

    def drop(self, names: Collection[str]) -> Roster:
        """Without the cards of silos that nobody has signed for yet."""
        kept = tuple(c for c in self.silos if c.name not in names)
        if len(kept) == len(self.silos):
            return self
        if self.signatures:
            raise RosterRefused(
                "tampered-roster", "a silo that was signed for is taken out by revoke"
            )
        return replace(self, silos=kept)

    def revoke(self, name: str, why: str) -> Roster:
        card = next((c for c in self.silos if c.name == name), None)
        if card is None:
            raise RosterRefused("unknown-silo", f"{name} is not a silo of this roster")
        if len(why) > _MOST_TEXT or not why.isprintable():
            raise RosterRefused(
                "wrong-shape", f"the reason must be one line of at most {_MOST_TEXT} characters"
            )
        changed = self._next(silos=tuple(c for c in self.silos if c.name != name))
        gone = Revoked(card.name, card.identity, card.curve, changed.version, why)
        return replace(changed, revoked=(*self.revoked, gone))

    def rotate(self, card: Card) -> Roster:
        """New keys in the place of the old ones, which are revoked by it. The old key has signed
        the new card.
        """
        card.check()
        old = self.card(card.name)
        if old is None or old.role != card.role:
            raise RosterRefused("unknown-silo", f"{card.name} is not a {card.role} of this roster")
        if card.replaces != old.identity:
            raise RosterRefused(
                "key-substitution", f"the new card of {card.name} is not signed with its old key"
            )
        if old.role == "coordinator":
            changed = self._next(coordinator=card)
        else:
            changed = self._next(
                silos=tuple(card if c.name == card.name else c for c in self.silos)
            )
        gone = Revoked(old.name, old.identity, old.curve, changed.version, "its keys were rotated")
        changed = replace(changed, revoked=(*self.revoked, gone))
        changed.check()
        return changed

    def sign(self, parties: Mapping[str, Identity], secret: bytes = b"") -> Roster:
        """With these parties' signatures; the first silo of all puts in the common secret:
        `secret`, or a drawn one.
        """
        self.check()
        content, by_name = self.digest, {c.name: c for c in self.cards}
        signatures, group = dict(self.signatures), self.group
        for name, identity in parties.items():
            if name not in by_name:
                raise RosterRefused("unknown-silo", f"{name} is not in this roster")
            if by_name[name].identity != identity.public:
                raise RosterRefused(
                    "key-substitution", f"the roster has another key under {name} than the one here"
                )
            signatures[name] = identity.sign(Label.ROSTER, content)
            if by_name[name].role == "silo" and group is None:
                drawn = secret or os.urandom(SECRET_BYTES)
                group = Group.seal(name, identity, self.silos, content, drawn)
        return replace(self, signatures=signatures, group=group)

    def secret(self, name: str, identity: Identity) -> bytes:
        """The silos' common secret, for one of them."""
        if self.group is None or name not in self.group.boxes:
            raise RosterRefused("unknown-silo", f"the roster has no common secret for {name}")
        return self.group.open(name, identity, self.digest)

    def merge(self, other: Roster) -> Roster:
        """The same content with the signatures of both. Of two common secrets that of the first
        maker by name stays.
        """
        other.check()
        if other.digest != self.digest:
            raise RosterRefused(
                "tampered-roster",
                f"it is another content (version {other.version}, {other.fingerprint}) than this one "
                f"(version {self.version}, {self.fingerprint})",
            )
        groups = sorted(
            (g for g in (self.group, other.group) if g is not None), key=lambda g: g.maker
        )
        merged = replace(
            self,
            signatures={**self.signatures, **other.signatures},
            group=groups[0] if groups else None,
        )
        merged.check()
        return merged


def found(consortium: str, coordinator: Card) -> Roster:
    """Version 1, with nobody in it but the coordinator."""
    coordinator.check()
    if coordinator.role != "coordinator":
        raise RosterRefused(
            "wrong-shape",
            f"{coordinator.name} is a silo's card; a roster begins with a coordinator's",
        )
    if not consortium or len(consortium) > _MOST_TEXT or not consortium.isprintable():
        raise RosterRefused(
            "wrong-shape", f"a consortium's name is one line of at most {_MOST_TEXT} characters"
        )
    return Roster(consortium, 1, coordinator)


def parse(text: bytes) -> Roster:
    """A roster from its file. Shape only: `check` and `verify` say whether it may be used."""
    if len(text) > _MOST_BYTES:
        raise RosterRefused("wrong-shape", "it is larger than any roster")
    try:
        table = json.loads(text)
    except ValueError:
        raise RosterRefused("tampered-roster", "it is not a roster: not even JSON") from None
    names = (
        "sottovoce-roster",
        "consortium",
        "version",
        "coordinator",
        "silos",
        "revoked",
        "signatures",
    )
    r = only(
        "roster",
        table,
        *names,
        *(("group",) if isinstance(table, dict) and "group" in table else ()),
    )
    if r["sottovoce-roster"] != _FORMAT or type(r["version"]) is not int or r["version"] < 1:
        raise RosterRefused("wrong-shape", "it is a roster of another version of the program")
    shapes = {"consortium": str, "silos": list, "revoked": list, "signatures": dict}
    if not all(isinstance(r[key], shape) for key, shape in shapes.items()):
        raise RosterRefused("wrong-shape", "it is not a roster")
    return Roster(
        r["consortium"],
        r["version"],
        coordinator=Card.from_record(r["coordinator"]),
        silos=tuple(Card.from_record(c) for c in r["silos"]),
        revoked=tuple(_revoked(x) for x in r["revoked"]),
        signatures={str(k): hexadecimal(v, 64) for k, v in r["signatures"].items()},
        group=Group.from_record(r["group"]) if "group" in r else None,
    )


def _revoked(record: Any) -> Revoked:
    r = only("roster", record, "name", "identity", "curve", "since", "why")
    if type(r["since"]) is not int or not all(
        isinstance(r[k], str) for k in ("name", "curve", "why")
    ):
        raise RosterRefused("wrong-shape", "a revocation that is not one")
    return Revoked(r["name"], hexadecimal(r["identity"], 32), r["curve"], r["since"], r["why"])
