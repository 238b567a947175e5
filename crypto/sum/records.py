"""Everything that is said during setup and during a sum, as frozen records that check themselves on
arrival.

`to_record` gives plain dicts, lists, bytes and numbers for msgpack; `from_record` trusts nothing:
not a type, not a length, not a count. Signatures are made and checked over the framed fields, never
over serialised bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from crypto.derive import Label, digest, name_list, number
from crypto.numbers.encoding import Encoding
from crypto.numbers.shamir import SHARE_BYTES
from crypto.sum import fields
from crypto.sum.contribution import Words, read_word, read_words, words_record
from crypto.sum.setup_records import (
    NONCE_BYTES,
    SIGNATURE_BYTES,
    KeyList,
    KeyOffer,
    NonceList,
    NonceReveal,
    agreement,
    session_id,
)

__all__ = [
    "NONCE_BYTES",
    "Endorsement",
    "KeyList",
    "KeyOffer",
    "NonceList",
    "NonceReveal",
    "Proposal",
    "ShareRelease",
    "SumHeader",
    "UnmaskRequest",
    "UploadRecord",
    "agreement",
    "session_id",
    "survivors_digest",
]

#: One blob: for each of at most MOST_SILOS seeds a share and its tag, and the seal.
_MOST_BLOB = fields.MOST_SILOS * (SHARE_BYTES + 8) + 64


@dataclass(frozen=True)
class SumHeader:
    """The whole context of one sum. `h`, its hash, goes into every mask, seal and signature of the
    sum.
    """

    sid: bytes
    round: int
    exchange: str
    number: int  #: above every earlier sum's of the run
    broadcast: bytes  #: hash of everything that was broadcast for this sum
    alive: tuple[str, ...]
    encoding: Encoding
    weight_cap: float
    #: How many survivors must have signed that they put something real into it (contribution.py);
    #: 0, and then nowhere in h or on the wire: the method does not ask for it.
    contributors: int = 0

    @cached_property
    def h(self) -> bytes:
        e = self.encoding
        asked = (number(self.contributors),) if self.contributors else ()
        return digest(
            Label.CONTEXT,
            self.sid,
            number(self.round),
            self.exchange.encode(),
            number(self.number),
            self.broadcast,
            name_list(self.alive),
            number(e.lane_bits),
            number(e.parties),
            b"".join(number(size) for size in e.sizes),
            b"".join(float(r).hex().encode() + b"\n" for r in e.ranges),
            e.rounding.encode(),
            number(int(e.rotate)),
            float(self.weight_cap).hex().encode(),
            *asked,
        )

    def to_record(self) -> dict[str, Any]:
        asked = {"contributors": self.contributors} if self.contributors else {}
        return {
            "sid": self.sid,
            "round": self.round,
            "exchange": self.exchange,
            "number": self.number,
            "broadcast": self.broadcast,
            "alive": list(self.alive),
            "encoding": self.encoding.to_record(),
            "weight_cap": float(self.weight_cap),
            **asked,
        }

    @classmethod
    def from_record(cls, record: Any) -> SumHeader:
        r = fields.only(
            "sum header",
            record,
            *("sid", "round", "exchange", "number", "broadcast", "alive", "encoding", "weight_cap"),
            perhaps="contributors",
        )
        return cls(
            sid=fields.blob("a session id", r["sid"], 32),
            round=fields.whole("a round", r["round"]),
            exchange=fields.text("an exchange", r["exchange"]),
            number=fields.whole("a sum's number", r["number"]),
            broadcast=fields.blob("a broadcast's hash", r["broadcast"], 32),
            alive=fields.names("the alive set", r["alive"]),
            encoding=Encoding.from_record(r["encoding"]),
            weight_cap=fields.real("a weight cap", r["weight_cap"]),
            contributors=fields.whole("a number of contributors", r.get("contributors", 0)),
        )


@dataclass(frozen=True)
class UploadRecord:
    """What goes before a masked vector: sealed shares for the holders and commitments to the seeds
    behind it.

    `commitments` are 32 bytes each: first of the self mask's seed, then of each edge's in order of
    neighbours. A blob is 8 bytes of tag per share in the clear, then the sealed shares in the same
    order.
    """

    h: bytes
    silo: str
    blobs: tuple[tuple[str, bytes], ...]  #: (holder, blob), sorted
    commitments: tuple[bytes, ...]
    signature: bytes
    #: Where the header asks for contributors: the silo's signed word that it is one; empty: it is
    #: none.
    word: bytes | None = None

    @staticmethod
    def signed_parts(
        h: bytes,
        silo: str,
        blobs: Sequence[tuple[str, bytes]],
        commitments: Sequence[bytes],
        word: bytes | None = None,
    ) -> tuple[bytes, ...]:
        inside = digest(
            Label.UPLOAD, *(part for holder, blob in blobs for part in (holder.encode(), blob))
        )
        said = () if word is None else (word,)
        return h, silo.encode(), inside, b"".join(commitments), *said

    def to_record(self) -> dict[str, Any]:
        said = {} if self.word is None else {"word": self.word}
        return {
            "h": self.h,
            "silo": self.silo,
            "blobs": [list(pair) for pair in self.blobs],
            "commitments": list(self.commitments),
            "signature": self.signature,
            **said,
        }

    @classmethod
    def from_record(cls, record: Any) -> UploadRecord:
        names = ("h", "silo", "blobs", "commitments", "signature")
        r = fields.only("upload", record, *names, perhaps="word")
        blobs = fields.items("an upload's blobs", r["blobs"], _named_blob)
        fields.names("an upload's blobs", [holder for holder, _ in blobs])
        return cls(
            fields.blob("a sum's hash", r["h"], 32),
            fields.silo_name(r["silo"]),
            blobs,
            fields.items(
                "commitments", r["commitments"], lambda c: fields.blob("a commitment", c, 32)
            ),
            fields.blob("a signature", r["signature"], SIGNATURE_BYTES),
            read_word(r["word"], empty=True) if "word" in r else None,
        )


def survivors_digest(survivors: tuple[str, ...]) -> bytes:
    return digest(Label.SURVIVORS, name_list(survivors))


@dataclass(frozen=True)
class Proposal:
    """The survivor set that a holder is asked to sign, and the survivors' blobs that are addressed
    to it.
    """

    h: bytes
    survivors: tuple[str, ...]
    blobs: tuple[tuple[str, bytes], ...]  #: (from, blob), sorted
    words: Words = ()  #: of as many of the survivors as must contribute, where some must

    def to_record(self) -> dict[str, Any]:
        return {
            "h": self.h,
            "survivors": list(self.survivors),
            "blobs": [list(pair) for pair in self.blobs],
            **words_record(self.words),
        }

    @classmethod
    def from_record(cls, record: Any) -> Proposal:
        r = fields.only("proposal", record, "h", "survivors", "blobs", perhaps="words")
        return cls(
            fields.blob("a sum's hash", r["h"], 32),
            fields.names("the survivors", r["survivors"]),
            _inbox(r["blobs"]),
            read_words(r.get("words", ())),
        )


@dataclass(frozen=True)
class Endorsement:
    """A holder's signature on (h, S): given once per sum."""

    h: bytes
    silo: str
    signature: bytes

    @staticmethod
    def signed_parts(h: bytes, silo: str, survivors: bytes) -> tuple[bytes, ...]:
        """`survivors` is their digest: made once, however many signatures are checked."""
        return h, silo.encode(), survivors

    def to_record(self) -> dict[str, Any]:
        return {"h": self.h, "silo": self.silo, "signature": self.signature}

    @classmethod
    def from_record(cls, record: Any) -> Endorsement:
        r = fields.only("endorsement", record, "h", "silo", "signature")
        return cls(
            fields.blob("a sum's hash", r["h"], 32),
            fields.silo_name(r["silo"]),
            fields.blob("a signature", r["signature"], SIGNATURE_BYTES),
        )


@dataclass(frozen=True)
class UnmaskRequest:
    """The certified survivor set; for a holder that did not sign it, the blobs that it would have
    had before.
    """

    h: bytes
    survivors: tuple[str, ...]
    endorsements: tuple[Endorsement, ...]
    blobs: tuple[tuple[str, bytes], ...]  #: (from, blob), sorted
    words: Words = ()  #: as in a proposal, for a holder that did not sign

    def to_record(self) -> dict[str, Any]:
        return {
            "h": self.h,
            "survivors": list(self.survivors),
            "endorsements": [e.to_record() for e in self.endorsements],
            "blobs": [list(pair) for pair in self.blobs],
            **words_record(self.words),
        }

    @classmethod
    def from_record(cls, record: Any) -> UnmaskRequest:
        names = ("h", "survivors", "endorsements", "blobs")
        r = fields.only("unmask request", record, *names, perhaps="words")
        return cls(
            fields.blob("a sum's hash", r["h"], 32),
            fields.names("the survivors", r["survivors"]),
            fields.items("endorsements", r["endorsements"], Endorsement.from_record),
            _inbox(r["blobs"]),
            read_words(r.get("words", ())),
        )


@dataclass(frozen=True)
class ShareRelease:
    """A holder's shares: of b_u for the survivors, and of r_uv for edges from a survivor u to a
    dropped v.
    """

    h: bytes
    holder: str
    self_shares: tuple[tuple[str, bytes], ...]
    pair_shares: tuple[tuple[str, str, bytes], ...]

    def to_record(self) -> dict[str, Any]:
        return {
            "h": self.h,
            "holder": self.holder,
            "self_shares": [list(entry) for entry in self.self_shares],
            "pair_shares": [list(entry) for entry in self.pair_shares],
        }

    @classmethod
    def from_record(cls, record: Any) -> ShareRelease:
        r = fields.only("share release", record, "h", "holder", "self_shares", "pair_shares")
        most = fields.MOST_SILOS * 256
        return cls(
            fields.blob("a sum's hash", r["h"], 32),
            fields.silo_name(r["holder"]),
            fields.items("self shares", r["self_shares"], _self_share),
            fields.items("pair shares", r["pair_shares"], _pair_share, most),
        )


def _inbox(entries: Any) -> tuple[tuple[str, bytes], ...]:
    blobs = fields.items("a holder's blobs", entries, _named_blob)
    fields.names("a holder's blobs", [sender for sender, _ in blobs])
    return blobs


def _named_blob(entry: Any) -> tuple[str, bytes]:
    name, blob = fields.entry("a blob", entry, 2)
    return fields.silo_name(name), fields.blob("a blob", blob, most=_MOST_BLOB)


def _self_share(entry: Any) -> tuple[str, bytes]:
    owner, share = fields.entry("a self share", entry, 2)
    return fields.silo_name(owner), fields.blob("a share", share, SHARE_BYTES)


def _pair_share(entry: Any) -> tuple[str, str, bytes]:
    owner, other, share = fields.entry("a pair share", entry, 3)
    return (
        fields.silo_name(owner),
        fields.silo_name(other),
        fields.blob("a share", share, SHARE_BYTES),
    )
