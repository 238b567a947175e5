"""A silo's signed word that it put something real into a sum, and what a holder wants to see of
them.

Where a coordinator decides what each silo trains on, it can tell one silo that it has everything
and the others that they have nothing: the others send zeros under their masks, and "the sum" is one
silo's vector. In an exchange that declares `contributors`, a silo that contributes signs so, for
this sum alone (h). No holder helps to open the sum before it has seen such words of m + 2
survivors: at most m of them are lies, and two honest silos hide behind each other.

Only a word that it does contribute is ever signed. There is none to turn round, and one that is
kept back counts against the sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from crypto.derive import Label
from crypto.errors import Refusal
from crypto.identity.keys import Identity, verify
from crypto.sum import fields
from crypto.sum.setup_records import SIGNATURE_BYTES

__all__ = [
    "Words",
    "check_words",
    "is_word",
    "read_word",
    "read_words",
    "too_few",
    "word_of",
    "words_record",
]

Words = tuple[tuple[str, bytes], ...]  #: (silo, its word), sorted


def word_of(identity: Identity, h: bytes, silo: str) -> bytes:
    """Said once, with the upload that it speaks of."""
    return identity.sign(Label.CONTRIBUTES, h, silo.encode())


def is_word(key: bytes, word: bytes, h: bytes, silo: str) -> bool:
    return verify(key, word, Label.CONTRIBUTES, h, silo.encode())


def check_words(
    h: bytes,
    survivors: Collection[str],
    words: Words,
    needed: int,
    roster: Mapping[str, bytes],
) -> None:
    """Whether so many different survivors of the sum signed that they contribute."""
    found: set[str] = set()
    for silo, word in words:
        if len(found) == needed:
            break
        if silo in survivors and silo in roster and is_word(roster[silo], word, h, silo):
            found.add(silo)
    if len(found) < needed:
        raise Refusal(
            "few-contributors",
            f"{len(found)} of {len(survivors)} survivors signed that they contribute, and "
            f"{needed} must",
        )


def too_few(contribute: int, survivors: int, needed: int) -> str:
    """For the operator, why a sum stays closed."""
    return (
        f"{contribute} of {survivors} silos had enough to contribute, and at least {needed} must, or "
        "the sum could show what one of them sent"
    )


# As they travel: only where the sum asks for them


def words_record(words: Words) -> dict[str, Any]:
    return {"words": [list(pair) for pair in words]} if words else {}


def read_words(entries: Any) -> Words:
    words = fields.items("contributors' words", entries, _named_word)
    fields.names("contributors' words", [silo for silo, _ in words])
    return words


def _named_word(value: Any) -> tuple[str, bytes]:
    silo, word = fields.entry("a contributor's word", value, 2)
    return fields.silo_name(silo), read_word(word)


def read_word(value: Any, empty: bool = False) -> bytes:
    """A signature; with `empty`, also nothing, which is what a silo says that does not
    contribute.
    """
    return b"" if empty and value == b"" else fields.blob("a word", value, SIGNATURE_BYTES)
