"""A trained model, opened for use."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sottovoce._command import read_json

__all__ = ["Model"]

#: a text, or an object of the JSON lines that `sottovoce extract` reads, or a file or folder
Source = str | Mapping[str, Any] | os.PathLike[str]


class Model:
    """The model of a run: `path` is the run folder, or the model/ in one. `device`: as DEVICE has it."""

    def __init__(self, path: str | os.PathLike[str], device: str = "auto") -> None:
        from extract.pairs import open_extractor

        self.path, self._device = Path(path), device
        with _as_the_command(device):
            self._extractor = open_extractor(self.path)

    def extract(
        self, source: Source | Sequence[Source], *, least: float = 0.0, none: bool = False
    ) -> list[dict[str, Any]]:
        """Relations or entities in new text: a dict for every JSON line that `sottovoce extract`
        writes.

        A string is text, a mapping is one object of the JSON lines that `extract` reads, and a
        `pathlib.Path` is a file or folder; or a list of these. `least` leaves out what scores below
        it; `none` also gives pairs that the model says have no relation.
        """
        from rich.progress import Progress

        from extract.command import judge

        sources: list[Source]
        if isinstance(source, str | Mapping | os.PathLike):
            sources = [source]
        else:
            sources = list(source)
        given = [_given(s, k if len(sources) > 1 else 0) for k, s in enumerate(sources, 1)]
        with _as_the_command(self._device):
            result = judge(self._extractor, given, Progress(disable=True), least, none)
            return [json.loads(line) for line in result.lines]

    def evaluate(self, corpus: str = "", split: str = "test") -> dict[str, Any]:
        """The score on a corpus with the same classes; nothing: the run's own. As `sottovoce
        evaluate --json` says it.
        """
        corpora = [str(corpus)] if corpus else []
        how = ["--split", split, "--device", self._device, "--json"]
        return read_json(["evaluate", str(self.path), *corpora, *how])

    def __repr__(self) -> str:
        return f"<Model {self.path}>"


def _given(source: Source, number: int) -> Any:
    """As `extract` reads it. `number` tells texts of a list apart in ids and errors; 0: only one."""
    from extract.read_texts import Given

    if isinstance(source, os.PathLike):
        return os.fspath(source)
    content = source if isinstance(source, str) else json.dumps(source, ensure_ascii=False)
    return Given(f"text-{number}" if number else "text", content)


@contextmanager
def _as_the_command(device: str) -> Iterator[None]:
    """On one thread, because sums of floats depend on it, and on this device; then as the caller had
    it.
    """
    import torch

    from models.device import computing_on

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with computing_on(device):
            yield
    finally:
        torch.set_num_threads(before)
