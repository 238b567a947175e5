"""What the frozen part of a network makes of each text, computed once and kept on disk.

With `TRAIN=top:K` and `TRAIN=head` the lower part of a network never changes, so epochs need only
the part above it. Features are kept by the hash of their text, in a file whose name is the hash of
the frozen part. They are as private as the text itself: they stay in the folder of whoever has the
text, readable by its owner alone, are never sent, and go with the run (`forget`).

**One text at a time.** A text is computed by itself, never in a batch with others. So its features
do not depend on its neighbours or on what was in the file before: both runners, a run that is gone
on with and a file that was lost give the same numbers. Numbers are kept in bfloat16.

**A file that was cut short is never read.** Features are appended and forced to disk before an
index that names them takes the old index's place. What lies behind the last named one is
overwritten.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from models.device import here

__all__ = ["ForEach", "FrozenFeatures", "text_hash"]

#: (work, parts) -> the work of every part, in order
ForEach = Callable[[Callable[[int], torch.Tensor], Sequence[int]], list[torch.Tensor]]
_ENTRY = np.dtype([("text", "V16"), ("at", "<i8"), ("length", "<i8")])
#: texts that are computed before they are written down: what a kill can cost
_AT_ONCE = 1024


def text_hash(*parts: np.ndarray | bytes) -> bytes:
    """16 bytes that stand for a text, made of all that the frozen part reads of it."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _in_turn(work: Callable[[int], torch.Tensor], parts: Sequence[int]) -> list[torch.Tensor]:
    return [work(p) for p in parts]


class FrozenFeatures:
    """`part`: hash of the frozen part. `width`: numbers in a row of features. `folder`: None keeps
    them in memory, for a process that has no folder.
    """

    def __init__(self, folder: Path | None, part: bytes, width: int) -> None:
        self.folder, self.width = folder, width
        self._name = part.hex()[:32]
        self._place: dict[bytes, tuple[int, int]] = {}
        self._rows = np.zeros((0, width), np.uint16)
        if folder is not None and self._index_file.is_file():
            self._read_index()

    @property
    def _index_file(self) -> Path:
        assert self.folder is not None
        return self.folder / f"{self._name}.index.npy"

    @property
    def _data_file(self) -> Path:
        assert self.folder is not None
        return self.folder / f"{self._name}.bf16"

    # What is there

    def have(self, text: bytes) -> bool:
        return text in self._place

    def length(self, text: bytes) -> int:
        return self._place[text][1]

    def rows(self, texts: Sequence[bytes]) -> torch.Tensor:
        """The features of these texts, one after another: (all their rows, width) float32."""
        spans = [self._place[t] for t in texts]
        if not spans:
            return torch.zeros(0, self.width)
        where = np.concatenate([np.arange(at, at + length) for at, length in spans])
        return here(self._rows[where]).view(torch.bfloat16).float()

    def padded(self, texts: Sequence[bytes], longest: int) -> torch.Tensor:
        """The same with a text each in the first axis, zeros behind: (texts, longest, width)."""
        lengths = torch.tensor([self.length(t) for t in texts])
        out = torch.zeros(len(texts), longest, self.width)
        out[torch.arange(longest) < lengths[:, None]] = self.rows(texts)
        return out

    # Computing what is not

    def fill(
        self,
        texts: Sequence[bytes],
        compute: Callable[[int], torch.Tensor],
        for_each: ForEach | None = None,
    ) -> int:
        """Computes the texts that are missing; `compute(i)` gives (rows, width) of the i-th.
        Returns how many were computed. `for_each`: on several threads, maybe.
        """

        def made(i: int) -> torch.Tensor:
            with torch.inference_mode():
                return compute(i).to(torch.bfloat16).cpu()

        how = for_each or _in_turn
        missing = self._missing(texts)
        if not missing:
            return 0
        with self._alone():
            missing = self._missing(texts)  # somebody else may have been quicker
            for first in range(0, len(missing), _AT_ONCE):
                some = missing[first : first + _AT_ONCE]
                self._append([texts[i] for i in some], how(made, some))
        return len(missing)

    def _missing(self, texts: Sequence[bytes]) -> list[int]:
        seen: dict[bytes, int] = {}
        for i, text in enumerate(texts):
            if text not in self._place:
                seen.setdefault(text, i)
        return list(seen.values())

    def _append(self, texts: Sequence[bytes], made: Sequence[torch.Tensor]) -> None:
        new = torch.cat([m.reshape(-1, self.width) for m in made]).view(torch.uint16).numpy()
        at = len(self._rows)
        for text, m in zip(texts, made):
            length = m.numel() // self.width
            self._place[text] = (at, length)
            at += length
        if self.folder is None:
            self._rows = np.concatenate([self._rows, new])
            return
        handle = os.open(self._data_file, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(handle, "wb") as f:
            f.truncate(self._rows.nbytes)
            f.seek(self._rows.nbytes)
            f.write(new.tobytes())
            f.flush()
            os.fsync(f.fileno())
        entries = np.zeros(len(self._place), _ENTRY)
        entries["text"] = [np.void(t) for t in self._place]
        entries["at"], entries["length"] = zip(*self._place.values())
        beside = self._index_file.with_suffix(".new")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
            np.save(f, entries, allow_pickle=False)
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, self._index_file)
        self._map(at)

    def _read_index(self) -> None:
        """What the index names, if the data are as long as it says; else as if there were none."""
        try:
            entries = np.load(self._index_file, allow_pickle=False)
            size = self._data_file.stat().st_size
        except (OSError, ValueError, EOFError):
            return
        if entries.dtype != _ENTRY or not len(entries):
            return
        end = int((entries["at"] + entries["length"]).max())
        if size < 2 * self.width * end:
            return
        self._place = {bytes(e["text"]): (int(e["at"]), int(e["length"])) for e in entries}
        self._map(end)

    def _map(self, end: int) -> None:
        self._rows = np.memmap(self._data_file, np.uint16, mode="r", shape=(end, self.width))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer at a time: an evaluator may stand beside its coordinator."""
        if self.folder is None:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self.folder / f"{self._name}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._index_file.is_file():
                self._read_index()
            yield
        finally:
            os.close(lock)

    def forget(self) -> None:
        """Removes the folder, and all that was kept."""
        self._place, self._rows = {}, np.zeros((0, self.width), np.uint16)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
