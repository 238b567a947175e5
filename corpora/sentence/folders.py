"""Formats of sentence-relation corpora that spread over many files: i2b2 2010, DDI, and ChemProt as
BioCreative has it.

A split is a folder, or some files of one. Every candidate pair of a sentence becomes an example;
what is annotated across sentences cannot be one, and is counted and reported.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from config.errors import UserError
from corpora.lines import lines, parse_xml
from corpora.notes import Notes
from corpora.sentence.one_a_line import NONE
from corpora.sentence.table import Example
from corpora.splitting import sentence_ends

__all__ = ["PARTS", "biocreative", "ddi", "i2b2", "is_other_task"]

PARTS = ("abstracts", "entities", "relations")  #: BioCreative's three files of a split

_CONCEPT = re.compile(r'c="(.*)" (\d+):(\d+) (\d+):(\d+)\|\|t="(\w+)"\s*$')
_RELATION = re.compile(
    r'c="(.*)" (\d+):(\d+) (\d+):(\d+)\|\|r="(\w+)"\|\|c="(.*)" (\d+):(\d+) (\d+):(\d+)\s*$'
)
_OTHER_TASK = re.compile(r"drug ?ner|\bner\b", re.I)
_PAIRS = (("treatment", "problem"), ("test", "problem"), ("problem", "problem"))
_ACROSS = "relations across sentences"
Place = tuple[int, int, int, int]


def i2b2(files: Sequence[Path], notes: Notes) -> list[Example]:
    """`x.txt`, `x.con`, `x.rel` of one split, in whatever folders. Lines are sentences, words are
    separated by blanks.

    Candidates are the challenge's: a treatment or test with a problem of the same line, and two
    problems, the earlier one as the head (PIP is annotated between either).
    """
    by_stem: dict[str, dict[str, Path]] = {}
    for path in files:
        stem, _, end = path.name.removesuffix(".gz").rpartition(".")
        before = by_stem.setdefault(stem, {}).setdefault(end, path)
        if before != path:
            raise UserError(f"{before} and {path} are the same record twice; keep one.")
    found: list[Example] = []
    for stem, record in sorted(by_stem.items()):
        if "con" not in record and "rel" not in record:
            notes.add("skipped", "texts without annotation", place=str(record["txt"]))
            continue
        for need in ("txt", "con", "rel"):
            if need not in record:
                raise UserError(f"{next(iter(record.values()))} has no {stem}.{need}.")
        found += _record(record, notes)
    return found


def _record(files: dict[str, Path], notes: Notes) -> list[Example]:
    text = [line for _, line in lines(files["txt"], notes)]
    concepts: dict[Place, str] = {}
    for number, line in lines(files["con"], notes):
        if line.strip():
            m = _matched(_CONCEPT, files["con"], number, line)
            concepts[_place(m, 2)] = m[6]
    relations: dict[tuple[Place, Place], str] = {}
    for number, line in lines(files["rel"], notes):
        if line.strip():
            m = _matched(_RELATION, files["rel"], number, line)
            relations[_place(m, 2), _place(m, 8)] = m[6]
    by_line: dict[int, list[Place]] = {}
    for place in sorted(concepts):
        if place[0] == place[2]:
            by_line.setdefault(place[0], []).append(place)
    found, used = [], set()
    for number, places in by_line.items():
        if not 1 <= number <= len(text):
            raise UserError(
                f"{files['con']}: a concept on line {number} of a text of {len(text)} lines."
            )
        spans = [(m.start(), m.end()) for m in re.finditer(r"\S+", text[number - 1])]
        for a, b in itertools.combinations(places, 2):
            head, tail = (b, a) if (concepts[a], concepts[b]) not in _PAIRS else (a, b)
            kinds = (concepts[head], concepts[tail])
            if kinds not in _PAIRS:
                continue
            if max(head[3], tail[3]) >= len(spans):
                raise UserError(
                    f"{files['con']}: a concept beyond the last word of line {number} of the text."
                )
            key = next((k for k in ((head, tail), (tail, head)) if k in relations), None)
            used.add(key)
            ends = [(spans[p[1]][0], spans[p[3]][1]) for p in (head, tail)]
            label = relations[key] if key is not None else NONE
            found.append(Example(text[number - 1], ends[0], ends[1], *kinds, label))
    for head_place, _ in sorted(set(relations) - used):
        shown = text[head_place[0] - 1] if head_place[0] <= len(text) else ""
        notes.add("skipped", _ACROSS, example=shown, place=str(files["rel"]))
    return found


def _matched(pattern: re.Pattern[str], path: Path, number: int, line: str) -> re.Match[str]:
    m = pattern.match(line)
    if m is None:
        raise UserError(f"{path}, line {number}: not an annotation of this format.")
    return m


def _place(m: re.Match[str], at: int) -> Place:
    return int(m[at]), int(m[at + 1]), int(m[at + 2]), int(m[at + 3])


def is_other_task(path: Path) -> bool:
    """Whether a file of DDI-2013 is of its other task, finding drug names: the test folder holds
    the texts of both.
    """
    return any(_OTHER_TASK.search(part) for part in path.parts[:-1])


def ddi(files: Sequence[Path]) -> list[Example]:
    """The XML of SemEval 2013: pairs are listed, `ddi="false"` is None. Ends are inclusive; of a
    mention in pieces the whole stretch is taken.
    """
    found: list[Example] = []
    for path in files:
        for sentence in parse_xml(path).iter("sentence"):
            try:
                found += _ddi_sentence(sentence)
            except (KeyError, ValueError) as e:
                name = sentence.get("id", "without an id")
                raise UserError(f"{path}: sentence {name} is not of this format ({e}).") from None
    return found


def _ddi_sentence(sentence: ElementTree.Element) -> Iterator[Example]:
    text = sentence.attrib["text"]
    spans, kinds = {}, {}
    for e in sentence.iter("entity"):
        numbers = [int(n) for n in re.split("[-;]", e.attrib["charOffset"])]
        spans[e.attrib["id"]] = (min(numbers), max(numbers) + 1)
        kinds[e.attrib["id"]] = e.attrib["type"]
    for p in sentence.iter("pair"):
        a, b = p.attrib["e1"], p.attrib["e2"]
        # Two pairs of the published files say that they interact and not how; they count as plain
        # interactions.
        label = p.get("type", "int") if p.attrib["ddi"] == "true" else NONE
        example = Example(text, spans[a], spans[b], kinds[a], kinds[b], label)
        if example.problem():
            raise ValueError(example.problem())
        yield example


def biocreative(files: Mapping[str, Path], notes: Notes) -> list[Example]:
    """`PARTS` -> file. Offsets count from the start of the title, with one character between title
    and abstract. Only evaluated relations (column Y) are taken.
    """
    documents: dict[str, str] = {}
    for _, (pmid, title, abstract) in _columns(files["abstracts"], 3, notes):
        documents[pmid] = f"{title}\t{abstract}"
    entities: dict[tuple[str, str], tuple[tuple[int, int], str]] = {}
    for number, (pmid, name, kind, start, end, _) in _columns(files["entities"], 6, notes):
        if not (start.isdigit() and end.isdigit()):
            raise UserError(f"{files['entities']}, line {number}: offsets that are no numbers.")
        entities[pmid, name] = (
            (int(start), int(end)),
            "chemical" if kind == "CHEMICAL" else "gene",
        )
    found: list[Example] = []
    for number, (pmid, group, evaluated, _, one, two) in _columns(files["relations"], 6, notes):
        if evaluated.strip() != "Y":
            continue
        ends = [entities.get((pmid, a.partition(":")[2])) for a in (one, two)]
        if pmid not in documents or ends[0] is None or ends[1] is None:
            raise UserError(
                f"{files['relations']}, line {number}: a relation of entities that are not listed."
            )
        example = _in_sentence(documents[pmid], ends[0], ends[1], group)
        if example is None:
            a, b = sorted((ends[0][0], ends[1][0]))
            shown = documents[pmid][a[0] : b[1]]
            place = f"{files['relations']}, line {number}"
            notes.add("skipped", _ACROSS, example=shown, place=place)
        else:
            found.append(example)
    return found


def _columns(path: Path, count: int, notes: Notes) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines(path, notes):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != count:
            raise UserError(
                f"{path}, line {number}: {len(fields)} columns where {count} are expected."
            )
        yield number, fields


def _in_sentence(
    text: str, head: tuple[tuple[int, int], str], tail: tuple[tuple[int, int], str], relation: str
) -> Example | None:
    """The pair in the sentence that holds both, or None."""
    cuts = [0, *sentence_ends(text), len(text)]
    low, high = min(head[0][0], tail[0][0]), max(head[0][1], tail[0][1])
    for a, b in itertools.pairwise(cuts):
        # A cut inside a mention is no sentence end: the window is the stretch that holds both
        # mentions whole.
        if a <= low and high <= b:
            moved = [(s - a, e - a) for (s, e), _ in (head, tail)]
            example = Example(text[a:b].rstrip(), moved[0], moved[1], head[1], tail[1], relation)
            return None if example.problem() else example
    return None
