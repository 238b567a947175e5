"""Documents with concepts, one JSON object each: BigBio's `kb` schema, ChemDisGene, and DocBin's
binary cousin, spaCy's own files.

BigBio's offsets count from the beginning of the document; its passages are laid out by theirs. A
mention may have gaps and several concepts. Events and coreferences: the latter say which mentions are
one thing, the former are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.notes import Notes
from corpora.standoff.offsets import located
from corpora.standoff.table import Link, Marked, Mention, Span

__all__ = ["bigbio", "chemdisgene", "docbin", "is_bigbio", "is_chemdisgene"]


def is_bigbio(row: Mapping[str, Any]) -> bool:
    return {"passages", "entities", "relations"} <= set(row) and isinstance(row["passages"], list)


def bigbio(row: Mapping[str, Any], place: str, notes: Notes) -> Iterator[Marked]:
    text = ""
    for p in sorted(row["passages"], key=lambda p: p["offsets"][0][0]):
        words = p["text"][0] if isinstance(p["text"], list) else str(p["text"])
        start = int(p["offsets"][0][0])
        if start < len(text):
            raise ValueError(f"the passage at {start} lies over the one before it")
        text += ("\n" if text and start > len(text) else "").ljust(start - len(text)) + words
    mentions = []
    for e in row["entities"]:
        spans = _fragments(e, text, place, notes)
        concepts = tuple(
            dict.fromkeys(
                f"{n['db_name']}:{n['db_id']}" if n.get("db_name") else str(n["db_id"])
                for n in e.get("normalized") or []
                if n.get("db_id")
            )
        )
        if spans:
            mentions.append(Mention(str(e["id"]), str(e["type"]), spans, concepts))
    links = tuple(
        Link(str(r["type"]), str(r["arg1_id"]), str(r["arg2_id"])) for r in row["relations"]
    )
    same = [
        (str(c["entity_ids"][0]), str(other))
        for c in row.get("coreferences") or []
        for other in c["entity_ids"][1:]
    ]
    for event in row.get("events") or []:
        notes.add(
            "skipped", "events", example=f"{event.get('id')} {event.get('type')}", place=place
        )
    id = str(row.get("document_id") or row.get("id") or place)
    yield Marked(id, text, tuple(mentions), links, same=tuple(same), place=place)


def _fragments(
    e: Mapping[str, Any], text: str, place: str, notes: Notes
) -> tuple[Span, ...] | None:
    words = e["text"] if isinstance(e["text"], list) else [e["text"]]
    offsets = [(int(a), int(b)) for a, b in e["offsets"]]
    if len(words) != len(offsets):  # one string for several parts: nothing to compare part by part
        return tuple(sorted(offsets))
    found = [located(text, a, b, str(w), notes, place) for (a, b), w in zip(offsets, words)]
    return None if None in found else tuple(sorted(s for s in found if s is not None))


def is_chemdisgene(row: Mapping[str, Any]) -> bool:
    return {"docid", "title", "abstract", "entity", "relation"} <= set(row)


def chemdisgene(row: Mapping[str, Any], place: str, notes: Notes) -> Iterator[Marked]:
    """Offsets count the title, one blank, then the abstract; `a|b` is a mention of two concepts."""
    title, abstract = str(row["title"]), str(row["abstract"])
    text = f"{title} {abstract}"
    mentions = []
    for i, e in enumerate(row["entity"]):
        span = located(text, int(e["start"]), int(e["end"]), str(e["mention"]), notes, place)
        concepts = tuple(c for c in re.split(r"[|;]", str(e["id"])) if c and c != "-")
        if span is not None:
            mentions.append(Mention(f"m{i}", str(e["type"]), (span,), concepts))
    facts = tuple(Link(str(r["type"]), str(r["subj"]), str(r["obj"])) for r in row["relation"])
    yield Marked(str(row["docid"]), text, tuple(mentions), facts=facts, place=place)


def docbin(path: Path, notes: Notes) -> Iterator[Marked]:
    """spaCy's `.spacy` files: words, sentences where they were set, `doc.ents`, span groups."""
    try:
        import spacy
        from spacy.tokens import DocBin
    except ImportError:
        raise UserError(
            f"{path.name} is a file of spaCy, which is not installed: pip install 'sottovoce[spacy]'."
        ) from None
    try:
        documents = list(DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab))
    except Exception as e:  # msgpack, zlib and spaCy each have errors of their own
        raise UserError(
            f"{path}: cannot be read as a DocBin of spaCy ({str(e).splitlines()[0]})."
        ) from None
    for number, doc in enumerate(documents, 1):
        place = f"{path}, document {number}"
        spans = {(s.start_char, s.end_char, s.label_, s.kb_id_) for s in doc.ents}
        for key, group in doc.spans.items():
            if group:
                notes.add("said", f'the span group "{key}" is read beside doc.ents', count=0)
            spans |= {(s.start_char, s.end_char, s.label_, s.kb_id_) for s in group}
        mentions = tuple(
            Mention(f"m{i}", kind or "entity", ((a, b),), (concept,) if concept else ())
            for i, (a, b, kind, concept) in enumerate(sorted(spans))
        )
        words = tuple((t.idx, t.idx + len(t)) for t in doc if t.text.strip())
        cut = doc.has_annotation("SENT_START")
        sentences = tuple((s.start_char, s.end_char) for s in doc.sents) if cut else ()
        yield Marked(
            f"{path.name}/{number}",
            doc.text,
            mentions,
            sentences=sentences,
            words=words,
            place=place,
        )
