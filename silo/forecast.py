"""What a study would charge this silo's privacy budget, before anybody agrees to it (silo.cost says
what that comes to).
"""

from __future__ import annotations

import math

from methods.dp.coverage import records_in
from methods.dp.dpsgd import plan
from methods.dp.releases import planned_releases, planned_rounds, record_privacy
from privacy.events import Event, NonPrivate, Unit
from silo.cost import Planned
from study.agreement import Agreed
from study.prepare import planned_sum_noise

__all__ = ["planned_for"]


def planned_for(of: Agreed, index: int, own_limit: float) -> Planned:
    """`own_limit`: the silo's own, over all that was ever released of its records."""
    s = of.prepared.settings
    unit: Unit = "silo" if s.dp == "silo" else "record"
    allowed = min(own_limit, s.epsilon or math.inf)
    return Planned(_events(of, index), s.delta, unit, allowed)


def _events(of: Agreed, index: int) -> list[Event]:
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
