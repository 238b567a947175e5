"""The study file: what a consortium agreed on, the same for everybody, word for word.

It has the settings that decide a run (method, rounds, seed, privacy …), a title, and in `[hashes]`
what must be the same on every machine (the model before the first round, the encoder …). What
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

from config.errors import UserError
from config.load import check, read_toml, typed
from config.settings import MACHINE_SETTINGS, Settings

__all__ = ["StudyFile", "read_study"]


@dataclass(frozen=True)
class StudyFile:
    path: Path
    title: str
    settings: Settings  #: with `silos` still open
    hashes: Mapping[str, str] = field(default_factory=dict)
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
    if "method" in said:  # where a method's file is kept is a machine's own business
        said["method"] = settings.method_name
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return StudyFile(path, title, settings, hashes, digest)
