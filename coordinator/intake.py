"""What silos upload in one exchange: sealed arrays, then words for the sum, each piece checked
before it is kept.

Nothing here counts before it is complete: of a silo that was cut off halfway, or that sent what was
not declared, neither its sealed arrays are handed out nor its words folded.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from coordinator.unmasked import ClearSum
from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.sum.coordinator import OpenSum
from crypto.sum.records import UploadRecord
from methods.base import Exchange
from wire import messages as m
from wire.bundle import Inbox

__all__ = ["Intake"]


class Intake:
    def __init__(
        self, exchange: Exchange, total: OpenSum | ClearSum | None, encoding: Encoding | None
    ) -> None:
        self._exchange, self._sum, self._encoding = exchange, total, encoding
        self._sealed: dict[str, Inbox] = {}

    def take(self, silo: str, message: m.Message, payload: Any) -> bool:
        """A message of a silo that may upload now; False where it is not one of an upload. Raises
        what is refused.
        """
        if isinstance(message, m.SealedStart) and silo not in self._sealed:
            self._sealed[silo] = self._inbox(message.arrays)
        elif isinstance(message, m.SumStart):
            self._begin_words(silo, message)
        elif isinstance(message, m.Chunk) and payload is not None:
            self._piece(silo, message, payload)
        else:
            return False
        return True

    def complete(self, silo: str) -> bool:
        return self._has_sealed(silo) and (self._sum is None or silo in self._sum.uploaded)

    def sealed(self, silos: Collection[str]) -> dict[str, dict[str, np.ndarray]]:
        """The sealed arrays of those of `silos` who owed some."""
        return {silo: dict(inbox.arrays()) for silo, inbox in self._sealed.items() if silo in silos}

    def _inbox(self, layout: list) -> Inbox:
        declared = self._exchange.sealed
        named = [entry[0] if isinstance(entry, list) and entry else None for entry in layout]
        if named != list(declared):
            raise Refusal("undeclared-upload", "sealed arrays other than the declared ones")
        inbox = Inbox(layout, self._exchange.sealed_bytes)
        for (_, dtype, shape), spec in zip(layout, declared.values()):
            fits = len(shape) == len(spec.shape) and all(
                w is None or w == g for w, g in zip(spec.shape, shape)
            )
            if fits and any(w is None and g > spec.most for w, g in zip(spec.shape, shape)):
                raise Refusal("oversize", f"a sealed array longer than {spec.most}, as declared")
            if not fits or np.dtype(dtype) != np.dtype(spec.dtype):
                raise Refusal(
                    "wrong-shape", "a sealed array of another shape or type than declared"
                )
        return inbox

    def _begin_words(self, silo: str, message: m.SumStart) -> None:
        if self._sum is None:
            raise Refusal("undeclared-upload", "words for a sum in an exchange without one")
        # once its words are in the sum, what else it owes could stay out
        if not self._has_sealed(silo):
            raise Refusal("wrong-shape", "words for the sum before the sealed arrays")
        if isinstance(self._sum, OpenSum):
            record = UploadRecord.from_record(message.record)
            if record.silo != silo:
                raise Refusal(
                    "key-substitution", f"{silo} sent an upload in the name of {record.silo}"
                )
            self._sum.begin_upload(record)
        else:
            self._sum.begin(silo)

    def _piece(self, silo: str, message: m.Chunk, payload: Any) -> None:
        if len(payload) > m.FRAME_BYTES:
            raise Refusal("oversize", f"a piece of {len(payload)} bytes, more than {m.FRAME_BYTES}")
        if message.stream == "sealed" and silo in self._sealed:
            self._sealed[silo].add(message.index, payload)
        elif message.stream == "masked" and self._sum is not None and self._encoding is not None:
            if len(payload) % 8:
                raise Refusal("wrong-shape", "a frame that is not whole words")
            self._sum.add_frame(silo, message.index, np.frombuffer(payload, "<u8"))
            if message.index == self._encoding.frames - 1:
                self._sum.finish_upload(silo)
        else:
            raise Refusal(
                "wrong-shape", f"a piece of {message.stream[:20]!r} that was not announced"
            )

    def _has_sealed(self, silo: str) -> bool:
        return not self._exchange.sealed or (silo in self._sealed and self._sealed[silo].complete)
