"""Where the passphrase of a key file comes from: a file that the service manager hands over, or a
person's keyboard.
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

from config.errors import UserError
from crypto.identity.card import RosterRefused
from crypto.identity.keyfile import KeyFileError
from wire.keyring import Keyring

__all__ = ["VARIABLE", "new_passphrase", "open_keys", "passphrase_for"]

VARIABLE = "SOTTOVOCE_PASSPHRASE_FILE"
_SHORTEST = 10


def passphrase_for(home: Path) -> str:
    """Empty where the keys in `home` need none. Never on a command line, where every user of a
    machine sees it.
    """
    try:
        if not Keyring.sealed(home):
            return ""
    except KeyFileError as e:
        raise UserError(f"{e}.") from None
    if path := os.environ.get(VARIABLE):
        try:
            return Path(path).read_text("utf-8").rstrip("\n")
        except OSError as e:
            raise UserError(f"{VARIABLE}: {path} cannot be read ({e.strerror}).") from None
    if not sys.stdin.isatty():
        raise UserError(
            f"The keys in {home} have a passphrase; name a file that holds it in {VARIABLE}."
        )
    return getpass.getpass(f"Passphrase of {home}: ")


def new_passphrase() -> str:
    """Asked for twice, or from the file that the variable names."""
    if path := os.environ.get(VARIABLE):
        first = second = Path(path).read_text("utf-8").rstrip("\n")
    elif sys.stdin.isatty():
        first, second = getpass.getpass("New passphrase: "), getpass.getpass("Once more: ")
    else:
        raise UserError(f"--passphrase needs a terminal to ask at, or a file named in {VARIABLE}.")
    if first != second:
        raise UserError("The two passphrases differ; nothing was made.")
    if len(first) < _SHORTEST:
        raise UserError(f"A passphrase has at least {_SHORTEST} characters; nothing was made.")
    return first


def open_keys(home: Path, passphrase: str | None = None) -> Keyring:
    """A party's keys, or one sentence why not."""
    try:
        return Keyring.load(home, passphrase_for(home) if passphrase is None else passphrase)
    except KeyFileError as e:
        raise UserError(f"{e}.") from None
    except RosterRefused as e:
        raise UserError(f"{home}: {e}.") from None
