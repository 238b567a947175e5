"""What a silo must not forget, whatever happens to its machine: an append-only file, synced before
it answers.

The secure sum writes here the number of each sum before it joins it and each release of shares
before it is sent (crypto.sum.silo says why). One JSON pair per line; the last line for a key
counts. A line cut short by a crash was never acted on, because `put` returns only after the disk
has it.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

__all__ = ["FileJournal"]


class FileJournal:
    def __init__(self, path: Path) -> None:
        self._values: dict[str, str] = {}
        good = 0
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                try:
                    key, value = json.loads(line)
                except ValueError:
                    break
                if not line.endswith(b"\n"):
                    break
                self._values[str(key)] = str(value)
                good += len(line)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.ftruncate(self._file, good)
        os.lseek(self._file, 0, os.SEEK_END)

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str) -> None:
        line = json.dumps([key, value]).encode() + b"\n"
        at = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError:
            # Half a line would hide every later one from whoever reads the file after a restart.
            os.ftruncate(self._file, at)
            os.lseek(self._file, at, os.SEEK_SET)
            raise
        self._values[key] = value

    def close(self) -> None:
        os.close(self._file)
