"""The coordinator's figures for Prometheus, taken from what it writes into the run's log anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from report import events
from report.event_file import read_event
from wire.prometheus import Metrics

__all__ = ["CoordinatorMetrics"]


NO_NAMES: Mapping[str, str] = {}


class CoordinatorMetrics(Metrics):
    def __init__(self, rounds: int, silos: int, names: Mapping[str, str] = NO_NAMES) -> None:
        """`names`: what people call the silos, where they have names."""
        super().__init__(
            {
                "rounds_planned": ("gauge", "Rounds of the whole run."),
                "rounds_done": ("gauge", "Rounds that are finished."),
                "silos": ("gauge", "Silos of the study."),
                "silos_enrolled": ("gauge", "Silos that took part in the last key exchange."),
                "waiting": ("gauge", "1 while too few silos are here and the run waits for them."),
                "waiting_until": (
                    "gauge",
                    "When that wait ends, in seconds since 1970; 0: when its operator ends it.",
                ),
                "silo_missing": ("gauge", "1 for each silo that is waited for."),
                "round_participants": (
                    "gauge",
                    "Silos that were asked in the last finished round.",
                ),
                "round_survivors": ("gauge", "Silos whose answers are in the last finished round."),
                "round_seconds": ("gauge", "Seconds of the last finished round."),
                "dev": ("gauge", "The development metric after the last finished round."),
                "bytes_total": ("counter", "Bytes on the wire in finished rounds, by direction."),
                "lost_total": ("counter", "Connections of silos that ended during a round."),
                "refused_total": ("counter", "Refusals, by who refused and under which name."),
                "failed_sums_total": ("counter", "Secure sums that failed and were tried again."),
                "finished": ("gauge", "1 once the run is finished."),
            }
        )
        self.set("rounds_planned", rounds)
        self.set("silos", silos)
        self._names, self._missing = names, set[str]()
        for name in ("rounds_done", "finished", "silos_enrolled", "waiting", "waiting_until"):
            self.set(name, 0)
        for name in ("lost_total", "failed_sums_total"):
            self.add(name, 0)

    def observe(self, file: str, line: Mapping[str, Any]) -> None:
        """One line of a file of the run."""
        if file == "rounds.jsonl":
            self.set("rounds_done", line["round"] + 1)
            self.set("round_participants", len(line["participants"]))
            self.set("round_survivors", len(line["survivors"]))
            self.set("round_seconds", line["seconds"])
            if line["dev"] is not None:
                self.set("dev", line["dev"], metric=line["metric"])
            self.add("bytes_total", line["bytes_up"], direction="up")
            self.add("bytes_total", line["bytes_down"], direction="down")
        elif file == "events.jsonl":
            self._event(read_event(line))

    def _event(self, event: events.Event) -> None:
        match event:
            case events.Enrolled(silos=count):
                self.set("silos_enrolled", count)
            case events.Waiting(silos=silos, until=until):
                self._wait(set(silos), until)
            case events.Gathered() | events.Finished() | events.Failed():
                self._wait(set(), 0.0)
                self.set("finished", isinstance(event, events.Finished))
            case events.Lost():
                self.add("lost_total")
            case events.Refused(attack=attack):
                self.add("refused_total", by="coordinator", attack=attack)
            case events.RefusedBySilo(attack=attack):
                self.add("refused_total", by="silo", attack=attack)
            case events.SumFailed():
                self.add("failed_sums_total")

    def _wait(self, missing: set[str], until: float) -> None:
        self.set("waiting", bool(missing))
        self.set("waiting_until", until)
        for silo in missing | self._missing:
            self.set("silo_missing", silo in missing, silo=self._names.get(silo, silo))
        self._missing = missing
