"""CoNLL columns: a word and its tag on every line, a blank line after every sentence.

By default the word is the first column and the tag the last. `SET=columns=_,word,pos,tag` says
otherwise: a name for each column, of which `word` and `tag` count. Tags are IOB, IOB2, BIOES or BILOU
with a type, or bare (`B`, `I`, `O`): then there is one type, `entity`, or what `SET=entity=…` says.

A document begins at `-DOCSTART-`, at a remark that says so (`# newdoc`), or after two blank lines.
Where a file says nothing, twenty sentences in a row are held together, so that a split that we make
does not part neighbours. A remark `# domain = x` gives the sentences that follow their domain.

CoNLL-U has the word in its second column and the tag in MISC (`NER=B-Drug`, absent: O) or in a column
behind it. Lines of ranges (`1-2`) and of empty words (`8.1`) are passed over, as its readers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from config.errors import UserError
from corpora.lines import lines
from corpora.ner.table import Entity, Found, Sentence
from corpora.notes import Notes

__all__ = [
    "DEFAULT",
    "NO_DOCUMENTS",
    "RUN",
    "Layout",
    "conll",
    "conllu",
    "entities_of_tags",
    "is_conll",
    "is_conllu",
]

_TAG = re.compile(r"([BIESLU])-(.+)")
_BARE = frozenset("BIESLU")
_NEW_DOCUMENT = re.compile(r"#\s*(?:newdoc|begin document|doc(?:ument)?[ _]?id)\b", re.I)
_NEW_DOMAIN = re.compile(r"#\s*domain\s*=\s*(\S.*?)\s*$")
_MISC = re.compile(r"(?:^|\|)(?:NER|NE|ner|ne)=([^|]+)")
RUN = 20  #: sentences that stay together where a file does not say which documents they are of
NO_DOCUMENTS = "run"  #: what such a document is called
_LOOKED_AT = 400  #: lines of a file that are read to tell its format


@dataclass(frozen=True)
class Layout:
    """Which column is which."""

    word: int = 0
    tag: int = -1
    count: int = 0  #: how many there are; 0: two or more
    bare: str = "entity"  #: the type where tags have none

    @staticmethod
    def of(columns: str, bare: str = "") -> Layout:
        names = [c.strip().lower() for c in columns.split(",")] if columns else []
        if not names:
            return Layout(bare=bare or "entity")
        for needed in ("word", "tag"):
            if names.count(needed) != 1:
                raise UserError(
                    f'Option "columns": "{columns}" must name one column "{needed}", as in word,_,tag.'
                )
        return Layout(names.index("word"), names.index("tag"), len(names), bare or "entity")


DEFAULT = Layout()


def entities_of_tags(tags: Sequence[str], bare: str = "entity") -> list[Entity]:
    """Runs of tags as entities; one rule reads IOB, IOB2 and BIOES (and BILOU).

    A tag begins an entity if it says so (B, S, U), if the tag before was O or of another type, or
    if the one before said that it was the last (E, S, L, U). Raises ValueError at a tag that is
    none of these, and where some tags have a type and others have none.
    """
    found: list[Entity] = []
    begin, kind, closed = 0, "", True
    styles = {tag in _BARE for tag in tags if tag != "O"}
    for i, tag in enumerate([*tags, "O"]):
        match = _TAG.fullmatch(tag)
        if match is None and tag != "O" and tag not in _BARE:
            raise ValueError(f'the tag "{tag}" is neither O nor B-, I-, E- or S- and a type')
        letter, this = (match[1], match[2]) if match else (tag, bare if tag != "O" else "")
        if kind and (closed or this != kind or letter in "BSU"):
            found.append((begin, i, kind))
            kind = ""
        if this and not kind:
            begin, kind = i, this
        closed = letter in "ESLU"
    if len(styles) > 1:
        raise ValueError("some tags have a type and others have none")
    return found


def _is_tag(tag: str) -> bool:
    return tag == "O" or tag in _BARE or _TAG.fullmatch(tag) is not None


def _columns(line: str) -> list[str]:
    return [c.strip() for c in line.split("\t")] if "\t" in line else line.split()


def _shape(path: Path) -> tuple[bool, int]:
    """Of the first line with a word: whether tabs part its columns, and how many there are. It tells
    a remark ("# text = vitamin B") from a word "#" with its tag.
    """
    for _, line in lines(path, Notes()):
        if line.strip() and not line.startswith(("#", "-DOCSTART-")):
            return "\t" in line, len(_columns(line))
    return True, 0


def _check_columns(path: Path, notes: Notes) -> None:
    """Refuses a file whose first column counts the words of its sentences: the numbers would be read
    as words. Says so where several columns hold tags.
    """
    rows: list[list[str]] = []
    for number, line in lines(path, Notes()):
        columns = _columns(line)
        if not columns and rows or number > _LOOKED_AT:
            break
        if columns and not line.startswith(("#", "-DOCSTART-")):
            rows.append(columns)
    firsts = [r[0] for r in rows]
    if len(rows) > 1 and firsts in ([str(i + k) for i in range(len(rows))] for k in (0, 1)):
        raise UserError(
            f"{path}: the first column counts the words and does not hold them; name the columns, "
            f"as in SET=columns=_,word{',_' * (len(rows[0]) - 3)},tag."
        )
    width = min(map(len, rows), default=0)
    tagged = [c + 1 for c in range(1, width) if rows and all(_is_tag(r[c]) for r in rows)]
    if len(tagged) > 1:
        listed = ", ".join(map(str, tagged))
        said = f"columns {listed} hold tags and the last one is read; SET=columns=… names another"
        notes.add("said", said, place=str(path))


def _is_remark(line: str, columns: list[str], shape: tuple[bool, int], tag: str) -> bool:
    tabs, width = shape
    if not line.startswith("#"):
        return False
    return not _is_tag(tag) or (("\t" not in line) if tabs else len(columns) != width)


def is_conll(path: Path, layout: Layout = DEFAULT) -> bool:
    """Whether the first line that is no remark has a tag where the layout says. After bare tags an O
    must come: a column of B and I alone is something else.
    """
    try:
        for number, line in lines(path, Notes()):
            columns = _columns(line)
            if number > _LOOKED_AT:
                return False
            if not columns or line.startswith("-DOCSTART-"):
                continue
            wide = len(columns) > max(1, layout.word, layout.tag)
            tag = columns[layout.tag] if wide else ""
            if line.startswith("#"):
                continue
            if tag == "O" or _TAG.fullmatch(tag):
                return True
            if tag not in _BARE:
                return False
    except UserError:
        return False
    return False


class _File:
    """The sentences of a file, as its lines come in."""

    def __init__(self, path: Path, domain: str, layout: Layout) -> None:
        self.path, self.domain, self.layout = path, domain, layout
        self.sentences: list[tuple[Sentence, int]] = []  # with the number of its document
        self.words: list[str] = []
        self.tags: list[str] = []
        self.first = self.document = self.blank = 0
        self.styles: set[bool] = set()

    def finish(self) -> None:
        if self.words:
            if " ".join(self.words).split() != self.words:
                self.words = ["_".join(w.split()) for w in self.words]
            try:
                self.styles |= {tag in _BARE for tag in self.tags if tag != "O"}
                entities = entities_of_tags(self.tags, self.layout.bare)
                if len(self.styles) > 1:
                    raise ValueError(
                        "its tags have no type and others of the file have, or vice versa"
                    )
            except ValueError as e:
                raise UserError(f"{self.path}, sentence at line {self.first}: {e}.") from None
            sentence = Sentence(tuple(self.words), tuple(entities), self.domain)
            self.sentences.append((sentence, self.document))
        self.words, self.tags = [], []

    def remark(self, line: str) -> None:
        self.document += _NEW_DOCUMENT.match(line) is not None
        match = _NEW_DOMAIN.match(line)
        if match is not None:
            self.domain = match[1]

    def add(self, number: int, word: str, tag: str) -> None:
        if not self.words:
            self.first = number
            self.document += self.blank > 1 and bool(self.sentences)
        self.blank = 0
        self.words.append(word)
        self.tags.append(tag)

    def found(self, name: str) -> Iterator[Found]:
        self.finish()
        for k, (sentence, n) in enumerate(self.sentences):
            document = n if self.document else f"{NO_DOCUMENTS} {k // RUN}"
            yield Found(sentence, f"{name or self.path.name}/{document}")


def conll(
    path: Path, domain: str, notes: Notes, name: str = "", layout: Layout = DEFAULT
) -> Iterator[Found]:
    """`name`: of the file, for the documents' names."""
    shape = _shape(path)
    if not layout.count:
        _check_columns(path, notes)
    file = _File(path, domain, layout)
    for number, line in lines(path, notes):
        if not line.strip():
            file.finish()
            file.blank += 1
            continue
        columns = _columns(line)
        if columns[0] == "-DOCSTART-":
            file.document += 1
            continue
        short = len(columns) < max(2, layout.count, layout.word + 1)
        tag = columns[layout.tag] if not short else ""
        if _is_remark(line, columns, shape, tag):
            file.remark(line)
            continue
        if short or not columns[layout.word]:
            raise UserError(
                f"{path}, line {number}: a word and its tag are expected, as in CoNLL columns."
            )
        if layout.count and len(columns) != layout.count:
            raise UserError(
                f'{path}, line {number}: {len(columns)} columns, and the option "columns" names '
                f"{layout.count}."
            )
        file.add(number, columns[layout.word], tag)
    yield from file.found(name)


def is_conllu(path: Path) -> bool:
    """Ten columns and entities in MISC, or a tag in a column behind them."""
    try:
        for number, line in lines(path, Notes()):
            if number > _LOOKED_AT:
                return False
            if not line.strip() or line.startswith("#"):
                continue
            columns = line.split("\t")
            if len(columns) < 10 or not re.fullmatch(r"\d+([-.]\d+)?", columns[0]):
                return False
            if _MISC.search(columns[9]) or (len(columns) > 10 and _is_tag(columns[-1].strip())):
                return True
    except UserError:
        return False
    return False


def conllu(
    path: Path, domain: str, notes: Notes, name: str = "", layout: Layout = DEFAULT
) -> Iterator[Found]:
    file = _File(path, domain, layout)
    for number, line in lines(path, notes):
        if not line.strip():
            file.finish()
            continue
        if line.startswith("#"):
            file.remark(line)
            continue
        columns = line.split("\t")
        if len(columns) < 10 or not columns[1].strip():
            raise UserError(f"{path}, line {number}: {len(columns)} columns; CoNLL-U has ten.")
        if not columns[0].isdigit():
            continue
        misc = _MISC.search(columns[9])
        tag = columns[-1].strip() if len(columns) > 10 else misc[1] if misc else "O"
        file.add(number, columns[1].strip(), tag)
    yield from file.found(name)
