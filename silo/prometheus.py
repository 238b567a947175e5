"""A silo's figures for Prometheus, for its own operator: what it heard, computed, sent and
spent.
"""

from __future__ import annotations

from typing import Any

from wire import messages as m
from wire.counter import wire_size
from wire.order import NUMBER_BYTES
from wire.prometheus import Metrics

__all__ = ["SiloMetrics"]


class SiloMetrics(Metrics):
    def __init__(self, name: str) -> None:
        super().__init__(
            {
                "silo_info": ("gauge", "1, with the silo's name."),
                "silo_round": (
                    "gauge",
                    "The last round that this silo was asked for, counted from one.",
                ),
                "silo_answers_total": ("counter", "Answers that this silo computed."),
                "silo_compute_seconds_total": ("counter", "Seconds spent on answers."),
                "silo_bytes_total": ("counter", "Bytes on the wire, by direction."),
                "silo_refused_total": ("counter", "What this silo refused, by name."),
                "silo_epsilon": ("gauge", "Epsilon that its ledger was charged so far."),
            }
        )
        self.set("silo_info", 1, silo=name)
        self.add("silo_answers_total", 0)
        self.add("silo_compute_seconds_total", 0)

    def heard(self, message: m.Message, payload: Any) -> None:
        self._bytes("down", message, payload)
        if isinstance(message, m.Broadcast):
            self.set("silo_round", message.round + 1)

    def sent(self, message: m.Message, payload: Any, seconds: float) -> None:
        """`seconds`: since the message before it was sent, or what it answers was heard."""
        self._bytes("up", message, payload)
        if isinstance(message, m.Ready):
            self.add("silo_answers_total")
            self.add("silo_compute_seconds_total", seconds)
            if message.charged:
                self.set("silo_epsilon", float(message.charged[-1]["epsilon_after"]))
        elif isinstance(message, m.Refused):
            self.add("silo_refused_total", attack=message.attack)

    def _bytes(self, direction: str, message: m.Message, payload: Any) -> None:
        size = wire_size(NUMBER_BYTES + len(m.encode(message)))
        size += wire_size(memoryview(payload).nbytes) if payload is not None else 0
        self.add("silo_bytes_total", size, direction=direction)
