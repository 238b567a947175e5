"""Exports of annotation tools: Label Studio, Prodigy, doccano. Each parser takes one task (a row).

A task that nobody finished is no example without entities: tasks that were skipped, rejected or
never annotated are left out, and counted. Tools that run in a browser count UTF-16 units; where the
export has the marked words as well, they decide (see `offsets`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corpora.notes import Notes
from corpora.standoff.offsets import located
from corpora.standoff.table import Link, Marked, Mention, Span

__all__ = ["doccano", "is_doccano", "is_label_studio", "is_prodigy", "label_studio", "prodigy"]

_MEANT = ("labels", "hypertextlabels")  #: Label Studio's kinds of marks on a text


def is_label_studio(row: Mapping[str, Any]) -> bool:
    if isinstance(row.get("data"), dict) and ("annotations" in row or "completions" in row):
        return True
    return "text" in row and (
        any(_short(v) for v in row.values()) or {"annotation_id", "annotator"} <= set(row)
    )


def _short(value: Any) -> list[Mapping[str, Any]]:
    """The marks of Label Studio's short exports (JSON_MIN, and CSV, which has them as JSON in a
    cell); nothing if these are none.
    """
    if isinstance(value, str) and value.startswith("[{"):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    if not isinstance(value, list):
        return []
    fits = all(isinstance(v, dict) and {"start", "end", "labels"} <= set(v) for v in value)
    return value if fits else []


def label_studio(row: Mapping[str, Any], place: str, notes: Notes) -> Iterator[Marked]:
    id = str(row.get("id", place))
    if not isinstance(row.get("data"), dict):
        results = next(filter(None, map(_short, row.values())), [])
        if not results:
            notes.add("skipped", "tasks without any annotation", example=id, place=place)
            return
        marks = [{"type": "labels", "value": v} for v in results]
        yield _studio(id, str(row["text"]), marks, place, notes)
        return
    done = [
        a
        for a in row.get("annotations") or row.get("completions") or []
        if not a.get("was_cancelled")
    ]
    if not done:
        notes.add("skipped", "tasks without any annotation", example=id, place=place)
        return
    chosen = next((a for a in done if a.get("ground_truth")), done[0])
    if len(done) > 1:
        said = "tasks were annotated several times, and the one called ground truth, else the first, is read"
        notes.add("skipped", said, example=id, place=place)
    marks = [r for r in chosen["result"] if isinstance(r, dict)]
    yield _studio(id, _annotated(row["data"], marks), marks, place, notes)


def _annotated(data: Mapping[str, Any], marks: Sequence[Mapping[str, Any]]) -> str:
    """The text that the marks are on: the field that the labelling interface names, "text", or the
    one that has the marked words where they should be. A lone field is meant anyway.
    """
    texts = {k: v for k, v in data.items() if isinstance(v, str)}
    for name in (*(str(r["to_name"]) for r in marks if r.get("to_name")), "text"):
        if name in texts:
            return texts[name]
    values = [r["value"] for r in marks if str(r.get("type")) in _MEANT]
    some = [
        text
        for text in texts.values()
        if len(texts) == 1
        or (values and all(text[v["start"] : v["end"]] == v.get("text") for v in values))
    ]
    if len(some) != 1:
        raise ValueError(f'of the fields {", ".join(sorted(data))} none is called "text"')
    return some[0]


def _studio(
    id: str, text: str, marks: Sequence[Mapping[str, Any]], place: str, notes: Notes
) -> Marked:
    mentions: list[Mention] = []
    links: list[Link] = []
    for number, r in enumerate(marks):
        kind = str(r.get("type"))
        if kind in _MEANT:
            value = r["value"]
            span = _span(text, value["start"], value["end"], value.get("text"), place, notes)
            labels = [str(x) for x in value.get(kind) or value.get("labels") or []]
            if not labels:
                notes.add("skipped", "marks without a label", example=str(value), place=place)
            name = str(r.get("id", f"m{number}"))
            for i, label in enumerate(labels if span else []):
                mentions.append(Mention(name if not i else f"{name}/{i}", label, (span,)))  # type: ignore[arg-type]
        elif kind == "relation":
            links += _studio_links(r)
        else:
            said = f"results of the kind {kind}, which mark no words"
            notes.add("skipped", said, example=str(r.get("value")), place=place)
    return Marked(id, text, tuple(mentions), tuple(links), place=place)


def _studio_links(r: Mapping[str, Any]) -> Iterator[Link]:
    a, b = str(r["from_id"]), str(r["to_id"])
    for name in r.get("labels") or ["related"]:
        if r.get("direction", "right") in ("right", "bi", None):
            yield Link(str(name), a, b)
        if r.get("direction") in ("left", "bi"):
            yield Link(str(name), b, a)


def _span(text: str, start: Any, end: Any, words: Any, place: str, notes: Notes) -> Span | None:
    a, b = int(start), int(end)
    return located(text, a, b, words, notes, place) if isinstance(words, str) and words else (a, b)


def is_prodigy(row: Mapping[str, Any]) -> bool:
    spans = row.get("spans")
    if "text" not in row or not isinstance(spans, list):
        return "_input_hash" in row and "text" in row
    return all(isinstance(s, dict) and {"start", "end", "label"} <= set(s) for s in spans)


def prodigy(row: Mapping[str, Any], place: str, notes: Notes) -> Iterator[Marked]:
    text, answer = str(row["text"]), row.get("answer", "accept")
    id = str((row.get("meta") or {}).get("id") or row.get("_input_hash") or place)
    if answer != "accept":
        notes.add("skipped", f'tasks with the answer "{answer}"', example=text, place=place)
        return
    words = tuple((int(t["start"]), int(t["end"])) for t in row.get("tokens") or [])
    words = tuple((a, b) for a, b in words if text[a:b].strip())
    mentions: dict[tuple[int, int, str], Mention] = {}
    for s in row.get("spans") or []:
        _prodigy_mention(mentions, s)
    links: list[Link] = []
    for r in row.get("relations") or []:
        ends = [e for e in (r.get("head_span"), r.get("child_span")) if isinstance(e, dict)]
        # relations may join words that nobody marked: these have no label
        marked = [e for e in ends if e.get("label")]
        if len(marked) < 2:
            said = "relations whose ends have no label"
            if len(ends) < 2:
                said = "relations between words that are no entities"
            notes.add("skipped", said, example=str(r.get("label")), place=place)
            continue
        head, tail = (_prodigy_mention(mentions, e) for e in marked)
        links.append(Link(str(r["label"]), head, tail))
    yield Marked(id, text, tuple(mentions.values()), tuple(links), words=words, place=place)


def _prodigy_mention(known: dict[tuple[int, int, str], Mention], s: Mapping[str, Any]) -> str:
    key = (int(s["start"]), int(s["end"]), str(s["label"]))
    known.setdefault(key, Mention(f"m{len(known)}", key[2], (key[:2],)))
    return known[key].id


def is_doccano(row: Mapping[str, Any]) -> bool:
    if not {"text", "data"} & set(row):
        return False
    marks = row.get("label", row.get("labels"))
    if isinstance(marks, list) and all(
        isinstance(m, list) and len(m) == 3 and isinstance(m[2], str) for m in marks
    ):
        return bool(marks) or "id" in row
    entities = row.get("entities")
    return (
        isinstance(entities, list)
        and all(isinstance(e, dict) and {"start_offset", "end_offset"} <= set(e) for e in entities)
        and ("relations" in row or bool(entities))
    )


def doccano(row: Mapping[str, Any], place: str, notes: Notes) -> Iterator[Marked]:
    text = str(row["text"] if "text" in row else row["data"])
    marks = row.get("label", row.get("labels"))
    mentions: list[Mention] = []
    if isinstance(marks, list):
        for i, (start, end, label) in enumerate(marks):
            mentions.append(Mention(f"m{i}", str(label), ((int(start), int(end)),)))
    for e in row.get("entities") or []:
        span = (int(e["start_offset"]), int(e["end_offset"]))
        mentions.append(Mention(str(e["id"]), str(e["label"]), (span,)))
    links = [
        Link(str(r["type"]), str(r["from_id"]), str(r["to_id"])) for r in row.get("relations") or []
    ]
    if row.get("cats"):
        notes.add("skipped", "labels of whole texts", example=str(row["cats"]), place=place)
    yield Marked(str(row.get("id", place)), text, tuple(mentions), tuple(links), place=place)
