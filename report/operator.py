"""`sottovoce page`: a party's own page for its operator, on this machine only. What it shows and what
can be done there is the party's (silo.operator_page, coordinator.operator_page); this serves it.

The page asks for `state.json` every two seconds. What an operator does is a POST (report.local_server
says from whom it is taken). Documents that are finished can be opened from it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from config.errors import UserError
from report.documents import KINDS
from report.local_server import LocalServer
from report.pages.operator import operator_html

__all__ = ["OperatorPage", "Party", "run_page_for"]


class Party(Protocol):
    def state(self) -> dict[str, Any]: ...
    def act(self, what: str, table: Mapping[str, Any]) -> dict[str, Any]: ...
    def folder(self, id_: str) -> Path: ...


class OperatorPage:
    """Serves until `close`."""

    def __init__(self, party: Party, port: int = 0) -> None:
        self._party = party
        self._lock = threading.Lock()  # two windows may ask at once
        self._page = operator_html(party.state()).encode()
        self._server = LocalServer(self._found, self._act, port)

    @property
    def address(self) -> str:
        return self._server.address

    def _found(self, rest: str) -> tuple[str, bytes] | None:
        if rest == "":
            return "text/html; charset=utf-8", self._page
        if rest == "state.json":
            with self._lock:
                try:
                    told: Mapping[str, Any] = self._party.state()
                except UserError as e:
                    told = {"error": str(e)}
            return "application/json", json.dumps(told).encode()
        return self._document(rest)

    def _document(self, rest: str) -> tuple[str, bytes] | None:
        """`documents/STUDY/KIND.html`, and nothing else of the disk."""
        words = rest.split("/")
        if len(words) != 3 or words[0] != "documents" or not words[1].isalnum():
            return None
        name = words[2]
        if name not in {f"{kind}.{end}" for kind in KINDS for end in ("html", "json")}:
            return None
        try:
            content = (self._party.folder(words[1]) / name).read_bytes()
        except (OSError, UserError):
            return None
        kind = "text/html; charset=utf-8" if name.endswith("html") else "application/json"
        return kind, content

    def _act(self, rest: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            return self._party.act(rest.removeprefix("do/"), table)

    def close(self) -> None:
        self._server.close()


def run_page_for(party: Party, port: int, console: Console) -> int:
    """Until Ctrl-C."""
    served = OperatorPage(party, port)
    console.print(f"page: {served.address}", highlight=False, soft_wrap=True)
    console.print(
        "on this machine only; whoever has the address can do what you can; Ctrl-C ends it",
        highlight=False,
    )
    try:
        while True:
            time.sleep(1.0)
    except KeyboardInterrupt:
        return 0
    finally:
        served.close()
