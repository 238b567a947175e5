"""The silo's transition table: every call that is allowed in every state, and what any other is
refused as.

    NEW -offer-> OFFERED -keys-> KEYED -nonces-> READY READY -begin-> OPEN -upload-> UPLOADED
    -endorse-> ENDORSED -release-> RELEASED -end round-> READY
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

__all__ = ["ILLEGAL", "TRANSITIONS", "Call", "SiloState"]


class SiloState(Enum):
    NEW = "new"
    OFFERED = "offered"
    KEYED = "keyed"
    READY = "ready"
    OPEN = "open"
    UPLOADED = "uploaded"
    ENDORSED = "endorsed"
    RELEASED = "released"


class Call(Enum):
    OFFER = "offer"
    KEYS = "receive_keys"
    NONCES = "receive_nonces"
    BEGIN = "begin"
    UPLOAD = "upload"
    ENDORSE = "endorse"
    RELEASE = "release"
    END_ROUND = "end_round"
    ABANDON = "abandon"


_S = SiloState
TRANSITIONS: Mapping[tuple[SiloState, Call], SiloState] = {
    (_S.NEW, Call.OFFER): _S.OFFERED,
    (_S.OFFERED, Call.KEYS): _S.KEYED,
    (_S.KEYED, Call.NONCES): _S.READY,
    # A new header abandons whatever was open; what was released stays released.
    (_S.READY, Call.BEGIN): _S.OPEN,
    (_S.OPEN, Call.BEGIN): _S.OPEN,
    (_S.UPLOADED, Call.BEGIN): _S.OPEN,
    (_S.ENDORSED, Call.BEGIN): _S.OPEN,
    (_S.RELEASED, Call.BEGIN): _S.OPEN,
    (_S.OPEN, Call.UPLOAD): _S.UPLOADED,
    # A silo that has not uploaded opens nothing: whoever opens a sum is in it.
    (_S.UPLOADED, Call.ENDORSE): _S.ENDORSED,
    (_S.UPLOADED, Call.RELEASE): _S.RELEASED,
    (_S.ENDORSED, Call.RELEASE): _S.RELEASED,
    (_S.READY, Call.END_ROUND): _S.READY,
    (_S.OPEN, Call.END_ROUND): _S.READY,
    (_S.UPLOADED, Call.END_ROUND): _S.READY,
    (_S.ENDORSED, Call.END_ROUND): _S.READY,
    (_S.RELEASED, Call.END_ROUND): _S.READY,
    (_S.READY, Call.ABANDON): _S.READY,
    (_S.OPEN, Call.ABANDON): _S.READY,
    (_S.UPLOADED, Call.ABANDON): _S.READY,
    (_S.ENDORSED, Call.ABANDON): _S.READY,
}

_SETUP = (_S.NEW, _S.OFFERED, _S.KEYED)
#: What any other call is refused as: the attack that it would be part of.
ILLEGAL: Mapping[tuple[SiloState, Call], str] = {
    **{(state, Call.OFFER): "key-substitution" for state in _S},
    **{(state, Call.KEYS): "key-substitution" for state in _S},
    **{(state, Call.NONCES): "graph-steering" for state in _S},
    **{
        (state, call): "undeclared-upload"
        for state in _SETUP
        for call in (Call.BEGIN, Call.END_ROUND, Call.ABANDON)
    },
    **{(state, Call.UPLOAD): "undeclared-upload" for state in (*_SETUP, _S.READY)},
    (_S.UPLOADED, Call.UPLOAD): "replay",
    (_S.ENDORSED, Call.UPLOAD): "late-share",
    (_S.RELEASED, Call.UPLOAD): "second-sum",
    **{(state, Call.ENDORSE): "late-share" for state in (*_SETUP, _S.READY)},
    (_S.OPEN, Call.ENDORSE): "second-sum",
    (_S.OPEN, Call.RELEASE): "second-sum",
    (_S.ENDORSED, Call.ENDORSE): "split-view",
    (_S.RELEASED, Call.ENDORSE): "split-view",
    **{(state, Call.RELEASE): "late-share" for state in (*_SETUP, _S.READY)},
    (_S.RELEASED, Call.RELEASE): "both-shares",
    (_S.RELEASED, Call.ABANDON): "second-sum",
}
