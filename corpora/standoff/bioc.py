"""BioC, as XML and as JSON: a collection of documents, of passages, of sentences or plain text.

Offsets count from the beginning of the document. An annotation has its type and its concept in
infons; a relation joins annotations (nodes), or says in infons which concepts it joins
(`entity1`/`entity2` in BioRED; a type's name and a concept in BC5CDR).

A document type definition may name BioC.dtd; one that declares entities is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from config.errors import UserError
from corpora.lines import beginning, parse_xml, plain_name, read_json
from corpora.notes import Notes
from corpora.standoff.offsets import located
from corpora.standoff.table import Link, Marked, Mention, Span

__all__ = ["bioc", "is_bioc"]

_CONCEPT_KEYS = (
    "identifier",
    "MESH",
    "MeSH",
    "mesh",
    "NCBI Gene",
    "concept_id",
    "database_id",
    "CUI",
)
_TYPE_KEYS = ("type", "semantic_type", "class")
_RELATION_KEYS = ("type", "relation", "relation type", "predicate")


def is_bioc(path: Path) -> bool:
    name = plain_name(path)
    if not name.endswith((".xml", ".json")):
        return False
    start = beginning(path, 4000)
    if name.endswith(".xml"):
        return "<collection" in start and "<document" in start
    return '"documents"' in start and '"source"' in start or '"bioctype"' in start


def bioc(path: Path, notes: Notes) -> Iterator[Marked]:
    """Every document of a collection."""
    collection = _xml(path) if plain_name(path).endswith(".xml") else _json(path, notes)
    for number, document in enumerate(collection, 1):
        try:
            yield _marked(document, str(path), notes)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
            what = f"missing {e}" if isinstance(e, KeyError) else str(e)
            raise UserError(f"{path}, document {number}: not BioC: {what}.") from None


def _json(path: Path, notes: Notes) -> list[dict[str, Any]]:
    found = read_json(path, notes)
    documents = found.get("documents") if isinstance(found, dict) else None
    if not isinstance(documents, list):
        raise UserError(f'{path}: a BioC collection has a list "documents".')
    return documents


def _xml(path: Path) -> list[dict[str, Any]]:
    """The same dictionaries as BioC JSON has."""
    return [_element(d) for d in parse_xml(path).iter("document")]


def _element(e: ElementTree.Element) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": e.get("id") or (e.findtext("id") or "").strip(),
        "infons": {i.get("key"): (i.text or "") for i in e.findall("infon")},
    }
    if e.find("offset") is not None:
        found["offset"] = int(e.findtext("offset") or 0)
    if e.find("text") is not None:
        found["text"] = e.findtext("text") or ""
    for many in ("passage", "sentence", "annotation", "relation"):
        found[f"{many}s"] = [_element(x) for x in e.findall(many)]
    found["locations"] = [
        {"offset": int(x.get("offset", "")), "length": int(x.get("length", ""))}
        for x in e.findall("location")
    ]
    found["nodes"] = [{"refid": x.get("refid"), "role": x.get("role")} for x in e.findall("node")]
    return found


def _marked(document: Mapping[str, Any], path: str, notes: Notes) -> Marked:
    id = str(document["id"])
    place = f"{path}, document {id}"
    text, sentences = "", []
    annotations: list[Mapping[str, Any]] = []
    relations: list[Mapping[str, Any]] = [*(document.get("relations") or [])]
    pieces = list(_pieces(document))
    for offset, piece, is_sentence, part in pieces:
        if offset < len(text):
            raise ValueError(f"the text at offset {offset} lies over the text before it")
        text += ("\n" if text and offset > len(text) else "").ljust(offset - len(text)) + piece
        if is_sentence:
            sentences.append((offset, offset + len(piece)))
        annotations += part.get("annotations") or []
        relations += part.get("relations") or []
    for passage in document.get("passages") or []:
        if passage.get("sentences"):  # marks may stand beside the sentences
            annotations += passage.get("annotations") or []
            relations += passage.get("relations") or []
    annotations += document.get("annotations") or []
    mentions = [m for a in annotations if (m := _mention(a, text, place, notes)) is not None]
    links, facts = _relations(relations, mentions, place, notes)
    whole = len(sentences) == len(pieces)
    return Marked(
        id, text, tuple(mentions), links, facts, tuple(sentences) if whole else (), place=place
    )


def _pieces(document: Mapping[str, Any]) -> Iterator[tuple[int, str, bool, Mapping[str, Any]]]:
    """(offset, text, whether it is a sentence, the element that has its marks)."""
    for passage in document["passages"]:
        if passage.get("sentences"):
            for s in passage["sentences"]:
                yield int(s["offset"]), str(s.get("text") or ""), True, s
        else:
            yield int(passage["offset"]), str(passage.get("text") or ""), False, passage


def _infon(infons: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((str(infons[k]) for k in keys if infons.get(k)), "")


def _concepts(infons: Mapping[str, Any]) -> tuple[str, ...]:
    text = _infon(infons, _CONCEPT_KEYS)
    parts = [p.strip() for p in re.split(r"[|;,]", text)]
    return tuple(dict.fromkeys(p for p in parts if p and p not in ("-1", "-")))


def _mention(a: Mapping[str, Any], text: str, place: str, notes: Notes) -> Mention | None:
    infons = a.get("infons") or {}
    spans: list[Span] = []
    where = [(int(x["offset"]), int(x["offset"]) + int(x["length"])) for x in a["locations"]]
    words = str(a.get("text") or "")
    if len(where) == 1 and words:
        found = located(text, *where[0], words, notes, place)
        if found is None:
            return None
        spans = [found]
    else:
        spans = sorted(where)
    kind = _infon(infons, _TYPE_KEYS) or "entity"
    return Mention(str(a["id"]), kind, tuple(spans), _concepts(infons))


def _relations(
    relations: Sequence[Mapping[str, Any]], mentions: Sequence[Mention], place: str, notes: Notes
) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
    links, facts = [], []
    concepts = {c for m in mentions for c in m.concepts}
    for r in relations:
        infons = {str(k): str(v) for k, v in (r.get("infons") or {}).items()}
        name = _infon(infons, _RELATION_KEYS) or "related"
        nodes = [str(n["refid"]) for n in r.get("nodes") or []]
        if len(nodes) == 2:
            links.append(Link(name, nodes[0], nodes[1]))
            continue
        ends = [infons[k] for k in ("entity1", "entity2") if k in infons]
        if not ends and not nodes:
            ends = [v for k, v in infons.items() if k not in _RELATION_KEYS and v in concepts]
        if len(ends) == 2:
            facts.append(Link(name, ends[0], ends[1]))
        else:
            said = "relations that do not join two annotations or two concepts"
            notes.add("skipped", said, example=f"{r.get('id')} {infons}", place=place)
    return tuple(links), tuple(facts)
