"""What a silo keeps between rounds, on its own disk: what its method remembers, and with
KEEP_OPTIMIZER the state of its optimizer. Neither is ever sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import safe_open

from methods.base import Arrays
from methods.common.arrays import save_arrays
from methods.common.previous import previous_model, remembered
from wire.stored import Lazily

__all__ = ["MemoryFile", "OptimizerFile"]


@dataclass(frozen=True)
class MemoryFile:
    """Arrays a silo keeps between rounds, on its own disk: written beside and renamed, so never
    half there.

    They are of one study: another may promise privacy to what this one left in the clear.
    """

    path: Path | None  #: None: kept in memory only (the in-process runner)
    study: str = ""

    @property
    def folder(self) -> Path | None:
        return None if self.path is None else self.path.parent

    def read(self) -> Arrays:
        """Each array when it is looked up: none is in memory between rounds."""
        if self.path is None or not self.path.exists():
            return {}
        file = safe_open(self.path, "numpy").__enter__()  # stays the file that it was
        if (file.metadata() or {}).get("study", "") != self.study:
            return {}
        return Lazily(file.keys(), file.get_tensor)

    def kept(self, arrays: Arrays) -> Arrays:
        """The same from the disk, where there is one."""
        if self.path is None:
            return arrays
        save_arrays(self.path, arrays, {"study": self.study})
        return self.read()


class OptimizerFile:
    """KEEP_OPTIMIZER: the state that training left, beside the silo's memory and like it, with the
    round it is of: a round that is asked for again starts where it started before.
    """

    def __init__(self, memory: MemoryFile) -> None:
        path = None if memory.path is None else memory.path.with_name("optimizer.safetensors")
        self._file, self._held = replace(memory, path=path), {}  # type: tuple[MemoryFile, Arrays]
        self._next: Arrays | None = None

    def before(self, round: int) -> Arrays:
        self._next = None
        return previous_model(self._read(), round)

    def after(self, round: int, state: Callable[[], Arrays]) -> None:
        self._next = remembered(self._read(), round, state())

    def keep(self) -> None:
        """The answer stands: so does what its training left."""
        if self._next is not None:
            self._held = self._file.kept(self._next)
        self._next = None

    def _read(self) -> Arrays:
        return self._held or self._file.read()
