"""CURVE transport keys: who may open a connection to the coordinator, and which coordinator a silo dials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import zmq

__all__ = ["CurveKeys", "write_private"]


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

    def save(self, path: Path) -> None:
        write_private(path, self.public + b"\n" + self.secret + b"\n")

    @classmethod
    def load(cls, path: Path) -> CurveKeys:
        public, secret = path.read_bytes().split()
        return cls(public, secret)


def write_private(path: Path, content: bytes) -> None:
    """Create `path` readable by its owner alone; the file never exists with wider rights."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as f:
        f.write(content)
