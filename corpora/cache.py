"""Corpora at rest: one folder each in the user's cache, named by a hash of what it was made from.

A folder is written beside its final place and renamed, which is atomic: two processes that build
the same corpus at once both succeed, and one folder remains; half a folder is never seen. Numbers
are `.npy` files opened memory-mapped, so that a hundred forked silos share one copy in the page
cache; an Arrow table beside them has the text, for people.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from corpora.notes import Reading, sentence_of

__all__ = [
    "Kept",
    "array_bytes",
    "cache_root",
    "kept",
    "load_arrays",
    "load_table",
    "save_arrays",
    "save_table",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """A corpus in the cache: what all kinds of them have."""

    folder: Path
    meta: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.meta["name"])

    @property
    def about(self) -> str:
        """What it is: synthetic, or read as which format."""
        return str(self.meta["note"])

    @property
    def note(self) -> str:
        """What a report must say about it, in one line."""
        return "; ".join(filter(None, (self.about, sentence_of(self.reading.notes))))

    @cached_property
    def reading(self) -> Reading:
        """From which files it is, and what was done to them."""
        given = self.meta.get("reading")
        return Reading.of_meta(given) if given else Reading()

    @property
    def hash(self) -> str:
        return str(self.meta["hash"])

    def table(self, split: str) -> Any:
        """The split as a `datasets.Dataset` (Arrow, memory-mapped), with its text, for people."""
        return load_table(self.folder / "table" / split)


def cache_root() -> Path:
    """Where corpora are kept. A home that cannot be written to is no reason to fail: then the
    temporary folder.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    root = Path(base) / "sottovoce"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError:
        pass
    root = Path(tempfile.gettempdir()) / f"sottovoce-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    return root


def kept(source: Mapping[str, Any], read: Callable[[Path], T], write: Callable[[Path], None]) -> T:
    """What `source`, a description that decides it entirely, stands for: read from the cache, or
    written first.

    `read` may fail with OSError, ValueError or EOFError: then the folder is not there, or was
    damaged after the rename.
    """
    described = json.dumps(source, sort_keys=True).encode()
    place = cache_root() / hashlib.sha256(described).hexdigest()[:24]
    try:
        return read(place)
    except (OSError, ValueError, EOFError):
        shutil.rmtree(place, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        write(temporary)
        temporary.rename(place)
    except OSError as error:  # another process was first: its folder is as good as ours
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    try:
        return read(place)
    except (ValueError, EOFError) as e:
        raise OSError(f"the corpus cache at {place} cannot be read back") from e


def save_arrays(folder: Path, prefix: str, record: Any) -> None:
    """The arrays of a dataclass that has nothing else, one file each."""
    for f in fields(record):
        np.save(folder / f"{prefix}.{f.name}.npy", np.ascontiguousarray(getattr(record, f.name)))


def load_arrays(folder: Path, prefix: str, kind: type[T]) -> T:
    """The dataclass that `save_arrays` wrote, memory-mapped."""
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return kind(**{n: np.load(folder / f"{prefix}.{n}.npy", mmap_mode="r") for n in names})


def array_bytes(record: Any) -> bytes:
    """All that `save_arrays` would write of a record, for a hash over its content."""
    return b"".join(np.ascontiguousarray(getattr(record, f.name)).tobytes() for f in fields(record))


def save_table(folder: Path, columns: Any) -> None:
    """Columns (a mapping, or an Arrow table) as a `datasets` table, without its progress bars
    between our own lines.
    """
    import datasets  # takes longer than a round of training: only who writes or reads a table pays

    was = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bar()
    try:
        table = (
            datasets.Dataset.from_dict(columns)
            if isinstance(columns, Mapping)
            else datasets.Dataset(columns)
        )
        table.save_to_disk(str(folder))
    finally:
        if was:
            datasets.enable_progress_bar()


def load_table(folder: Path) -> Any:
    """A `datasets.Dataset`, memory-mapped."""
    import datasets

    return datasets.load_from_disk(str(folder))
