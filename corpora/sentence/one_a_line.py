"""Formats of sentence-relation corpora that have one example a line. Each parser takes a line,
or its JSON object, and gives the example.

* **Our own JSON lines**, for anybody's data. One object a line: `{"text": "...", "head": {"start":
  4, "end": 11, "type": "drug"}, "tail": {"start": 20, "end": 28, "type": "disease"}, "relation":
  "treats"}`. Offsets count characters, the end is exclusive; `"relation": null` or `"None"` says
  there is none; `type` may be left out (it is then "entity"). Files: `train.jsonl`, `test.jsonl`,
  and `dev.jsonl` if there is one.
* **Blinded TSV** (BioBERT's GAD and EU-ADR, PGR's expert test): sentence with `@GENE$` and
  `@DISEASE$`, a tab, 0 or 1; test files have a header and an index column.
* **ChemProt JSON lines**: `text` with the entities in `<< >>` and `[[ ]]`, `label` one of thirteen
  names, which the challenge groups as CPR:3, 4, 5, 6 and 9.
* **PGR TSV**: a header, then sentence, gene and phenotype with character offsets, True or False.
"""

from __future__ import annotations

import re
from typing import Any

from corpora.relations import names_of
from corpora.sentence.table import Example

__all__ = ["CPR", "FALSE", "NONE", "TRUE", "blinded", "chemprot", "own", "pgr"]

NONE, FALSE, TRUE = "None", "false", "true"
_BLIND = re.compile(r"@([A-Z]+)\$")
#: ChemProt's label names -> the groups that the challenge evaluates (Krallinger et al. 2017, Table
#: 2)
CPR = {
    "UPREGULATOR": "CPR:3",
    "ACTIVATOR": "CPR:3",
    "INDIRECT-UPREGULATOR": "CPR:3",
    "DOWNREGULATOR": "CPR:4",
    "INHIBITOR": "CPR:4",
    "INDIRECT-DOWNREGULATOR": "CPR:4",
    "AGONIST": "CPR:5",
    "AGONIST-ACTIVATOR": "CPR:5",
    "AGONIST-INHIBITOR": "CPR:5",
    "ANTAGONIST": "CPR:6",
    "SUBSTRATE": "CPR:9",
    "PRODUCT-OF": "CPR:9",
    "SUBSTRATE_PRODUCT-OF": "CPR:9",
}


def own(item: Any) -> Example:
    if not isinstance(item, dict):
        raise ValueError("not a JSON object")
    spans = []
    for which in ("head", "tail"):
        entity = item[which]
        start, end = entity["start"], entity["end"]
        if type(start) is not int or type(end) is not int:
            raise ValueError(f"start and end of the {which} must be whole numbers")
        spans.append(((start, end), str(entity.get("type") or "entity")))
    relations = names_of(item["relation"])
    if len(relations) > 1:
        raise ValueError(f"{len(relations)} relations ({', '.join(relations)}) of one pair")
    (head, head_type), (tail, tail_type) = spans
    return Example(
        str(item["text"]),
        head,
        tail,
        head_type,
        tail_type,
        relations[0] if relations else NONE,
    )


def blinded(line: str) -> Example:
    """A sentence in which both entities are already replaced by their type; the last column is 0 or
    1.
    """
    fields = line.split("\t")
    if len(fields) not in (2, 3):
        raise ValueError(f"{len(fields)} columns where two, or three with an index, are expected")
    text, label = fields[-2], fields[-1].strip()
    if label not in ("0", "1"):
        raise ValueError(f'the label is "{label}", not 0 or 1')
    found = list(_BLIND.finditer(text))
    if len(found) != 2:
        raise ValueError(f"{len(found)} blinded entities where two are expected")
    a, b = found if found[0][1] == "GENE" else reversed(found)
    return Example(
        text, a.span(), b.span(), a[1].lower(), b[1].lower(), TRUE if label == "1" else FALSE
    )


def chemprot(item: Any) -> Example:
    """Markers are taken out of the text; `[[ ]]` is the first argument, whichever comes first."""
    label = str(item["label"])
    if label not in CPR:
        raise ValueError(
            f'the label "{label}" is in none of ChemProt\'s groups; marked:FOLDER reads labels as they are'
        )
    text, at, spans = str(item["text"]), 0, {}
    plain = ""
    opened: dict[str, int] = {}
    for m in re.finditer(r"<< | >>|\[\[ | \]\]", text):
        plain += text[at : m.start()]
        at = m.end()
        kind = "<" if m[0].strip() in ("<<", ">>") else "["
        if m[0].strip() in ("<<", "[["):
            opened[kind] = len(plain)
        elif kind in opened:
            spans[kind] = (opened[kind], len(plain))
    plain += text[at:]
    if set(spans) != {"<", "["}:
        raise ValueError("the text does not have one << >> and one [[ ]]")
    return Example(plain, spans["["], spans["<"], "entity", "entity", CPR[label])


def pgr(line: str) -> Example:
    fields = line.split("\t")
    if len(fields) != 11:
        raise ValueError(f"{len(fields)} columns where eleven are expected")
    text, label = fields[1], fields[10].strip()
    if label not in ("True", "False"):
        raise ValueError(f'the relation is "{label}", not True or False')
    a, b, c, d = (int(f) for f in fields[6:10])
    return Example(text, (a, b), (c, d), "gene", "disease", label.lower())
