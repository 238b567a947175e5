"""Figures for Prometheus: a handful of gauges and counters in its text format, over HTTP. Off
unless asked for.

No package is needed for it, and none is loaded. Whoever can reach the address can read the figures
and do nothing else; the address is the loopback one unless the operator names another. Nothing here
is about single examples: rounds, bytes, seconds, states, epsilon.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

__all__ = ["Metrics", "MetricsServer", "address_of"]

Kind = Literal["gauge", "counter"]
_Labels = tuple[tuple[str, str], ...]


def address_of(text: str) -> tuple[str, int]:
    """PORT is the loopback address; HOST:PORT says which. Raises ValueError."""
    host, _, port = text.rpartition(":")
    number = int(port)
    if not 0 <= number < 65536:
        raise ValueError(f"{number} is not a port")
    return host or "127.0.0.1", number


class Metrics:
    """Named figures, with labels. Safe to set in one thread and to read in another."""

    def __init__(self, about: Mapping[str, tuple[Kind, str]]) -> None:
        """`about`: every name that will be set, its kind and what it says."""
        self._about = dict(about)
        self._values: dict[tuple[str, _Labels], float] = {}
        self._lock = threading.Lock()

    def set(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self._values[self._key(name, labels)] = float(value)

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        key = self._key(name, labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + value

    def _key(self, name: str, labels: Mapping[str, str]) -> tuple[str, _Labels]:
        if name not in self._about:
            raise KeyError(f"{name} was not announced")
        return name, tuple(sorted(labels.items()))

    def text(self) -> str:
        with self._lock:
            values = dict(self._values)
        lines = []
        for name, (kind, says) in self._about.items():
            lines += [f"# HELP sottovoce_{name} {says}", f"# TYPE sottovoce_{name} {kind}"]
            lines += [
                f"sottovoce_{n}{_braces(labels)} {_number(v)}"
                for (n, labels), v in values.items()
                if n == name
            ]
        return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(value)


def _braces(labels: _Labels) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{k}="{quoted(v)}"' for k, v in labels) + "}" if labels else ""


Health = Callable[[], tuple[bool, Mapping[str, Any]]]


class MetricsServer:
    """GET /metrics and GET /health, from a thread of its own, until `close`. Raises OSError when the
    port is taken.
    """

    def __init__(
        self,
        metrics: Metrics,
        host: str,
        port: int,
        *,
        health: Health = lambda: (True, {}),
        more: Callable[[], str] = lambda: "",
    ) -> None:
        """`health`: whether all is well (status 200, otherwise 503), and a table for people. `more`:
        figures of others that are passed on.
        """

        def answer(path: str) -> tuple[int, str, str]:
            if path == "/metrics":
                return 200, "text/plain; version=0.0.4; charset=utf-8", metrics.text() + more()
            if path == "/health":
                good, table = health()
                said = {"status": "ok" if good else "stuck", **table}
                return 200 if good else 503, "application/json", json.dumps(said) + "\n"
            return 404, "text/plain; charset=utf-8", "only /metrics and /health are here\n"

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version, timeout = "sottovoce", "", 10

            def do_GET(self) -> None:
                status, kind, text = answer(self.path)
                content = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """A scrape every few seconds is not worth a line in anybody's log."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
