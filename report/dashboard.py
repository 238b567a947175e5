"""`sottovoce watch RUN --dashboard`: the same in a browser on this machine, read-only.

Listens on the loopback address alone and answers nobody who does not know the random token in its
address; a page of another site cannot reach it by a name of its own either, since the Host header
must be ours. It has one page and one table, and no way to change anything. The page asks for the
table every second until the run has ended.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rich.console import Console

from config.errors import UserError
from report.live import LiveRun
from report.pages.elements import Html, node, page
from report.watch import closing

__all__ = ["Dashboard", "run_dashboard"]

HOST = "127.0.0.1"
_COLUMNS = ("round", "dev", "survivors", "up", "down", "seconds")


class Dashboard:
    """Serves from a thread of its own until `close`."""

    def __init__(self, run: Path, port: int = 0) -> None:
        self.live = LiveRun(run)
        self.live.catch_up()
        self.token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._page = _page(self.live.snapshot()).encode()
        try:
            self._server = ThreadingHTTPServer((HOST, port), _handler(self))
        except OSError as e:
            where = f"{HOST}:{port} ({e.strerror})"
            raise UserError(
                f"The dashboard cannot listen on {where}; give another --port."
            ) from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """(type, content) of what is asked for; None: there is no such thing, or whoever asks may
        not know.
        """
        word, _, rest = path.removeprefix("/").partition("/")
        if not hmac.compare_digest(word.encode("utf-8", "replace"), self.token.encode()):
            return None
        if rest == "":
            return "text/html; charset=utf-8", self._page
        if rest == "state.json":
            return "application/json", json.dumps(self.state()).encode()
        return None

    def state(self) -> dict[str, Any]:
        with self._lock:
            self.live.catch_up()
            return self.live.snapshot()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(dashboard: Dashboard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "sottovoce", ""
        timeout = 30

        def do_GET(self) -> None:
            here = {f"{HOST}:{dashboard.port}", f"localhost:{dashboard.port}"}
            found = dashboard.answer(self.path) if self.headers.get("Host") in here else None
            if found is None:
                self._send(404, "text/plain", b"nothing here\n")
            else:
                self._send(200, *found)

        def _refuse(self) -> None:
            self.close_connection = True  # what they wanted to send is not read
            self._send(405, "text/plain", b"read-only\n")

        do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = do_TRACE = do_CONNECT = (
            _refuse
        )

        def _send(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(content))),
                ("Cache-Control", "no-store"),
                ("X-Content-Type-Options", "nosniff"),
                ("X-Frame-Options", "DENY"),
                ("Referrer-Policy", "no-referrer"),  # the token stands in the address
                ("Cross-Origin-Resource-Policy", "same-origin"),
            ):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: a request's address holds the token."""

    return Handler


def _page(s: dict[str, Any]) -> str:
    empty = Html("")
    body = (
        node(
            "header",
            node("h1", s["title"] or f"{s['method']} on {s['corpus']}"),
            node(
                "p",
                "waiting for the first word of the run …",
                id="status",
                class_="lead",
                role="status",
            ),
            node("p", "", id="missing", class_="warning", role="alert", hidden=True),
        ),
        node(
            "section",
            node(
                "dl",
                *(
                    node(
                        "div", node("dt", name), node("dd", node("span", "–", class_="big", id=id_))
                    )
                    for name, id_ in (
                        ("rounds done", "done"),
                        ("dev metric", "dev"),
                        ("uploaded", "up"),
                        ("downloaded", "down"),
                        ("time left, about", "left"),
                    )
                ),
                class_="tiles",
            ),
            aria_label="Where it stands",
        ),
        node(
            "section",
            node("h2", "Rounds"),
            node(
                "div",
                class_="plot",
                id="metric",
                style="height:240px",
                role="img",
                aria_label="Metric by round",
            ),
            node(
                "div",
                class_="plot",
                id="bytes",
                style="height:200px",
                role="img",
                aria_label="Bytes by round",
            ),
            node(
                "div",
                node(
                    "table",
                    node("thead", node("tr", *(node("th", h, scope="col") for h in _COLUMNS))),
                    node("tbody", empty, id="rounds"),
                    class_="numbers",
                ),
                class_="scroll",
                tabindex="0",
            ),
            aria_label="Rounds",
        ),
        node(
            "section",
            node("h2", "Silos"),
            node("ul", empty, id="silos", class_="silos"),
            aria_label="Silos",
        ),
        node(
            "section",
            node("h2", "What happened"),
            node("ul", empty, id="notes"),
            aria_label="What happened",
        ),
    )
    return page(f"live: {s['run']}", *body, script="live.js", connect="'self'")


def run_dashboard(run: Path, port: int, console: Console) -> int:
    """Until Ctrl-C. After the end of the run the page can still be opened."""
    dashboard = Dashboard(run, port)
    console.print(f"dashboard: {dashboard.address}", highlight=False, soft_wrap=True)
    console.print(
        "on this machine only; whoever has the address can read, nobody can write; Ctrl-C ends it"
    )
    told = False
    try:
        while True:
            state = dashboard.state()
            if state["ended"] and not told:
                told = True
                console.print(closing(state), highlight=False, soft_wrap=True, markup=False)
            time.sleep(1.0)
    except KeyboardInterrupt:
        return 0
    finally:
        dashboard.close()
