"""Public documents for an encoder's start: relations by their names, and nothing that CDR has."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from bench.studies.public_documents import write
from corpora.document.read import load

ROW = {
    "docid": "1",
    "title": "Abx.",
    "abstract": "It caused pain.",
    "entity": [
        {"start": 0, "end": 3, "mention": "Abx", "type": "Chemical", "id": "MESH:D1"},
        {"start": 15, "end": 19, "mention": "pain", "type": "Disease", "id": "MESH:D2"},
        {"start": 8, "end": 14, "mention": "caused", "type": "Gene", "id": "7"},
    ],
    "relation": [
        {"type": "chem_disease:marker/mechanism", "subj": "MESH:D1", "obj": "MESH:D2"},
        {"type": "chem_disease:therapeutic", "subj": "MESH:D1", "obj": "MESH:D9"},
        {"type": "chem_gene:affects^binding", "subj": "MESH:D1", "obj": "7"},
    ],
}


def test_as_pubtator_without_what_the_other_corpus_has(tmp_path: Path) -> None:
    source, apart, out = (tmp_path / name for name in ("source", "apart", "out"))
    source.mkdir()
    apart.mkdir()
    rows = [ROW | {"docid": str(i)} for i in range(1, 51)]
    (source / "curated.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    (apart / "test.txt.gz").write_bytes(gzip.compress(b"3|t|Abx.\n3|a|It caused pain.\n"))
    assert write(source, apart, out) == 1
    texts = [(out / f"{s}.txt").read_text("utf-8") for s in ("train", "dev", "test")]
    assert [t.count("|t|") for t in texts] == [7, 42, 42]
    assert "\n3|t|" not in "".join(texts)
    assert texts[0].startswith(
        "1|t|Abx.\n1|a|It caused pain.\n1\t0\t3\tAbx\tChemical\tD1\n1\t15\t19\tpain\tDisease\tD2\n1\tCID\tD1\tD2\n"
    )
    first = next(iter(load(str(out)).documents("train")))
    assert [p.relations for p in first.pairs] == [("CID",)]
    assert first.text[slice(*first.entities[1].mentions[0])] == "pain"
