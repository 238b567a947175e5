"""Folders of documents made for a test, and what was read from them."""

from __future__ import annotations

import gzip
from pathlib import Path

from corpora.document.table import Document, DocumentCorpus


def folder_of(tmp_path: Path, train: str, test: str = "", **more: str) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir(exist_ok=True)
    (folder / "train.txt").write_text(train)
    with gzip.open(folder / "test.txt.gz", "wt") as f:
        f.write(test or train)
    for name, text in more.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def said(d: Document) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(d.entities[p.head].id, d.entities[p.tail].id): p.relations for p in d.pairs}


def only(corpus: DocumentCorpus, split: str = "test") -> Document:
    (d,) = corpus.documents(split)
    return d
