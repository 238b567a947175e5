"""The most bytes that a study's exchanges need at either end, from what its method declares.

Whoever is sent more refuses before it keeps a byte (`oversize`), or cuts the connection off
(wire.backlog).
"""

from __future__ import annotations

from typing import Any

from methods.base import Method

__all__ = ["broadcast_bytes", "upload_bytes"]

_WORD = 8  #: bytes that a masked number takes, at most
#: A broadcast has the model, and at most three arrays beside it for each of its parameters (control
#: variates, a second model); none of ours has more than one.
_TIMES = 4
_BESIDE = 1 << 20  #: tables of a few numbers per class or silo


def upload_bytes(method: Method) -> int:
    """One silo's answer to any exchange."""
    return max(
        sum(spec.size * _WORD for spec in e.masked.values()) + e.sealed_bytes
        for e in method.exchanges
    )


def broadcast_bytes(method: Method, task: Any) -> int:
    """What one silo is told in any exchange: some times the model, and what answers to the sealed
    entries whose number is the silo's own (which of them won).
    """
    declared = max(sum(4 * spec.size for spec in e.masked.values()) for e in method.exchanges)
    new_model = getattr(task, "new_model", None)
    model = sum(p.nbytes for p in new_model(0).parameters()) if new_model is not None else 0
    own = [s for e in method.exchanges for s in e.sealed.values() if None in s.shape]
    back = sum(max(_WORD * spec.most, spec.most_bytes) for spec in own)  # or the entries themselves
    return _TIMES * max(declared, model) + back + _BESIDE
