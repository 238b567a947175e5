"""Headless Chromium driven over its own pipe (DevTools protocol): no driver, no package, no port.

Messages are JSON ended by a NUL byte, written to the browser's descriptor 3 and read from its 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BINARY = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    BINARY is None, reason="no Chromium here (Debian: apt-get install chromium)"
)

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE = 30.0


class Tab:
    """One page: what it asked the network for, what it complained about, and hands to use it
    with.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._rest, self._number, self._session = (
            to_browser,
            from_browser,
            b"",
            0,
            "",
        )
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = 0
        # select.select takes no number above 1023, and a test process may have more
        self._poll = select.poll()
        self._poll.register(self._from, select.POLLIN)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        wanted, until = self._number, time.monotonic() + _PATIENCE
        while True:
            answer = self._next(until)
            if answer.get("id") == wanted:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready = self._poll.poll(1000 * max(0.0, until - time.monotonic()))
            assert ready, f"Chromium did not answer; it complained: {self.complaints}"
            piece = os.read(self._from, 1 << 20)
            assert piece, "Chromium ended"
            self._rest += piece
        line, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(line)
        self._noted(message.get("method", ""), message.get("params", {}))
        return message

    def _noted(self, method: str, p: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(p["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.complaints.append(f"console.{p['type']}: {json.dumps(p['args'])[:500]}")
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.complaints.append(p["entry"]["text"])
        elif method == "Page.loadEventFired":
            self._loaded += 1

    def open(self, address: str) -> None:
        before, until = self._loaded, time.monotonic() + _PATIENCE
        answer = self.call("Page.navigate", url=address)
        assert not answer.get("errorText"), answer
        while self._loaded == before:
            self._next(until)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> Any:
        """Wait, frame by frame in the browser, until an expression is true."""
        return self.run(
            f"new Promise(done => {{ const look = () => {{ const v = ({condition}); "
            "if (v) done(v); else setTimeout(look, 20); }; look(); })"
        )

    def click(self, selector: str) -> None:
        """A real click, with the mouse, in the middle of the first element that fits."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); "
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.click_at(*box)

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width: int, height: int, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def dark(self, on: bool) -> None:
        value = "dark" if on else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": value}],
        )

    def picture(self, path: Path, whole: bool = False) -> None:
        answer = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole)
        )
        path.write_bytes(base64.b64decode(answer["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {
            "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        }

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])


@contextmanager
def chromium() -> Iterator[Tab]:
    assert BINARY is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        # The shell puts the two pipes where Chromium looks for them, whatever their numbers are
        # here.
        command = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        browser = subprocess.Popen(
            ["bash", "-c", command, "chromium", BINARY, *_FLAGS, f"--user-data-dir={home}"],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            yield Tab(to_write, from_read)
        finally:
            os.close(to_write)  # its end of the pipe closed: Chromium leaves
            os.close(from_read)
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()
