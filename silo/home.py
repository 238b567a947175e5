"""A silo's own folder: its keys, the roster it pinned, and what it must remember.

Beside what `wire.keyring` keeps there: `ledger.jsonl` (privacy, over all studies), `consents.jsonl`
(studies that its operator agreed to), and for each study `work/<its hash>` with `journal.jsonl` (sums
and releases), `memory.safetensors` (what a method remembers between rounds) and `features` (what the
frozen part of a network makes of the silo's texts). In a simulation, which is one study, these are
in the silo's folder itself.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from config.errors import UserError
from crypto.identity.card import RosterRefused
from crypto.identity.keyfile import KeyFileError
from crypto.identity.roster import Roster
from methods.base import silo_name
from study.machine import names_of
from wire.keyring import Keyring

__all__ = ["FEATURES", "Home", "features_in"]

FEATURES = "features"  #: the folder of what is made of a silo's texts


def features_in(work: Path, study: bytes) -> Path:
    """Where a study's frozen features are, under the folder of its journal."""
    return work / FEATURES / study.hex()


@dataclass(frozen=True)
class Home:
    path: Path
    passphrase: str = field(default="", repr=False)

    @cached_property
    def keys(self) -> Keyring:
        try:
            ring = Keyring.load(self.path, self.passphrase)
        except KeyFileError as e:
            raise UserError(f"{e}.") from None
        except RosterRefused as e:
            raise UserError(f"{self.path}: {e}.") from None
        if ring.card.role != "silo":
            raise UserError(
                f"{self.path} has the keys of a {ring.card.role}; a silo needs keys of its own."
            )
        return ring

    @cached_property
    def roster(self) -> Roster:
        try:
            return self.keys.pinned()
        except (RosterRefused, KeyFileError) as e:
            raise UserError(f"The roster of {self.path}: {e}.") from None

    @property
    def index(self) -> int:
        """This silo's number in a run: its place among the silos of the roster."""
        return [c.name for c in self.roster.silos].index(self.keys.card.name)

    @property
    def name(self) -> str:
        """As protocol and run files have it; `called` is for people."""
        return silo_name(self.index)

    @property
    def called(self) -> str:
        return self.keys.card.name

    @property
    def names(self) -> dict[str, str]:
        """What the silos of the roster are called."""
        return names_of(self.roster)

    @property
    def identities(self) -> Mapping[str, bytes]:
        return {silo_name(i): card.identity for i, card in enumerate(self.roster.silos)}

    @property
    def secret(self) -> bytes:
        """Shared by the silos, unknown to the coordinator."""
        try:
            return self.roster.secret(self.keys.card.name, self.keys.identity)
        except RosterRefused as e:
            raise UserError(f"The roster of {self.path}: {e}.") from None

    def work(self, study: bytes) -> Path:
        """Where this study's journal and memory are, so that several can run at once. A study that
        an older program began stays where it began.
        """
        older = self.path / "journal.jsonl"
        if older.exists() and f"run/{study.hex()}" in older.read_text("utf-8", "replace"):
            return self.path
        folder = self.path / "work" / study.hex()[:12]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def forget_features(self, study: bytes) -> None:
        """This silo takes no further part in the study, however its process ended."""
        for work in (self.path, self.path / "work" / study.hex()[:12]):
            shutil.rmtree(features_in(work, study), ignore_errors=True)

    # Consent

    def agreed_to(self, study: str) -> bool:
        path = self.path / "consents.jsonl"
        if not path.exists():
            return False
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        try:
            return any(json.loads(line)["study"] == study for line in lines)
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{path} is damaged; it says which studies this silo agreed to."
            ) from None

    def agree(self, study: str, title: str, how: str) -> None:
        """On disk before the silo dials: what was agreed to, when, and how (asked, or --accept)."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps(
            {
                "time": when,
                "study": study,
                "title": title,
                "how": how,
                "roster": self.roster.version,
            }
        )
        handle = os.open(
            self.path / "consents.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            os.write(handle, line.encode() + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)
