"""Files of NER corpora, made for a test."""

from __future__ import annotations

import gzip
from pathlib import Path

__all__ = ["line2012", "write"]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return path


def line2012(word: str, name: str, document: str = "nw/wsj/24/wsj_2400") -> str:
    return f"{document} 0 1 {word} NN * - - - - {name} -"
