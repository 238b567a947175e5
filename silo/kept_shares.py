"""What this silo says when it is asked to open a sum, on its disk before anybody may ask.

It is kept when the silo signs the survivors (crypto.sum.silo_kept), so that a silo that dies after
that, or a coordinator that dies between asking for shares and keeping the sum, costs nothing: the
same question gets the same answer, from whoever was restarted too. Any other question about a
payload whose shares are out is refused, as ever.

A round may open several sums, and a coordinator may come back for an earlier one: answers stay, one
per payload, until the round is over, or one of a later round is kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgpack

from crypto.errors import Refusal
from crypto.sum.records import ShareRelease, UnmaskRequest
from crypto.sum.silo_kept import KeptAnswer
from crypto.sum.silo_limits import Journal, MemoryJournal
from silo.appended import sync_folder

__all__ = ["KeptShares"]


class KeptShares:
    def __init__(
        self,
        path: Path | None = None,
        journal: Journal | None = None,
        roster: Mapping[str, bytes] | None = None,
    ) -> None:
        """`path` None: remembered until this process ends. `journal`: the one that the secure sum
        writes to.
        """
        self._path, self._journal, self._roster = path, journal or MemoryJournal(), roster or {}
        self._kept: dict[str, KeptAnswer] = {}
        if path is not None and path.exists():
            try:
                records = msgpack.unpackb(path.read_bytes(), raw=False)
                self._kept = {k.payload: k for k in map(KeptAnswer.from_record, records)}
            except (ValueError, TypeError, msgpack.UnpackException, Refusal):
                pass  # cut short by a crash: nobody was told that it is there

    def again(self, request: UnmaskRequest) -> ShareRelease | None:
        """The answer to this request if one is kept, noted in the journal; Refusal where it must
        not be given.
        """
        for kept in self._kept.values():
            if kept.answers(request):
                return kept.say(request, self._roster, self._journal)
        return None

    def keep(self, kept: KeptAnswer) -> None:
        """On the disk when this returns; where it raises OSError, remembered until this process
        ends.
        """
        self._kept = {k: v for k, v in self._kept.items() if v.round == kept.round} | {
            kept.payload: kept
        }
        self._write()

    def _write(self) -> None:
        if not self._kept:
            self.forget()
        elif self._path is not None:
            beside = self._path.with_suffix(".new")
            with os.fdopen(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
            ) as f:
                f.write(
                    msgpack.packb([k.to_record() for k in self._kept.values()], use_bin_type=True)
                )
                f.flush()
                os.fsync(f.fileno())
            beside.replace(self._path)
            sync_folder(self._path)

    def drop(self, payload: str) -> None:
        """The sum over it was given up, or another is begun: nothing of it is to be opened any
        more, if it ever was.
        """
        if self._kept.pop(payload, None) is not None:
            self._write()

    def forget(self) -> None:
        self._kept.clear()
        if self._path is not None:
            # also what a full disk left of one
            for path in (self._path, self._path.with_suffix(".new")):
                path.unlink(missing_ok=True)
