"""Corpora written as our own JSON lines, as BRAT or as CoNLL columns.

Every writer takes what `items.load` gave and fills a folder. What the format cannot hold is added to
`notes` as skipped, with an example: `convert` refuses or reports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from corpora.convert.items import Loaded
from corpora.distant.rows import Row
from corpora.document.table import UNLINKED, Document
from corpora.ner.table import Entity, Sentence
from corpora.notes import Notes
from corpora.sentence.one_a_line import NONE
from corpora.sentence.table import Example
from corpora.standoff.brat import LAYOUT
from corpora.standoff.own import own_row

__all__ = ["WRITERS", "Writer"]

Writer = Callable[[Loaded, Path, Notes], None]


def _lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


def _json(item: Any) -> str:
    return json.dumps(item, ensure_ascii=False)


def jsonl(corpus: Loaded, out: Path, notes: Notes) -> None:
    """A file for each split; `relations.txt` (or `rel2id.json`) keeps the order of relations."""
    row: dict[str, Callable[[Any], dict[str, Any]]] = {
        "ner": _ner_row,
        "sentence": _sentence_row,
        "document": own_row,
        "distant": _distant_row,
    }
    for split, items in corpus.splits.items():
        if items:
            _lines(out / f"{split}.jsonl", (_json(row[corpus.task](i)) for i in items))
    if corpus.task in ("sentence", "document"):
        _lines(out / "relations.txt", corpus.labels)
    if corpus.task == "distant":
        _lines(out / "rel2id.json", [_json({r: i for i, r in enumerate(corpus.labels)})])


def _ner_row(s: Sentence) -> dict[str, Any]:
    entities = [{"start": a, "end": b, "type": t} for a, b, t in s.entities]
    return {"words": list(s.words), "entities": entities, "domain": s.domain}


def _sentence_row(e: Example) -> dict[str, Any]:
    ends = [
        {"start": a, "end": b, "type": kind}
        for (a, b), kind in ((e.head, e.head_type), (e.tail, e.tail_type))
    ]
    relation = None if e.relation == NONE else e.relation
    return {"text": e.text, "head": ends[0], "tail": ends[1], "relation": relation}


def _distant_row(r: Row) -> dict[str, Any]:
    ends = [
        {"id": name, "name": r.words[at], "pos": [at, at + 1]}
        for name, at in ((r.head, r.head_at), (r.tail, r.tail_at))
    ]
    return {"token": list(r.words), "h": ends[0], "t": ends[1], "relation": r.relation}


def conll(corpus: Loaded, out: Path, notes: Notes) -> None:
    """A word and its IOB2 tag between tabs; the domain in a remark. Spans over each other cannot be
    written: of two the longer one is kept.
    """
    for split, sentences in corpus.splits.items():
        _lines(out / f"{split}.conll.txt", _conll_lines(sentences, notes))


def _conll_lines(sentences: Sequence[Sentence], notes: Notes) -> Iterator[str]:
    domain = ""
    for s in sentences:
        if "-DOCSTART-" in s.words:
            said = "sentences with the word -DOCSTART-, which begins a document in CoNLL"
            notes.add("skipped", said, example=" ".join(s.words))
            continue
        if s.domain != domain:
            domain = s.domain
            yield f"# domain = {domain}"
        tags = ["O"] * len(s.words)
        for a, b, kind in _apart(s, notes):
            tags[a:b] = [f"B-{kind}", *[f"I-{kind}"] * (b - a - 1)]
        yield from (f"{word}\t{tag}" for word, tag in zip(s.words, tags))
        yield ""


def _apart(s: Sentence, notes: Notes) -> list[Entity]:
    kept: list[Entity] = []
    for e in sorted(s.entities, key=lambda e: (e[0] - e[1], e)):
        if any(e[0] < b and a < e[1] for a, b, _ in kept):
            words = " ".join(s.words[e[0] : e[1]])
            notes.add("skipped", "spans over other spans", example=f"{words} ({e[2]})")
        else:
            kept.append(e)
    return kept


def brat(corpus: Loaded, out: Path, notes: Notes) -> None:
    """`x.txt` and `x.ann` in a folder for each split."""
    lined = corpus.task != "document"
    layout = {"sentences": "lines", "words": "blanks"} if lined else {"sentences": "ours"}
    _lines(out / LAYOUT, [_json(layout)])
    for split, items in corpus.splits.items():
        if not items:
            continue
        if corpus.task == "document":
            for document in items:
                _brat_document(out / split, document, notes)
        elif corpus.task == "ner":
            for domain in dict.fromkeys(s.domain for s in items):
                some = [s for s in items if s.domain == domain]
                _brat_sentences(out / split / _file_name(domain), some, notes)
        else:
            _brat_examples(out / split / "sentences", items, corpus.none, notes)


def _file_name(id: str) -> str:
    """Every name has a file name; `standoff.brat` turns it back."""
    return quote(id, safe=" ") if id.strip(".") else quote(id, safe="").replace(".", "%2E")


def _named(name: str, what: str, notes: Notes) -> bool:
    """BRAT's names have no blanks in them."""
    if name and not any(c.isspace() for c in name):
        return True
    notes.add("skipped", f"{what} whose names BRAT cannot hold", example=name)
    return False


def _write_brat(stem: Path, text: str, marks: Sequence[str]) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_name(f"{stem.name}.txt").write_text(text, "utf-8", newline="")
    _lines(stem.with_name(f"{stem.name}.ann"), marks)


def _mention(number: int, kind: str, start: int, end: int, text: str) -> str:
    return f"T{number}\t{kind} {start} {end}\t{' '.join(text[start:end].split())}"


def _brat_sentences(stem: Path, sentences: Sequence[Sentence], notes: Notes) -> None:
    text, marks = "", []
    for s in sentences:
        starts = []
        for word in s.words:
            starts.append(len(text))
            text += f"{word} "
        text = text[:-1] + "\n"
        for a, b, kind in s.entities:
            if _named(kind, "entities", notes):
                end = starts[b - 1] + len(s.words[b - 1])
                marks.append((kind, starts[a], end))
    _write_brat(stem, text, [_mention(i, *m, text) for i, m in enumerate(marks, 1)])


def _brat_examples(stem: Path, examples: Sequence[Example], none: str, notes: Notes) -> None:
    """A sentence is a line; a mention of two pairs is written once. Of an example that stands twice
    the sentence is written twice.
    """
    text = ""
    marks: list[tuple[str, int, int]] = []
    links: list[str] = []
    for sentence, some in _grouped(examples):
        if "\n" in sentence or sentence != sentence.strip():
            said = "examples whose text has line breaks, or blanks at its ends"
            notes.add("skipped", said, example=sentence, count=len(some))
            continue
        at: dict[tuple[int, int, str], int] = {}
        for e in some:
            ends = [(*e.head, e.head_type), (*e.tail, e.tail_type)]
            if not all(_named(n, "types", notes) for n in (e.head_type, e.tail_type)):
                continue
            for a, b, kind in ends:
                if (a, b, kind) not in at:
                    at[a, b, kind] = len(marks) + 1
                    marks.append((kind, len(text) + a, len(text) + b))
            if e.relation != none and _named(e.relation, "relations", notes):
                first, second = (at[end] for end in ends)
                links.append(f"R{len(links) + 1}\t{e.relation} Arg1:T{first} Arg2:T{second}")
        text += sentence + "\n"
    _write_brat(stem, text, [*(_mention(i, *m, text) for i, m in enumerate(marks, 1)), *links])


def _grouped(examples: Sequence[Example]) -> Iterator[tuple[str, list[Example]]]:
    """Examples of one text together, no two with the same ends and relation."""
    by_text: dict[str, list[list[Example]]] = {}
    for e in examples:
        groups = by_text.setdefault(e.text, [])
        home = next((g for g in groups if e not in g), None)
        if home is None:
            groups.append([e])
        else:
            home.append(e)
    for text, groups in by_text.items():
        yield from ((text, group) for group in groups)


def _brat_document(folder: Path, document: Document, notes: Notes) -> None:
    marks: list[str] = []
    concepts: list[str] = []
    first: list[int] = []  # of every entity's mentions
    for e in document.entities:
        first.append(len(marks) + 1)
        _named(e.type, "types", notes)
        for a, b in e.mentions:
            # a mention of two concepts is written for each, so that a relation tells which it means
            marks.append(_mention(len(marks) + 1, e.type, a, b, document.text))
            if e.id != UNLINKED and _named(e.id, "concepts", notes):
                concepts.append(f"N{len(concepts) + 1}\tReference T{len(marks)} {e.id}\t{e.id}")
    links: list[str] = []
    for p in document.pairs:
        if not p.counted:
            said = "pairs that are not counted"
            notes.add("skipped", said, example=f"{document.id}: {p.head} and {p.tail}")
        for name in p.relations:
            if _named(name, "relations", notes):
                ends = f"Arg1:T{first[p.head]} Arg2:T{first[p.tail]}"
                links.append(f"R{len(links) + 1}\t{name} {ends}")
    _write_brat(folder / _file_name(document.id), document.text, [*marks, *concepts, *links])


#: (target, tasks that it can hold, writer)
WRITERS: dict[str, tuple[tuple[str, ...], Writer]] = {
    "jsonl": (("ner", "sentence", "document", "distant"), jsonl),
    "brat": (("ner", "sentence", "document"), brat),
    "conll": (("ner",), conll),
}
