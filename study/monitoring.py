"""What a program that serves for weeks tells its machine's monitoring: `/health`, and `/metrics` for
Prometheus, at one address for as long as it serves.

Each study runs in a process of its own, with figures of its own. That process offers them on the
loopback address, one port further for each study that runs at once, and this program passes them on:
whoever watches needs one address.
"""

from __future__ import annotations

import logging
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from config.errors import UserError
from study.presence import Presence
from wire.prometheus import Metrics, MetricsServer, address_of

__all__ = ["Monitor", "figures_beside", "together"]

log = logging.getLogger("wire")
_SECONDS = 2.0  #: for a study's own figures
Counts = Callable[[], Mapping[str, int]]


def figures_beside(address: str, place: int) -> str:
    """Where the process of a study offers its figures; `place`: 1 for the first that runs. Empty
    where nobody wants any.
    """
    return f"127.0.0.1:{address_of(address)[1] + place}" if address else ""


class ServingMetrics(Metrics):
    def __init__(self, role: str, name: str, presence: Presence, studies: Counts) -> None:
        super().__init__(
            {
                "serving_info": ("gauge", "1, with the party's role and name."),
                "serving_since": ("gauge", "When it was started, in seconds since 1970."),
                "serving_beat": ("gauge", "When it last went round, in seconds since 1970."),
                "last_heard": ("gauge", "When a party last spoke to it, in seconds since 1970."),
                "studies": ("gauge", "Studies that it knows, by how they stand."),
            }
        )
        self._presence, self._studies = presence, studies
        self.set("serving_info", 1, role=role, party=name)

    def refresh(self) -> None:
        seen = self._presence.seen
        self.set("serving_since", seen.began)
        self.set("serving_beat", seen.beat)
        for party, at in seen.heard.items():
            self.set("last_heard", at, party=party)
        for state, count in self._studies().items():
            self.set("studies", count, state=state)

    def text(self) -> str:
        self.refresh()
        return super().text()


class Monitor:
    """Answers until `close`. `places`: how many studies may run at once."""

    def __init__(
        self,
        address: str,
        *,
        role: str,
        name: str,
        presence: Presence,
        studies: Counts,
        places: int = 1,
    ) -> None:
        self._presence, self._name, self._role = presence, name, role
        self._beside = [figures_beside(address, k + 1) for k in range(places)]
        figures = ServingMetrics(role, name, presence, studies)
        try:
            self._server = MetricsServer(
                figures, *address_of(address), health=self._health, more=self._more
            )
        except (OSError, ValueError) as e:
            raise UserError(f"METRICS={address} cannot be listened on ({e}).") from None
        self.port = self._server.port
        log.info("health and figures for Prometheus on port %d", self.port)

    def _health(self) -> tuple[bool, Mapping[str, Any]]:
        seen = self._presence.seen
        table = {"role": self._role, "name": self._name, "beat": seen.beat}
        return seen.alive(time.time()), {**table, "running": sorted(seen.running)}

    def _more(self) -> str:
        """What the studies that run say of themselves, each under its slot."""
        found = {}
        for slot, place in enumerate(self._beside if self._presence.seen.running else (), 1):
            try:
                with urllib.request.urlopen(f"http://{place}/metrics", timeout=_SECONDS) as answer:
                    found[slot] = answer.read(1 << 20).decode("utf-8")
            except (OSError, ValueError):
                continue  # between two starts, or done
        return together(found)

    def close(self) -> None:
        self._server.close()


def together(texts: Mapping[int, str]) -> str:
    """Figures of several studies as one text: each says its slot, and the lines of one figure stand
    together, as the format wants it.
    """
    about: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for slot, text in texts.items():
        for line in text.splitlines():
            words = line.split(" ")
            if line.startswith("#"):
                known = about.setdefault(words[2], [])
                if line not in known:
                    known.append(line)
                continue
            name, brace, rest = words[0].partition("{")
            labels = f'{{slot="{slot}"' + (f",{rest}" if brace else "}")
            samples.setdefault(name, []).append(" ".join([name + labels, *words[1:]]))
    lines = [x for name in about for x in (*about[name], *samples.get(name, ()))]
    return "".join(f"{line}\n" for line in lines)
