"""`python -m bench.studies.public_documents CHEMDISGENE CDR OUT`: public documents for an encoder's
start, in a folder that CORPUS can name.

ChemDisGene's curated abstracts (Zhang et al. 2022, LREC) as PubTator: chemicals, diseases and their
relations, `marker/mechanism` as CID, `therapeutic` as another one. Abstracts that CDR has too, in
any of its splits, are left out.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["as_pubtator", "write"]

_TYPES = ("Chemical", "Disease")
_RELATIONS = {"chem_disease:marker/mechanism": "CID", "chem_disease:therapeutic": "TREATS"}
_HELD_OUT = 42  #: the last ones: a run cannot be made without dev and test


def as_pubtator(row: Mapping[str, Any]) -> str:
    name, title, abstract = row["docid"], row["title"], row["abstract"]
    lines = [f"{name}|t|{title}", f"{name}|a|{abstract}"]
    for e in row["entity"]:
        if e["type"] in _TYPES:
            place = (str(e["start"]), str(e["end"]))
            lines.append("\t".join((name, *place, e["mention"], e["type"], _concept(e["id"]))))
    known = {e["id"] for e in row["entity"]}
    found = {
        (_RELATIONS[r["type"]], r["subj"], r["obj"])
        for r in row["relation"]
        if r["type"] in _RELATIONS and {r["subj"], r["obj"]} <= known
    }
    lines += ["\t".join((name, r, _concept(a), _concept(b))) for r, a, b in sorted(found)]
    return "\n".join(lines) + "\n"


def _concept(name: str) -> str:
    return name.removeprefix("MESH:")


def _read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")


def _named(folder: Path) -> Iterator[str]:
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        yield from re.findall(r"^(\d+)\|t\|", _read(path), re.M)


def write(source: Path, apart: Path, out: Path) -> int:
    """Returns how many abstracts were left out."""
    (file,) = sorted(source.glob("*.json*"))
    rows, taken = json.loads(_read(file)), set(_named(apart))
    kept = [as_pubtator(row) for row in rows if row["docid"] not in taken]
    out.mkdir(parents=True, exist_ok=True)
    (out / "train.txt").write_text("\n".join(kept[:-_HELD_OUT]) + "\n", "utf-8")
    for split in ("dev", "test"):
        (out / f"{split}.txt").write_text("\n".join(kept[-_HELD_OUT:]) + "\n", "utf-8")
    return len(rows) - len(kept)


if __name__ == "__main__":
    gone = write(*map(Path, sys.argv[1:4]))
    print(f"{gone} abstracts left out")
