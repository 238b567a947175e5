"""Pages for one person on this machine: a small HTTP server on the loopback address.

It answers nobody who does not know the random token in its address. A page of another site cannot
reach it by a name of its own, since the Host header must be ours. What changes something is a POST
that other sites cannot make either: its content must be JSON, the token stands in a header once more,
and the Origin, where a browser says one, must be this very server.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from config.errors import UserError

__all__ = ["HOST", "TOKEN_HEADER", "LocalServer"]

HOST = "127.0.0.1"
TOKEN_HEADER = "X-Sottovoce-Token"
_MOST = 1 << 20  #: bytes of a POST
Found = tuple[str, bytes] | None


class LocalServer:
    """Serves from threads of its own until `close`."""

    def __init__(
        self,
        page: Callable[[str], Found],
        act: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] | None = None,
        port: int = 0,
    ) -> None:
        """`page`: (type, content) of what stands behind the token; None: there is no such thing.
        `act`: does what is asked for by name, with a table; a UserError of it is told. None: nothing
        can be changed.
        """
        self.token = secrets.token_urlsafe(24)
        self._page, self._act = page, act
        try:
            self._server = ThreadingHTTPServer((HOST, port), _handler(self))
        except OSError as e:
            where = f"{HOST}:{port} ({e.strerror})"
            raise UserError(f"The page cannot be served on {where}; give another --port.") from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> set[str]:
        return {f"{HOST}:{self.port}", f"localhost:{self.port}"}

    @property
    def read_only(self) -> bool:
        return self._act is None

    def known(self, word: str) -> bool:
        return hmac.compare_digest(word.encode("utf-8", "replace"), self.token.encode())

    def get(self, path: str) -> Found:
        word, _, rest = path.removeprefix("/").partition("/")
        return self._page(rest) if self.known(word) else None

    def post(self, path: str, content: bytes) -> tuple[int, Mapping[str, Any]]:
        """Whoever calls this has shown the token."""
        _, _, rest = path.removeprefix("/").partition("/")
        try:
            table = json.loads(content)
            if not isinstance(table, dict) or self._act is None:
                raise ValueError
        except ValueError:
            return 400, {"error": "This is not a table."}
        try:
            return 200, self._act(rest, table)
        except UserError as e:
            return 409, {"error": str(e)}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: LocalServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "sottovoce", ""
        timeout = 30

        def do_GET(self) -> None:
            found = server.get(self.path) if self.headers.get("Host") in server.hosts else None
            if found is None:
                self._send(404, "text/plain", b"nothing here\n")
            else:
                self._send(200, *found)

        def do_POST(self) -> None:
            if server.read_only:
                self._refuse()
                return
            if not self._ours():
                self.close_connection = True  # what they wanted to send is not read
                self._send(404, "text/plain", b"nothing here\n")
                return
            size = self.headers.get("Content-Length", "")
            if not size.isdigit() or int(size) > _MOST:
                self.close_connection = True
                self._send(413, "text/plain", b"too much\n")
                return
            status, said = server.post(self.path, self.rfile.read(int(size)))
            self._send(status, "application/json", json.dumps(said).encode())

        def _ours(self) -> bool:
            """Whether the page itself asks, and no other site in the same browser."""
            word = self.path.removeprefix("/").partition("/")[0]
            origin = self.headers.get("Origin")
            return (
                self.headers.get("Host") in server.hosts
                and server.known(word)
                and server.known(self.headers.get(TOKEN_HEADER, ""))
                and self.headers.get("Content-Type") == "application/json"
                and (origin is None or origin.removeprefix("http://") in server.hosts)
            )

        def _refuse(self) -> None:
            self.close_connection = True  # what they wanted to send is not read
            self._send(405, "text/plain", b"read-only\n")

        do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = do_TRACE = do_CONNECT = _refuse

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
