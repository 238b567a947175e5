"""Logs as JSON lines: when, how grave, which part of the program, what; and for a refusal, its
name.

A log line must not hold a word of anybody's text. Messages are written by us, with numbers and
names of silos in them; what could carry data is an exception's own message (a KeyError is the key
that was looked up), so of an exception only its kind and where it came from are kept.
"""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from config.names import with_names

__all__ = ["JsonLines", "log_to"]

_REFUSED = re.compile(r"(refused|declined) \(([a-z-]+)\)")


class JsonLines(logging.Formatter):
    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self._names = names

    def _named(self, value: Any) -> Any:
        if isinstance(value, str):
            return with_names(value, self._names)
        return [self._named(v) for v in value] if isinstance(value, list) else value

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        stamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z"
        )
        line: dict[str, Any] = {
            "time": stamp,
            "level": record.levelname.lower(),
            "part": record.name,
        }
        said = {"message": message, **getattr(record, "fields", {})}
        line |= {key: self._named(value) for key, value in said.items()}
        if match := _REFUSED.search(message):
            line[match[1]] = match[2]
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])
            line["exception"] = record.exc_info[0].__name__
            line["at"] = [f"{'/'.join(Path(f.filename).parts[-2:])}:{f.lineno}" for f in frames]
        return json.dumps(line, ensure_ascii=False)


def log_to(stream: TextIO, names: Mapping[str, str] | None = None) -> None:
    """All logging of this process, one JSON line each, and nothing from libraries below a
    warning. `names`: what the silos of a consortium are called.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(names or {}))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in ("silo", "coordinator", "wire"):
        logging.getLogger(name).setLevel(logging.INFO)
