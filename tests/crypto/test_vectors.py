"""The committed test vectors: nothing in the protocol may change by accident."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crypto.derive import Label
from tests.crypto.make_vectors import PATH, make

KNOWN = json.loads(PATH.read_text())
MADE = json.loads(json.dumps(make()))


@pytest.mark.parametrize("part", ["primitives", "encodings", "graph", "session", "contribution"])
def test_everything_is_as_committed(part: str) -> None:
    assert MADE[part] == KNOWN[part]


def test_every_label_has_a_vector() -> None:
    assert set(KNOWN["primitives"]["digest"]) == {label.value for label in Label}


def test_derive_is_hkdf_as_another_library_has_it() -> None:
    for label, value in KNOWN["primitives"]["derive"].items():
        name = label.encode()
        info = b"".join(n.to_bytes(8, "big") for n in (2, len(name))) + name
        info += (2).to_bytes(8, "big") + b"ab" + (1).to_bytes(8, "big") + b"c"
        hkdf = HKDF(SHA256(), 32, salt=b"sottovoce/secagg/1", info=info)
        assert hkdf.derive(bytes(range(100, 132))).hex() == value
        assert (
            hashlib.sha256(b"sottovoce/secagg/1" + info).hexdigest()
            == KNOWN["primitives"]["digest"][label]
        )


def test_masks_are_aes_counter_mode() -> None:
    mask = KNOWN["primitives"]["mask"]
    for name, piece in (("first words", 0), ("words from 131072", 4)):
        cipher = Cipher(algorithms.AES(bytes.fromhex(mask["key"])), modes.ECB()).encryptor()
        blocks = b"".join(
            cipher.update(piece.to_bytes(12, "big") + (i + 2).to_bytes(4, "big")) for i in range(2)
        )
        assert [int.from_bytes(blocks[i : i + 8], "little") for i in range(0, 32, 8)] == mask[name]


def test_hmac_is_what_it_says() -> None:
    # RFC 4231, test case 2: the platform's HMAC-SHA-256 is the standard one.
    known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert hmac.digest(b"Jefe", b"what do ya want for nothing?", "sha256").hex() == known
