"""Every format that is read, by task, and what a folder must have to be read as it.

Readers recognise formats in this order; an error that no format fits names them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from config.errors import UserError
from corpora.lines import beginning, first_line, plain_name
from corpora.records import first_record
from corpora.splits import data_files, training_file

__all__ = ["MARKED", "NEEDS", "TASKS", "unknown_format"]

#: task -> what it is called in sentences
TASKS: Mapping[str, str] = {
    "sentence": "relations in sentences",
    "distant": "distant supervision",
    "document": "relations in documents",
    "ner": "named entities",
}
#: texts with marks on them, which three tasks read (`corpora.standoff`)
MARKED: Mapping[str, str] = {
    "brat": ".ann files, each with its .txt",
    "bionlp": ".a1 files, each with its .txt",
    "docbin": ".spacy files",
    "webanno": "files that begin with #FORMAT=WebAnno TSV 3",
    "bioc": "XML or JSON with a collection of documents",
    "documents": "JSON objects with text, entities with mentions, and relations or pairs",
    "bigbio": "rows with passages, entities and relations",
    "chemdisgene": "rows with docid, title, abstract, entity and relation",
    "labelstudio": "tasks with data and annotations",
    "prodigy": "JSON objects with text and spans",
    "doccano": "JSON objects with text and label, or with text, entities and relations",
}
#: task -> format -> what it needs
NEEDS: Mapping[str, Mapping[str, str]] = {
    "sentence": {
        "jsonl": "a training file of JSON objects with text, head, tail and relation",
        "chemprot": "a training file of JSON objects with text and label",
        "blinded": "a training file whose sentences have @GENE$ and @DISEASE$, or other types so",
        "biocreative": ".tsv files with relations in their names",
        "pgr": "a training file that begins with the columns FILE_ID and SENTENCE",
        "ddi": ".xml files in folders called train and test",
        "i2b2": ".con files in folders called train and test",
        "semeval": "numbered sentences with <e1> and <e2>, each with its relation on the next line",
        "tacred": "JSON objects with token, subj_start, obj_start and relation",
        "opennre": "JSON objects with text or token, h, t and relation",
        "marked": "rows with a text whose two entities are in marks, and a label",
        "table": "a table with columns for text, relation, head and tail",
        **MARKED,
    },
    "distant": {
        "opennre": "a training file of JSON objects with text or token, h, t and relation",
        "nyt10": "a training file with six columns between tabs, and relation2id.txt",
        "mirgene": "a training file with one tab a line and two tagged entities after it",
        "pgr": "a training file that begins with the columns FILE_ID and SENTENCE",
        "gids": "rows of six columns that end in ###END###, without relation2id.txt",
    },
    "document": {
        "pubtator": 'a training file whose first line is "number|t|title"',
        "docred": "a training file that is a JSON list of documents with vertexSet",
        "pairs": "a training file with two columns and seventeen for each pair",
        **MARKED,
    },
    "ner": {
        "conll": "a file with a word and, in its last column, a tag (O, B-Drug) on every line",
        "conll2012": "files whose names end in _conll, with eleven columns or more",
        "ade": "a file called DRUG-AE.rel",
        "conllu": "ten columns with entities in MISC (NER=B-Drug), or an eleventh with tags",
        "psytar": "a file called psytar_sentences.csv",
        "entities": "JSON objects with words and entities",
        "tokens": "rows with tokens and ner_tags",
        **MARKED,
    },
}
_SEEN = 8  #: files that the error names
_FIELDS = 8  #: and fields of a row
_TRAINING = "a training file"  #: how a need begins that no folder without one can meet


def unknown_format(folder: Path, tasks: Iterable[str] = tuple(NEEDS)) -> UserError:
    """No format of these tasks fits: what the files are, which formats were tried, and what each
    did not find. Formats that several tasks read are named once.
    """
    files = data_files(folder)
    if not files:
        return UserError(f"{folder} has no files in it (hidden ones and a README do not count).")
    seen = "; ".join(f"{p.relative_to(folder)} ({_shape(p)})" for p in files[:_SEEN])
    seen += f"; and {len(files) - _SEEN} more" * (len(files) > _SEEN)
    untrained = training_file(folder) is None
    tried, waiting = [], []
    listed = [(TASKS[t], {n: w for n, w in NEEDS[t].items() if n not in MARKED}) for t in tasks]
    if any(MARKED.keys() <= NEEDS[t].keys() for t in tasks):
        listed.append(("texts with marks on them", dict(MARKED)))
    for title, needs in listed:
        if untrained:
            waiting += [name for name, what in needs.items() if what.startswith(_TRAINING)]
            needs = {n: what for n, what in needs.items() if not what.startswith(_TRAINING)}
        if needs:
            said = "; ".join(f"{name} needs {what}" for name, what in needs.items())
            tried.append(f"\n  {title.capitalize()}: {said}.")
    if waiting:
        names = ", ".join(dict.fromkeys(waiting))
        tried.append(
            f'\n  No file has the word "train" in its name or its folder\'s, as these need: {names}.'
        )
    return UserError(
        f"{folder} is in no format that we know. Files seen: {seen}. Tried:{''.join(tried)}\n"
        "docs/data.md has an example of each; FORMAT:FOLDER names one where it is not recognised."
    )


def _shape(path: Path) -> str:
    """What a file looks like, without a word of what is in it but the names of its fields."""
    start = beginning(path, 1 << 16)
    if not start.strip():
        return "empty" if not path.stat().st_size else "cannot be read as text"
    if "\0" in start:
        return "no text"
    row = first_record(path)
    if row:
        fields = ", ".join(map(str, list(row)[:_FIELDS]))
        return f"rows with {fields}{' …' * (len(row) > _FIELDS)}"
    first = first_line(path).lstrip()
    if first.startswith(("{", "[")):
        return "not JSON that can be read"
    if first.startswith("<"):
        return "XML" if plain_name(path).endswith(".xml") else "lines that begin with <"
    columns = first.count("\t") + 1
    return f"{columns} columns between tabs" if columns > 1 else "lines without tabs"
