"""What a silo must not forget, whatever happens to its machine: an append-only file, synced before
it answers.

The secure sum writes here the number of each sum before it joins it and each release of shares
before it is sent (crypto.sum.silo says why). One JSON pair per line; the last line for a key
counts. A line that makes no sense stops the silo: to go on without it and all that follows would be
to join sums a second time.
"""

from __future__ import annotations

import json
from pathlib import Path

from silo.appended import AppendOnly

__all__ = ["FileJournal"]


class FileJournal:
    def __init__(self, path: Path) -> None:
        self._values: dict[str, str] = {}
        self._file = AppendOnly(path, "journal")
        try:
            for number, line in enumerate(self._file.read(), 1):
                key, value = self._pair(number, line)
                self._values[key] = value
        except BaseException:
            self._file.close()
            raise

    def _pair(self, number: int, line: bytes) -> tuple[str, str]:
        try:
            key, value = json.loads(line)
        except (ValueError, TypeError):
            raise self._file.bad_line(number, "it is not a note of the journal's") from None
        if not isinstance(key, str) or not isinstance(value, str):
            raise self._file.bad_line(number, "its note is not two texts")
        return key, value

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str) -> None:
        self._file.append(json.dumps([key, value]).encode())
        self._values[key] = value

    def close(self) -> None:
        self._file.close()
