"""What a study would cost this silo's privacy budget, before anybody agrees to it: its planned events
on top of what the ledger holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from config.errors import UserError
from methods.dp.coverage import records_in
from methods.dp.dpsgd import plan
from methods.dp.releases import planned_releases, planned_rounds, record_privacy
from privacy.accountant import Total, total
from privacy.events import Event, NonPrivate, Unit, UnknownEvent, from_record
from study.agreement import Agreed
from study.prepare import planned_sum_noise

__all__ = ["Forecast", "forecast", "read_ledger"]


@dataclass(frozen=True)
class Forecast:
    now: Total  #: what the ledger holds, at the study's delta
    alone: Total  #: the study by itself, if the silo takes part in every round
    after: Total  #: both together


def read_ledger(path: Path) -> list[Event]:
    """Every event, without taking the file from a silo that runs. A last line still being written
    is left out.
    """
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    events = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            events.append(from_record(json.loads(line)["event"]))
        except (ValueError, KeyError, TypeError, UnknownEvent):
            raise UserError(
                f"{path}, line {number}: it is not a line of a privacy ledger."
            ) from None
    return events


def forecast(of: Agreed, index: int, ledger: Path) -> Forecast:
    s = of.prepared.settings
    unit: Unit = "silo" if s.dp == "silo" else "record"
    spent, planned = read_ledger(ledger), _planned(of, index)
    return Forecast(
        total(spent, s.delta, unit),
        total(planned, s.delta, unit),
        total([*spent, *planned], s.delta, unit),
    )


def _planned(of: Agreed, index: int) -> list[Event]:
    """Everything that would be charged, if nothing is lost and nothing goes wrong."""
    study = of.prepared
    s, method = study.settings, study.method
    if s.dp == "record":
        declared = record_privacy(method.privacy)
        data = study.task.subset(study.partition.indices[index])
        records = records_in(method, study.task, data)
        training = [plan(s, records, declared)] * planned_rounds(s) if records else []
        return [*training, *planned_releases(s, declared)]
    if s.dp == "silo":
        noise = planned_sum_noise(study)
        sizes = [sum(a.size for a in e.masked.values()) for e in method.exchanges if e.masked]
        sums: list[Event] = [noise.event(size, s.cohort_size) for size in sizes]
        return sums * s.rounds
    return [NonPrivate()]
