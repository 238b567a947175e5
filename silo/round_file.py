"""What a silo has of the round at hand, on its disk, where a sum may be opened before the round's last
exchange.

Such a round cannot begin again: what is in the model stays there. So a silo that is killed between
two exchanges must find, when it is started again, what the first one left. It is what it would still
have had in memory, and goes when that would go: when an exchange is told again, and at the round's
end. Like the silo's memory it is never sent. Methods whose exchanges leave anything but arrays and
bytes are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from methods.common.arrays import save_arrays

__all__ = ["KeptRound", "RoundFile"]


@dataclass(frozen=True)
class KeptRound:
    round: int
    answered: Mapping[int, bytes]  #: exchange -> digest of the broadcast that it was answered on
    carried: Mapping[int, Mapping[str, Any]]  #: exchange -> what its answer left for later ones
    #: exchange -> whose answers are in its sum
    certified: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    sums: Mapping[bytes, int] = field(default_factory=dict)  #: context hash of a sum -> exchange


def _is_plain(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub"


class RoundFile:
    def __init__(self, path: Path | None) -> None:
        """None: nothing is kept (a simulation, whose silos are not started again)."""
        self._path = path

    @property
    def keeps(self) -> bool:
        return self._path is not None

    def write(self, kept: KeptRound) -> None:
        """On the disk when this returns. What cannot be kept leaves no file."""
        if self._path is None:
            return
        arrays: dict[str, np.ndarray] = {}
        words: list[list[Any]] = []
        for exchange, carry in kept.carried.items():
            for name, value in carry.items():
                if isinstance(value, bytes) or (isinstance(value, Mapping) and not value):
                    words.append([exchange, name, value if isinstance(value, bytes) else {}])
                elif _is_plain(value):
                    arrays[f"{exchange}:array:{name}"] = value
                elif isinstance(value, Mapping) and all(map(_is_plain, value.values())):
                    arrays |= {f"{exchange}:table:{name}:{k}": a for k, a in value.items()}
                else:
                    self.forget()
                    return
        about = {
            "round": kept.round,
            "answered": [[k, digest] for k, digest in kept.answered.items()],
            "certified": [[k, list(silos)] for k, silos in kept.certified.items()],
            "sums": [[h, k] for h, k in kept.sums.items()],
            "words": words,
            "arrays": list(arrays),  # in their order, which the file does not keep
        }
        packed = np.frombuffer(msgpack.packb(about, use_bin_type=True), np.uint8)
        save_arrays(self._path, {**arrays, "about": packed})

    def read(self) -> KeptRound | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            arrays = load_file(self._path)
            about = msgpack.unpackb(arrays.pop("about").tobytes(), raw=False)
        except (SafetensorError, KeyError, ValueError, msgpack.UnpackException):
            return None  # not ours, or damaged: as if nothing had been kept
        answered = dict(about["answered"])
        carried: dict[int, dict[str, Any]] = {k: {} for k in answered}
        for exchange, name, value in about["words"]:
            carried[exchange][name] = value
        for key in about["arrays"]:
            exchange, kind, name = key.split(":", 2)
            if kind == "array":
                carried[int(exchange)][name] = arrays[key]
            else:
                table, _, inner = name.partition(":")
                carried[int(exchange)].setdefault(table, {})[inner] = arrays[key]
        return KeptRound(
            about["round"],
            answered,
            carried,
            {k: tuple(silos) for k, silos in about["certified"]},
            dict(about["sums"]),
        )

    def forget(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
