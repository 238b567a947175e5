"""A party's folder: its own keys and card, and the roster that it pinned.

| file | |
|---|---|
| `keys/identity`, `keys/curve` | secret keys, mode 0600, perhaps sealed with a passphrase |
| `keys/card.json` | the public half, to be given away |
| `roster.json` | the version in force, as this party pinned it |
| `pinned.json` | which version and content that is, and what was signed: survives a restored backup of the rest |
| `next/` | keys that a coming version of the roster brings into force |
| `retired/N/` | keys that were replaced |
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from crypto.identity.card import Card, RosterRefused, make_card
from crypto.identity.keyfile import KeyFileError, is_sealed
from crypto.identity.keys import Identity
from crypto.identity.roster import Roster, parse
from wire.keys import CurveKeys

__all__ = ["Keyring", "read_card", "read_roster", "write_public"]

_KEYS, _NEXT, _RETIRED = "keys", "next", "retired"
_FILES = ("identity", "curve", "card.json")


@dataclass(frozen=True)
class Keyring:
    path: Path
    card: Card
    identity: Identity
    curve: CurveKeys

    # Making and loading

    @classmethod
    def create(cls, home: Path, name: str, role: str, passphrase: str = "") -> Keyring:
        """New keys in a new folder, mode 0700."""
        return cls._made(home, _KEYS, name, role, passphrase, None)

    @classmethod
    def _made(
        cls, home: Path, folder: str, name: str, role: str, passphrase: str, old: Identity | None
    ) -> Keyring:
        identity, curve = Identity.generate(), CurveKeys.generate()
        card = make_card(name, role, identity, curve.public.decode())
        if old is not None:
            card = card.succeeding(old)
        keys = home / folder
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            keys.mkdir(mode=0o700)
        except FileExistsError:
            raise KeyFileError(f"{keys} already exists; a key is never overwritten") from None
        except OSError as e:
            raise KeyFileError(f"{keys} cannot be made: {e.strerror}") from None
        identity.save(keys / "identity", passphrase)
        curve.save(keys / "curve", passphrase)
        write_public(keys / "card.json", json.dumps(card.to_record(), indent=1) + "\n")
        return cls(home, card, identity, curve)

    @classmethod
    def load(cls, home: Path, passphrase: str = "") -> Keyring:
        _keys_of(home)
        return cls._read(home, _KEYS, passphrase)

    @classmethod
    def _read(cls, home: Path, folder: str, passphrase: str) -> Keyring:
        keys = home / folder
        for name in _FILES:
            if not (keys / name).is_file():
                raise KeyFileError(f'{keys} has no {name}; keys are made with "sottovoce keys new"')
        card = read_card(keys / "card.json")
        identity = Identity.load(keys / "identity", passphrase)
        curve = CurveKeys.load(keys / "curve", passphrase)
        if (card.identity, card.curve) != (identity.public, curve.public.decode()):
            raise KeyFileError(f"{keys / 'card.json'} is not the card of the keys beside it")
        return cls(home, card, identity, curve)

    @staticmethod
    def sealed(home: Path) -> bool:
        """Whether a passphrase is wanted."""
        return any(is_sealed(_keys_of(home) / name) for name in ("identity", "curve"))

    def rotate(self, passphrase: str = "") -> Keyring:
        """New keys, signed with these, in `next/`. They come into force with the roster that has
        them.
        """
        if (self.path / _NEXT).exists():
            raise KeyFileError(
                f"{self.path / _NEXT} has new keys already; put their card.json into the roster"
            )
        return self._made(
            self.path, _NEXT, self.card.name, self.card.role, passphrase, self.identity
        )

    # Rosters

    def _in(self, roster: Roster, passphrase: str) -> Keyring:
        """These keys, or those in `next/`: whichever the roster has."""
        listed = roster.card(self.card.name)
        if listed is None:
            gone = [r for r in roster.revoked if r.identity == self.identity.public]
            if gone:
                raise RosterRefused(
                    "revoked-key",
                    f"version {gone[0].since} revoked {self.card.name}: {gone[0].why}",
                )
            raise RosterRefused(
                "unknown-silo", f"{self.card.name} is not in version {roster.version}"
            )
        if listed.identity == self.identity.public and listed.curve == self.card.curve:
            return self
        coming = self.path / _NEXT
        if coming.exists() and read_card(coming / "card.json").identity == listed.identity:
            return self._read(self.path, _NEXT, passphrase)
        raise RosterRefused(
            "key-substitution",
            f"the roster has another key under {self.card.name} than the one here",
        )

    def sign(self, roster: Roster, passphrase: str = "") -> Roster:
        """With this party's signature, which it gives to one content per version."""
        pins = self._pins()
        version, content = str(roster.version), roster.digest.hex()
        if pins["signed"].get(version, content) != content:
            raise RosterRefused(
                "split-view",
                f"another content of version {version} was signed here before; the next version is free",
            )
        if roster.version < pins["version"]:
            raise RosterRefused(
                "old-roster",
                f"version {version} is older than version {pins['version']}, pinned here",
            )
        self._follows(roster)
        signed = roster.sign({self.card.name: self._in(roster, passphrase).identity})
        pins["signed"][version] = content
        self._keep(pins)
        return signed

    def pin(self, roster: Roster, passphrase: str = "") -> Keyring:
        """Make this version the one in force here. New keys that it has come into force with it."""
        roster.verify()
        _not_older(roster, self._pins())
        self._follows(roster)
        keys = self._in(roster, passphrase)
        if keys is not self:  # before the pin: cut short anywhere, pinning again finishes it
            retired = self.path / _RETIRED
            retired.mkdir(mode=0o700, exist_ok=True)
            (self.path / _KEYS).rename(retired / str(len(list(retired.iterdir()))))
            (self.path / _NEXT).rename(self.path / _KEYS)
        beside = self.path / "roster.json.new"
        beside.unlink(missing_ok=True)
        write_public(beside, roster.to_text())
        self.adopt(roster, beside)
        beside.unlink()
        return Keyring.load(self.path, passphrase)

    def adopt(self, roster: Roster, file: Path) -> None:
        """Take over `file`, which has this roster, verified by whoever calls this; many folders may
        share one file.
        """
        self._keep(self._pins() | {"version": roster.version, "digest": roster.digest.hex()})
        link = self.path / "roster.json.link"
        link.unlink(missing_ok=True)
        link.hardlink_to(file)
        link.replace(self.path / "roster.json")

    def pinned(self) -> Roster:
        """The roster in force: signed by everybody, this party among them, and the very one that
        was pinned.
        """
        path, pins = self.path / "roster.json", self._pins()
        if not path.exists() or not pins["version"]:
            todo = {
                "silo": "sottovoce join",
                "coordinator": f"sottovoce consortium seal {self.path}",
            }
            raise RosterRefused(
                "unsigned-roster",
                f"{self.path} has no pinned roster, so it belongs to no consortium yet; go on with "
                f'"{todo[self.card.role]}", or by hand with "sottovoce roster pin"',
            )
        roster = _verified(path.read_bytes())
        _not_older(roster, pins)
        if roster.version > pins["version"]:
            raise RosterRefused(
                "tampered-roster", f"{path} is version {roster.version}, which was not pinned here"
            )
        if self._in(roster, "") is not self:
            raise RosterRefused(
                "key-substitution", f"{path} has the keys in {self.path / _NEXT}; pin it again"
            )
        return roster

    def earlier(self) -> Roster | None:
        """The version pinned so far."""
        path = self.path / "roster.json"
        return read_roster(path) if self._pins()["version"] and path.exists() else None

    def _follows(self, roster: Roster) -> None:
        if (earlier := self.earlier()) is not None:
            roster.follow(earlier)

    def _pins(self) -> dict[str, Any]:
        path = self.path / "pinned.json"
        empty: dict[str, Any] = {"version": 0, "digest": "", "signed": {}}
        if not path.exists():
            return empty
        try:
            table = json.loads(path.read_text("utf-8"))
            if not isinstance(table, dict) or set(table) != set(empty):
                raise ValueError
        except ValueError:
            raise KeyFileError(
                f"{path} is damaged; restore it: it says which roster this party agreed to"
            ) from None
        return table

    def _keep(self, pins: dict[str, Any]) -> None:
        beside = self.path / "pinned.json.new"
        beside.unlink(missing_ok=True)
        write_public(beside, json.dumps(pins, indent=1) + "\n")
        beside.replace(self.path / "pinned.json")


def _keys_of(home: Path) -> Path:
    """The folder of its keys, which must be there."""
    keys = home / _KEYS
    if not keys.exists() and (home / _RETIRED).exists() and (home / _NEXT).exists():
        # a rotation that was cut short between its two renames
        (home / _NEXT).rename(keys)
    if not keys.is_dir():
        raise KeyFileError(
            f'{home} has no keys; a silo makes them with "sottovoce join", a coordinator with '
            '"sottovoce consortium new", by hand "sottovoce keys new"'
        )
    return keys


def _not_older(roster: Roster, pins: dict[str, Any]) -> None:
    if roster.version < pins["version"]:
        pinned = f"version {pins['version']}, pinned here"
        raise RosterRefused("old-roster", f"version {roster.version} is older than {pinned}")
    if roster.version == pins["version"] and roster.digest.hex() != pins["digest"]:
        raise RosterRefused(
            "split-view", f"another content of version {roster.version} is pinned here"
        )


def write_public(path: Path, text: str) -> None:
    """A file that is on disk when this returns. Its folder is closed to others; its content is no
    secret.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise KeyFileError(f"{path} already exists") from None
    except OSError as e:
        raise KeyFileError(f"{path} cannot be written: {e.strerror}") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_card(path: Path) -> Card:
    try:
        card = Card.from_record(json.loads(path.read_text("utf-8")))
        card.check()
    except OSError as e:
        raise KeyFileError(f"{path} cannot be read: {e.strerror}") from None
    except ValueError:
        raise KeyFileError(f"{path} is not a card") from None
    return card


def read_roster(path: Path) -> Roster:
    """A roster's file as it is: parsed, not yet checked."""
    try:
        return parse(path.read_bytes())
    except OSError as e:
        raise KeyFileError(f"{path} cannot be read: {e.strerror}") from None


@lru_cache(maxsize=4)
def _verified_once(digest: bytes, text: bytes) -> Roster:
    roster = parse(text)
    roster.verify()
    return roster


def _verified(text: bytes) -> Roster:
    """Verified once per process and, in a simulation, once for all the silos that are forked from
    it.
    """
    return _verified_once(hashlib.sha256(text).digest(), text)
