"""Identities, key files, framing and sealing: bad input first."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from crypto.derive import Label, derive, digest, frame
from crypto.identity.keys import Identity, KeyFileError, verify
from crypto.sum.seal import open_blob, seal_blob


def test_signatures_are_bound_to_key_label_and_parts() -> None:
    identity, other = Identity.generate(), Identity.generate()
    signature = identity.sign(Label.OFFER, b"ab", b"c")
    assert len(signature) == 64 and len(identity.public) == 32
    assert verify(identity.public, signature, Label.OFFER, b"ab", b"c")
    assert not verify(other.public, signature, Label.OFFER, b"ab", b"c")
    assert not verify(identity.public, signature, Label.REVEAL, b"ab", b"c")
    assert not verify(identity.public, signature, Label.OFFER, b"a", b"bc")
    assert not verify(identity.public, signature, Label.OFFER, b"abc")
    assert not verify(identity.public, signature, Label.OFFER, b"ab", b"c", b"")
    assert not verify(identity.public, b"short", Label.OFFER, b"ab", b"c")
    assert not verify(b"short", signature, Label.OFFER, b"ab", b"c")


def test_labels_are_a_closed_list() -> None:
    with pytest.raises(ValueError):
        frame("anything", b"")
    values = [label.value for label in Label]
    assert len(set(values)) == len(values)


def test_derivations_differ_by_label_and_parts() -> None:
    made = {
        derive(b"s", Label.EDGE, b"h"),
        derive(b"s", Label.SEAL, b"h"),
        derive(b"s", Label.EDGE, b"h", b""),
    }
    assert len(made) == 3
    assert derive(b"s", Label.EDGE, length=16) == derive(b"s", Label.EDGE)[:16]
    assert digest(Label.EDGE) != derive(b"", Label.EDGE)
    for length in (0, 33):
        with pytest.raises(ValueError):
            derive(b"s", Label.EDGE, length=length)


def test_key_files(tmp_path: Path) -> None:
    identity = Identity.generate()
    path = tmp_path / "silo.key"
    identity.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.load(path).public == identity.public
    with pytest.raises(KeyFileError, match="never overwritten"):
        Identity.generate().save(path)
    assert Identity.load(path).public == identity.public
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(KeyFileError, match="readable by others .* chmod 600"):
            Identity.load(path)


def test_key_files_with_an_open_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Identity.generate().save(tmp_path / "k")
    finally:
        os.umask(before)
    Identity.load(tmp_path / "k")


HEAD = b"sottovoce-identity-1\n"


@pytest.mark.parametrize("content", [b"", b"x", HEAD, b"\xff\xfe", HEAD + b"00 11\n"])
def test_files_that_are_no_key_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "k"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="not a key file"):
        Identity.load(path)


def test_a_damaged_key_file(tmp_path: Path) -> None:
    path = tmp_path / "k"
    Identity(bytes(32)).save(path)
    path.write_bytes(path.read_bytes().replace(b"\n0", b"\n1", 1))
    with pytest.raises(KeyFileError, match="damaged"):
        Identity.load(path)
    with pytest.raises(KeyFileError, match="cannot be read"):
        Identity.load(tmp_path / "missing")
    with pytest.raises(KeyFileError, match="cannot be written"):
        Identity(bytes(32)).save(tmp_path / "no" / "folder")


def test_a_secret_is_not_printed() -> None:
    identity = Identity(b"S" * 32)
    assert (b"S" * 32).hex() not in repr(identity) and "SSSS" not in repr(identity)
    with pytest.raises(ValueError):
        Identity(b"short")


def test_blobs_are_bound_to_everything_around_them() -> None:
    secret, h = b"s" * 32, b"h" * 32
    blob = seal_blob(secret, h, "a", "b", b"content", b"public")
    assert open_blob(secret, h, "a", "b", blob, b"public") == b"content"
    assert open_blob(b"t" * 32, h, "a", "b", blob, b"public") is None
    assert open_blob(secret, bytes(32), "a", "b", blob, b"public") is None
    assert open_blob(secret, h, "b", "a", blob, b"public") is None
    assert open_blob(secret, h, "a", "c", blob, b"public") is None
    assert open_blob(secret, h, "a", "b", blob, b"Public") is None
    for at in range(len(blob)):
        broken = blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]
        assert open_blob(secret, h, "a", "b", broken, b"public") is None
    assert open_blob(secret, h, "a", "b", b"", b"public") is None
