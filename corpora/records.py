"""Rows with named fields, from whatever holds them: JSON lines, a JSON list, CSV, TSV, Parquet, or a
folder that `datasets` saved.

Every row comes with its place (file and line, or file and number), for errors and notes. A header of
a CSV or TSV file names its fields. A field that holds a class by number (`datasets`' ClassLabel) is
read as the class's name: a number alone would be a wrong label as soon as two files disagree.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.json_rows import first_json, json_rows
from corpora.lines import first_line, lines, plain_name
from corpora.notes import Notes

__all__ = ["Row", "SUFFIXES", "first_record", "is_saved", "records", "saved_splits"]

#: (place in words, the fields)
Row = tuple[str, dict[str, Any]]
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt", ".ndjson")
_STATE, _SPLITS = "state.json", "dataset_dict.json"  #: what `datasets` writes beside its tables
csv.field_size_limit(1 << 27)  # a document in a cell is longer than the library's 128 kB


def first_record(path: Path) -> dict[str, Any]:
    """The first row of a file or saved table; empty if it holds none that we can read. Reads no more
    of the file than it must: formats are told by it.
    """
    try:
        where = path / _STATE if path.is_dir() else path
        about = where.stat()
    except OSError:
        return {}
    return _first(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=256)
def _first(path: Path, changed: int, size: int) -> dict[str, Any]:
    try:
        if path.is_dir() or plain_name(path).endswith((".csv", ".tsv", ".parquet")):
            return next((row for _, row in records(path, Notes())), {})
        if not plain_name(path).endswith(SUFFIXES):
            return {}
        found = first_json(path)
    except UserError:
        return {}
    return found if isinstance(found, dict) else {}


def records(path: Path, notes: Notes | None = None) -> Iterator[Row]:
    """Every row of a file, or of a folder that `datasets` saved. Raises UserError by place. `notes`
    are told of another encoding than UTF-8; without them it is refused.
    """
    if path.is_dir():
        yield from _saved(path)
        return
    name = plain_name(path)
    if name.endswith(".parquet"):
        yield from _parquet(path)
    elif name.endswith((".csv", ".tsv")):
        yield from _separated(path, "\t" if name.endswith(".tsv") else ",", notes)
    elif name.endswith(SUFFIXES):
        yield from _json(path, notes)


def _json(path: Path, notes: Notes | None) -> Iterator[Row]:
    if first_line(path).lstrip()[:1] not in ("{", "["):
        return
    before = item = 0
    for number, row in json_rows(path, notes):
        item = item + 1 if number == before else 1
        before = number
        # of a list that stands on one line, the line says nothing
        place = f"{path}, line {number}" + (f", item {item}" if item > 1 else "")
        if not isinstance(row, dict):
            raise UserError(f"{place}: not a JSON object.")
        yield place, row


def _separated(path: Path, separator: str, notes: Notes | None) -> Iterator[Row]:
    numbers = [0]

    def texts() -> Iterator[str]:
        for number, line in lines(path, notes):
            numbers[0] = number
            yield line + "\n"

    # In TSV a quotation mark is a sign like any other; in CSV it holds commas and line breaks.
    if separator == "\t":
        reader = csv.reader(texts(), delimiter=separator, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(texts(), delimiter=separator)
    header: list[str] = []
    before = 0
    try:
        for fields in reader:
            start, before = before + 1, numbers[0]
            if not any(f.strip() for f in fields):
                continue
            if not header:
                header = [f.strip() for f in fields]
                if len(set(header)) < len(header):
                    raise UserError(f"{path}, line {start}: two columns have one name.")
                continue
            if len(fields) != len(header):
                raise UserError(
                    f"{path}, line {start}: {len(fields)} columns, and the header has {len(header)}."
                )
            yield f"{path}, line {start}", dict(zip(header, fields))
    except csv.Error as e:
        raise UserError(f"{path}, line {numbers[0]}: the table cannot be read ({e}).") from None


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        if path.suffix == ".gz":
            table = parquet.read_table(pa.BufferReader(gzip.decompress(path.read_bytes())))
        else:
            table = parquet.read_table(path)
    except (OSError, EOFError, pa.ArrowException) as e:
        raise UserError(f"{path}: the file cannot be read as Parquet ({e}).") from None
    yield from _arrow(str(path), table)


def _arrow(name: str, table: Any) -> Iterator[Row]:
    classes = _classes(table.schema.metadata or {})
    number = 0
    for batch in table.to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            number += 1
            for column, names in classes.items():
                if row.get(column) is not None:
                    row[column] = _named(row[column], names, f"{name}, row {number}", column)
            yield f"{name}, row {number}", row


def _classes(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Columns whose numbers are classes -> the names; `datasets` keeps them in the schema."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    found = {}
    for column, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel":
            found[column] = [str(n) for n in inner.get("names", [])]
    return found


def _named(value: Any, names: list[str], place: str, column: str) -> Any:
    if isinstance(value, list):
        return [_named(v, names, place, column) for v in value]
    if not isinstance(value, int):
        return value
    if value == -1:  # `datasets` writes it where a label is not known
        return None
    if not 0 <= value < len(names):
        raise UserError(f'{place}: class {value} of "{column}", and there are {len(names)}.')
    return names[value]


def is_saved(folder: Path) -> bool:
    """Whether `datasets` saved a table here (save_to_disk)."""
    return (folder / _STATE).is_file() or (folder / _SPLITS).is_file()


def saved_splits(folder: Path) -> dict[str, Path]:
    """Split name as it was saved -> folder; one table without splits has the name ""."""
    if not (folder / _SPLITS).is_file():
        return {"": folder}
    try:
        names = json.loads((folder / _SPLITS).read_text("utf-8"))["splits"]
    except (ValueError, KeyError, TypeError, OSError) as e:
        raise UserError(f"{folder / _SPLITS}: not the list of a saved dataset ({e}).") from None
    return {str(n): folder / str(n) for n in names}


def _saved(folder: Path) -> Iterator[Row]:
    from corpora.cache import load_table

    try:
        table = load_table(folder)
    except Exception as e:  # the library's own errors are of many kinds
        raise UserError(
            f"{folder}: the saved dataset cannot be read ({str(e).splitlines()[0]})."
        ) from None
    yield from _arrow(
        str(folder), table.with_format("arrow")[:] if len(table) else table.data.table
    )
