"""CURVE transport keys: who may open a connection to the coordinator, and which coordinator a silo
dials.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import zmq

from crypto.identity.keyfile import KeyFileError, read_secret, write_secret

__all__ = ["CurveKeys"]


@dataclass(frozen=True)
class CurveKeys:
    public: bytes  #: Z85, 40 characters
    secret: bytes

    def __repr__(self) -> str:  # a key pair that gets into a log line shows only its public half
        return f"CurveKeys({self.public.decode()})"

    @classmethod
    def generate(cls) -> CurveKeys:
        public, secret = zmq.curve_keypair()
        return cls(public, secret)

    def save(self, path: Path, passphrase: str = "") -> None:
        """Mode 0600; an existing file is never touched."""
        write_secret(path, "curve", self.public + b"\n" + self.secret + b"\n", passphrase)

    @classmethod
    def load(cls, path: Path, passphrase: str = "") -> CurveKeys:
        content = read_secret(path, "curve", passphrase)
        try:
            public, secret = content.split()
            if zmq.curve_public(secret) != public:
                raise ValueError
        except (ValueError, zmq.ZMQError):
            raise KeyFileError(f"{path} is not a key file of this program, or is damaged") from None
        return cls(public, secret)
