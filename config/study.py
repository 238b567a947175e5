"""The study file: what a consortium agreed on, the same for everybody, word for word.

It has the settings that decide a run (method, rounds, seed, privacy …), a title, and in `[hashes]`
what must be the same on every machine (the model before the first round, the encoder …). `[data]`
names the classes of data that only the silos have. What
belongs to one machine (folders, ports) is not in it and is refused there; how many silos there are
is the roster's business.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from config.errors import UserError, nearest
from config.load import check, read_toml, typed
from config.settings import MACHINE_SETTINGS, Settings

__all__ = ["NamedData", "StudyFile", "read_study"]


@dataclass(frozen=True)
class NamedData:
    """`[data]`: what the study says of data that only their silos have."""

    classes: tuple[str, ...]  #: relations or entity types, in the order of the model's outputs
    none: str = ""  #: the class that says there is no relation, if one does
    task: str = ""  #: which, where the method is for several
    #: NER: silo -> the types that it annotates; a silo that is not named: those its data have
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyFile:
    path: Path
    title: str
    settings: Settings  #: with `silos` still open
    hashes: Mapping[str, str] = field(default_factory=dict)
    data: NamedData | None = None  #: None: a trial on a built-in corpus
    digest: str = ""  #: of what the file says, whatever its spelling

    def with_silos(self, silos: int) -> Settings:
        if silos < max(3, self.settings.minimum):
            raise UserError(
                f"{self.path}: the roster has {silos} silos, and this study needs at least "
                f"{max(3, self.settings.minimum)}."
            )
        settings = replace(self.settings, silos=silos)
        check(settings)
        return settings

    def compare(self, content: Mapping[str, str]) -> None:
        """That what is on this machine is what `[hashes]` says."""
        for name, value in self.hashes.items():
            if name not in content:
                raise UserError(
                    f'{self.path}: [hashes] names "{name}", and this study has only {", ".join(content)}.'
                )
            if content[name] != value:
                raise UserError(
                    f"The {name} on this machine ({content[name][:12]}…) is not the one that {self.path} names "
                    f"({value[:12]}…)."
                )


def read_study(path: Path) -> StudyFile:
    table: dict[str, Any] = read_toml(path)
    title, hashes = table.pop("title", ""), table.pop("hashes", {})
    if not isinstance(title, str) or not title or not title.isprintable():
        raise UserError(f"{path}: a study has a title, one line of text.")
    if not isinstance(hashes, dict) or not all(
        re.fullmatch("[0-9a-f]{64}", str(v)) for v in hashes.values()
    ):
        raise UserError(f"{path}: [hashes] must have SHA-256 hashes, 64 hexadecimal digits each.")
    said_of_data = table.pop("data", None)
    data = None if said_of_data is None else _data(path, said_of_data)
    for key in table:
        if key in MACHINE_SETTINGS or key == "silos":
            what = "is how many the roster has" if key == "silos" else "belongs to one machine"
            raise UserError(f'{path}: "{key}" {what}; it has no place in the study file.')
    values = typed(path, table)
    options = dict(values.pop("options", {}))
    settings = replace(Settings(), **values, options=options)
    check(settings)
    if not settings.secagg:
        raise UserError(
            f"{path}: secagg = false is for simulations; between machines every sum is masked."
        )
    said = {**values, "options": options, "title": title, "hashes": hashes}
    if data is not None:
        if settings.corpus:
            raise UserError(
                f"{path}: a study is on a built-in corpus, or on the silos' own data with [data]; not both."
            )
        said["data"] = said_of_data
    if "method" in said:  # where a method's file is kept is a machine's own business
        said["method"] = settings.method_name
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return StudyFile(path, title, settings, hashes, data, digest)


def _data(path: Path, table: Any) -> NamedData:
    if not isinstance(table, dict):
        raise UserError(f"{path}: [data] must be a table.")
    known = ("classes", "none", "task", "tags")
    for key in table:
        if key not in known:
            raise UserError(f'{path}: unknown key "data.{key}".{nearest(key, known)}')
    classes = _names(path, "data.classes", table.get("classes"))
    none, task, tags = table.get("none", ""), table.get("task", ""), table.get("tags", {})
    if not isinstance(none, str) or (none and none not in classes):
        raise UserError(f"{path}: data.none must be one of data.classes.")
    if not isinstance(task, str) or not isinstance(tags, dict):
        raise UserError(f"{path}: data.task must be text, and [data.tags] a table.")
    sets = {silo: _names(path, f"data.tags.{silo}", some) for silo, some in tags.items()}
    for silo, some in sets.items():
        if odd := [t for t in some if t not in classes]:
            raise UserError(
                f'{path}: data.tags.{silo} has "{odd[0]}", which is none of the classes.'
            )
    return NamedData(classes, none, task, sets)


def _names(path: Path, key: str, value: Any) -> tuple[str, ...]:
    good = isinstance(value, list) and value and all(isinstance(v, str) for v in value)
    if not good or len(set(value)) < len(value) or not all(v and v.isprintable() for v in value):
        raise UserError(f"{path}: {key} must be a list of names, each of them once.")
    return tuple(value)
