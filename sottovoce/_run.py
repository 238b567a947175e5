"""A run's folder as Python reads it, and a plan."""

from __future__ import annotations

import html
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import UserError
from sottovoce._command import relay

if TYPE_CHECKING:
    import pandas

__all__ = ["Plan", "Run", "simulated"]

#: the line on which a simulation says where it writes
_WHERE = re.compile(r", seed \d+, (?:processes|inprocess): (.+)$")


class Run:
    """A run folder. Tables are its files, a row for every line: nothing is computed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        if not (self.path / "config.toml").is_file():
            raise UserError(f'"{path}" is not a run folder: it has no config.toml.')

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """The run in this folder, finished or not; `runs/latest` is the last one."""
        return cls(path)

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    @property
    def summary(self) -> Mapping[str, Any]:
        """summary.json: the figures of a finished run."""
        table: dict[str, Any] = json.loads(self._file("summary.json").read_text("utf-8"))
        return table

    @property
    def rounds(self) -> pandas.DataFrame:
        """A row a round: dev metric, who took part, bytes, seconds."""
        return self._table("rounds.jsonl")

    @property
    def traffic(self) -> pandas.DataFrame:
        """What crossed the wire, by silo, direction and kind of message."""
        return self._table("traffic.jsonl")

    @property
    def privacy(self) -> pandas.DataFrame:
        """What each silo's privacy ledger was charged."""
        return self._table("privacy.jsonl")

    @property
    def report(self) -> Path:
        """The page for a browser."""
        return self._file("report.html")

    @property
    def model(self) -> Path:
        """The folder of the trained model. Where that has an encoder,
        `transformers.AutoModel.from_pretrained(run.model / "encoder")` loads it.
        """
        self._file("summary.json")
        return self.path / "model"

    def resume(self, quiet: bool = False) -> Run:
        """Go on after the last finished round of a run that was cut short."""
        relay(["simulate", "--resume", str(self.path)], (lambda line: None) if quiet else _say)
        return self

    def _file(self, name: str) -> Path:
        if not self.finished:
            raise UserError(f'"{self.path}" has no summary.json: it is not a finished run.')
        return self.path / name

    def _table(self, name: str) -> pandas.DataFrame:
        import pandas

        path = self.path / name
        text = path.read_text("utf-8") if path.exists() else ""
        # a last line that is still being written is left out
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        frame = pandas.json_normalize(lines)
        return frame.map(lambda v: math.inf if isinstance(v, str) and v == "inf" else v)

    def __repr__(self) -> str:
        if not self.finished:
            return f"<Run {self.path}, not finished>"
        s = self.summary
        return f"<Run {self.path}: {s['method']}, test {s['metric']} {s['value']:.4f}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a few figures and a link to the report."""
        if not self.finished:
            return html.escape(repr(self))
        s = self.summary
        shown = {
            "method": s["method"],
            "corpus": s["corpus"],
            "silos, rounds": f"{s['silos']}, {s['rounds']}",
            f"test {s['metric']}": f"{s['value']:.4f}",
            "up per silo and round": f"{s['bytes_up_per_silo_round']:,.0f} bytes",
            "epsilon": s["epsilon"],
            "seconds": s["wall_seconds"],
        }
        link = html.escape(_link(self.report), quote=True)
        return f'{_html(shown)}<p><a href="{link}" target="_blank">report</a></p>'


class Plan(Mapping[str, Any]):
    """What a run would cost, as `sottovoce plan --json` says it."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        self._figures = dict(figures)

    def __getitem__(self, name: str) -> Any:
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    @property
    def warnings(self) -> Sequence[str]:
        return tuple(self._figures["warnings"])

    def __repr__(self) -> str:
        return f"Plan({self._figures!r})"

    def _repr_html_(self) -> str:
        return _html({k: v for k, v in self.items() if k not in ("by_silo", "by_round")})


def simulated(words: Sequence[str], quiet: bool) -> Run:
    """The run that `sottovoce simulate` makes of these words."""
    places: list[str] = []

    def say(line: str) -> None:
        places.extend(_WHERE.findall(line))
        if not quiet:
            _say(line)

    relay(["simulate", *words], say)
    return Run(places[0])


def _say(line: str) -> None:
    print(line, flush=True)


def _html(figures: Mapping[str, Any]) -> str:
    rows = (
        f"<tr><th style='text-align:left'>{html.escape(str(k))}</th>"
        f"<td style='text-align:left'>{html.escape(str(v))}</td></tr>"
        for k, v in figures.items()
    )
    return f"<table>{''.join(rows)}</table>"


def _link(path: Path) -> str:
    """Relative to the notebook where that is possible: a page from a server may not link to a file
    of the machine.
    """
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_uri()
