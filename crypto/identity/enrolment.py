"""How strangers become a consortium: an invitation, a card, a roster that everybody signs. No I/O.

The coordinator invites silos by name. Each silo answers with its card. Once all have answered, the
roster is fixed: everybody sees it, compares its words with the others over the telephone, and signs.
When all have signed, everybody pins it. The coordinator only carries papers: it can neither change
a card nor leave out a signature without the words being others.

A `Gathering` is the coordinator's side, `INVITING → SIGNING → SEALED`. The token in an invitation
keeps strangers from filling the table; it proves nothing to anybody else.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from crypto.identity.card import Card, RosterRefused, hexadecimal, only
from crypto.identity.roster import Roster, found, parse

__all__ = ["Gathering", "Invitation", "Stage", "invite", "next_version", "read_invitation"]

_FORMAT = 1
_TOKEN_BYTES = 16
_MOST_SILOS = 2000


class Stage(StrEnum):
    INVITING = "inviting"  #: cards are missing
    SIGNING = "signing"  #: the roster is fixed, signatures are missing
    SEALED = "sealed"  #: everybody signed


@dataclass(frozen=True)
class Invitation:
    """For one silo. Whoever has the file can answer in its name, until the words are compared."""

    consortium: str
    silo: str
    address: str  #: HOST:PORT of the coordinator, perhaps several with commas between
    coordinator: Card
    token: bytes = field(repr=False)

    def to_text(self) -> str:
        record = {
            "sottovoce-invitation": _FORMAT,
            "consortium": self.consortium,
            "silo": self.silo,
            "address": self.address,
            "coordinator": self.coordinator.to_record(),
            "token": self.token.hex(),
        }
        return json.dumps(record, indent=1) + "\n"


def read_invitation(text: bytes) -> Invitation:
    try:
        table = json.loads(text)
    except ValueError:
        raise RosterRefused("wrong-shape", "it is not an invitation: not even JSON") from None
    names = ("sottovoce-invitation", "consortium", "silo", "address", "coordinator", "token")
    r = only("invitation", table, *names)
    if r["sottovoce-invitation"] != _FORMAT:
        raise RosterRefused("wrong-shape", "it is an invitation of another version of the program")
    if not all(isinstance(r[k], str) for k in ("consortium", "silo", "address")):
        raise RosterRefused("wrong-shape", "it is not an invitation")
    card = Card.from_record(r["coordinator"])
    card.check()
    token = hexadecimal(r["token"], _TOKEN_BYTES)
    return Invitation(r["consortium"], r["silo"], r["address"], card, token)


@dataclass(frozen=True)
class Gathering:
    """What the coordinator knows of an enrolment; every step returns the next one."""

    roster: Roster  #: with the cards that came so far; fixed from SIGNING on
    #: silo -> SHA-256 of its token; silos that are in the roster already have none
    invited: Mapping[str, bytes]
    fixed: bool = False

    @property
    def stage(self) -> Stage:
        if not self.fixed:
            return Stage.INVITING
        return Stage.SIGNING if self.roster.unsigned else Stage.SEALED

    @property
    def missing(self) -> tuple[str, ...]:
        """Who has still to answer, or to sign."""
        if self.stage is Stage.INVITING:
            return tuple(n for n in self.invited if self.roster.card(n) is None)
        return self.roster.unsigned

    def card(self, card: Card, token: bytes) -> Gathering:
        """A silo's answer to its invitation. The same card again changes nothing."""
        card.check()
        if card.name not in self.invited:
            raise RosterRefused("unknown-silo", f"nobody invited {card.name}")
        if not hmac.compare_digest(_hashed(token), self.invited[card.name]):
            raise RosterRefused("unknown-silo", f"this is not the invitation of {card.name}")
        here = self.roster.card(card.name)
        if here is not None and here.digest == card.digest:
            return self
        if here is not None:
            raise RosterRefused(
                "key-substitution",
                f"the invitation of {card.name} was answered before, with other keys; answer from that "
                "folder, or ask the coordinator for another invitation",
            )
        if self.fixed:
            raise RosterRefused(
                "unknown-silo", "the roster is being signed; ask for the next version"
            )
        return replace(self, roster=self.roster.add(card))

    def without(self, name: str, why: str) -> Gathering:
        """A silo is taken out."""
        return replace(self, roster=self.roster.revoke(name, why))

    def rotated(self, card: Card) -> Gathering:
        """A party's new keys in the place of its old ones, which signed them."""
        return replace(self, roster=self.roster.rotate(card))

    def fix(self) -> Gathering:
        """No more cards. From now on the roster is what everybody compares and signs."""
        if len(self.roster.silos) < 3:
            raise RosterRefused(
                "tiny-sum", f"a consortium has at least 3 silos, and {len(self.roster.silos)} came"
            )
        return replace(self, fixed=True)

    def signed(self, copy: Roster) -> Gathering:
        """A copy of the roster with more signatures."""
        if not self.fixed:
            raise RosterRefused("unsigned-roster", "the roster is not fixed yet")
        return replace(self, roster=self.roster.merge(copy))

    def to_text(self) -> str:
        """For the coordinator's disk: it may be restarted between two telephone calls."""
        record = {
            "sottovoce-gathering": _FORMAT,
            "roster": json.loads(self.roster.to_text()),
            "invited": {name: h.hex() for name, h in self.invited.items()},
            "fixed": self.fixed,
        }
        return json.dumps(record, indent=1) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Gathering:
        r = only("gathering", json.loads(text), "sottovoce-gathering", "roster", "invited", "fixed")
        invited = {str(k): hexadecimal(v, 32) for k, v in r["invited"].items()}
        return cls(parse(json.dumps(r["roster"]).encode()), invited, bool(r["fixed"]))


def invite(
    gathering: Gathering | None, consortium: str, coordinator: Card, names: tuple[str, ...]
) -> tuple[Gathering, dict[str, bytes]]:
    """A gathering in which these are invited too, and the tokens of their invitations. For one that
    is invited already, the new invitation takes the place of the old one and of its answer.
    """
    gathering = gathering or Gathering(found(consortium, coordinator), {})
    if gathering.fixed:
        raise RosterRefused(
            "split-view",
            "a roster is being signed; seal it first. If somebody in it cannot sign any more, found the "
            "consortium anew, in another folder",
        )
    members = {c.name for c in gathering.roster.cards} - set(gathering.invited)
    for name in names:
        if name in members or names.count(name) > 1:
            raise RosterRefused("sybil-majority", f"{name} is in the roster, or named twice")
    gathering = replace(gathering, roster=gathering.roster.drop(names))
    if len(gathering.invited) + len(names) > _MOST_SILOS:
        raise RosterRefused("oversize", f"more than {_MOST_SILOS} invitations")
    tokens = {name: secrets.token_bytes(_TOKEN_BYTES) for name in names}
    invited = {**gathering.invited, **{name: _hashed(t) for name, t in tokens.items()}}
    return replace(gathering, invited=invited), tokens


def next_version(pinned: Roster) -> Gathering:
    """For a consortium that is in force and grows: those in it sign the next version too."""
    return Gathering(pinned, {})


def _hashed(token: Any) -> bytes:
    return hashlib.sha256(b"sottovoce invitation\x00" + bytes(token)).digest()
