"""`sottovoce plan`: what a run will cost, before it: bytes, memory, epsilon, time. Simulations keep
it as plan.json.

Bytes are counted by bench/planning/bytes.py and need no training; time and memory come from
bench/planning/calibrate.py, which trains on a few batches. A run too short to be worth that goes
without.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.planning.bytes import Rehearsal, rehearse
from bench.planning.calibrate import Calibration, calibrate
from bench.planning.fits import PROCESS_MB, SEAT_MB, too_large
from bench.planning.utility import utility_of
from config.errors import UserError
from config.settings import Settings
from methods.dp.coverage import large_delta, records_in
from methods.dp.dpsgd import plan as dpsgd_plan
from methods.dp.releases import planned_releases, record_privacy
from privacy.accountant import total
from privacy.events import DpSgd
from report.units import duration, human_bytes
from study.machine import one_thread
from study.prepare import Study, planned_sum_noise, prepare, warm

__all__ = ["make_plan", "run_plan", "worth_calibrating", "write_plan"]

_BUFFERS = 2  #: uploads that the coordinator takes at once
_WORST = 3  #: silos whose epsilon is computed: those that will spend most
_SHORT = 30_000  #: training units over a whole run, below which a simulation calibrates nothing


def make_plan(study: Study, measured: bool, bandwidth: float = 0.0) -> dict[str, Any]:
    """plan.json. `measured`: also time and memory, from a calibration."""
    r = rehearse(study)
    wire = study.settings.runner == "processes"
    plan: dict[str, Any] = {
        "method": study.method.name,
        "silos": study.settings.silos,
        "rounds": study.settings.rounds,
        "participations": r.participations,
        "arrays_up_per_silo_round": r.arrays_up / r.participations,
        "arrays_down_per_silo_round": r.arrays_down / r.participations,
        **(_bytes(r) if wire else {}),
        **_epsilon(study, r),
        **_utility(study),
        **(_measured(study, r, calibrate(study)) if measured else {}),
    }
    plan["bandwidth"] = bandwidth or None
    plan["warnings"] = _warnings(study, r, plan, bandwidth)
    return plan


def _bytes(r: Rehearsal) -> dict[str, Any]:
    def summed(direction: str, rounds_only: bool) -> int:
        return sum(
            t["wire_bytes"]
            for t in r.traffic
            if t["direction"] == direction and (t["round"] >= 0 or not rounds_only)
        )

    by_silo: dict[str, dict[str, int]] = {}
    by_round: dict[int, dict[str, int]] = {}
    for t in r.traffic:
        silo = by_silo.setdefault(t["silo"], {"up": 0, "down": 0})
        silo[t["direction"]] += t["wire_bytes"]
        if t["round"] >= 0:
            round = by_round.setdefault(t["round"], {"up": 0, "down": 0})
            round[t["direction"]] += t["wire_bytes"]
    return {
        "bytes_up_per_silo_round": summed("up", True) / r.participations,
        "bytes_down_per_silo_round": summed("down", True) / r.participations,
        "bytes_up_total": summed("up", False),
        "bytes_down_total": summed("down", False),
        "by_silo": dict(sorted(by_silo.items())),
        "by_round": [by_round[k] for k in sorted(by_round)],
    }


def _epsilon(study: Study, r: Rehearsal) -> dict[str, Any]:
    """Of the worst-off silo after all planned rounds, on an empty ledger."""
    s = study.settings
    if s.dp == "off":
        return {"epsilon": "inf", "delta": 0.0}
    if s.dp == "silo":
        noise = planned_sum_noise(study)
        sizes = [sum(a.size for a in e.masked.values()) for e in study.method.exchanges if e.masked]
        most = max(Counter(i for cohort in r.cohorts for i in cohort).values(), default=0)
        sums = [noise.event(size, s.cohort_size) for size in sizes]
        epsilon = total(sums * most, s.delta, "silo").epsilon
        return {"epsilon": epsilon, "delta": s.delta, "noise": noise.noise}
    declared = record_privacy(study.method.privacy)
    asked = Counter(i for cohort in r.cohorts for i in cohort)
    events: set[DpSgd] = set()
    for i, times in asked.items():
        records = records_in(
            study.method, study.task, study.task.subset(study.partition.indices[i])
        )
        if records:
            once = dpsgd_plan(s, records, declared)
            events.add(DpSgd(once.noise, once.rate, once.steps * times))
    worst = sorted(events, key=lambda e: -e.rate * math.sqrt(e.steps) / e.noise)[:_WORST]
    beside = planned_releases(s, declared)
    epsilon = max((total([e, *beside], s.delta).epsilon for e in worst), default=0.0)
    return {
        "epsilon": epsilon,
        "delta": s.delta,
        "noise": [e.noise for e in worst[:1]][0] if worst else None,
    }


def _utility(study: Study) -> dict[str, Any]:
    """What such a budget left of a model where it was measured, for silos of this study's size."""
    s, sizes = study.settings, [len(ix) for ix in study.partition.indices]
    if s.dp != "record" or s.public:
        return {}
    found = utility_of(study.task.name, round(sum(sizes) / len(sizes)), s.silos, s.epsilon)
    return {} if found is None else {"utility": asdict(found)}


def _measured(study: Study, r: Rehearsal, c: Calibration) -> dict[str, Any]:
    s = study.settings
    sizes = [len(ix) for ix in study.partition.indices]
    wire = s.runner == "processes"
    slots = c.slots if wire else 1
    seconds = sum(c.round_seconds([sizes[i] for i in cohort], slots) for cohort in r.cohorts)
    buffers = (1 + _BUFFERS) * max((e.bytes for e in r.encodings), default=0) / (1 << 20)
    coordinator = c.coordinator_mb + (buffers if wire else 0.0)
    processes = -(-s.silos // s.silos_per_process)
    busy = min(slots, processes)
    peak = c.shared_mb + coordinator
    idle = max(c.silo_idle_mb, PROCESS_MB)
    peak += busy * c.silo_mb + (processes - busy) * idle if wire else c.silo_mb
    peak += s.silos * SEAT_MB * (s.silos_per_process > 1)
    return {
        "wall_seconds": seconds,
        "shared_mb": c.shared_mb,
        "coordinator_mb": coordinator,
        "silo_mb": c.silo_mb,
        "peak_rss_mb": peak,
        "calibration_seconds": c.seconds,
    }


def _warnings(study: Study, r: Rehearsal, plan: Mapping[str, Any], bandwidth: float) -> list[str]:
    s, found = study.settings, []
    if warning := too_large(s, plan.get("peak_rss_mb", 0.0), psutil.virtual_memory().available):
        found.append(warning)
    if bandwidth and not r.traffic:
        found.append(
            "BANDWIDTH means nothing here: this run is one process, and nothing crosses a wire."
        )
    elif bandwidth:
        found += _slow(s, r, bandwidth)
    epsilon = plan["epsilon"]
    if s.dp != "off" and s.epsilon and isinstance(epsilon, float) and epsilon > s.epsilon:
        found.append(
            f"The planned rounds would cost epsilon {epsilon:.4g}, above EPSILON={s.epsilon:g}: silos will stop before "
            "the last round; use more NOISE or fewer ROUNDS."
        )
    if s.dp == "record":
        sizes = [study.task.subset(ix) for ix in study.partition.indices]
        most = max(records_in(study.method, study.task, data) for data in sizes)
        if warning := large_delta(s, most):
            found.append(warning)
    if s.dp != "off" and s.ledger:
        found.append(
            f"What the ledgers in {s.ledger} were charged earlier comes on top of this epsilon."
        )
    return found


def _slow(s: Settings, r: Rehearsal, bandwidth: float) -> list[str]:
    """The slowest exchange on a line of so many bytes per second either way: all silos hear at
    once, two upload.
    """
    cohort = max(map(len, r.cohorts), default=0)
    worst, at = 0.0, (0, 0)
    for peaks in r.busiest:
        for up, down in peaks:
            seconds = down / bandwidth + math.ceil(cohort / _BUFFERS) * up / bandwidth
            if seconds > worst:
                worst, at = seconds, (up, down)
    if worst <= s.deadline:
        return []
    return [
        f"A round does not fit: at {human_bytes(bandwidth)} per second an exchange with {human_bytes(at[0])} up and "
        f"{human_bytes(at[1])} down per silo takes {duration(worst)} on the line ({cohort} silos, two upload at a "
        f"time), and DEADLINE={s.deadline:g} closes it after {duration(s.deadline)}; raise DEADLINE, lower BITS or "
        "FRACTION, or take a method that sends less."
    ]


def worth_calibrating(study: Study) -> bool:
    s = study.settings
    return (
        s.runner == "processes"
        and s.fraction * s.rounds * s.epochs * study.task.train_size() >= _SHORT
    )


def write_plan(run: Path, study: Study, measured: bool) -> list[str]:
    """plan.json of a run. Returns what a user should be told before it starts."""
    plan = make_plan(study, measured)
    (run / "plan.json").write_text(json.dumps(plan, indent=1) + "\n", "utf-8")
    warnings: list[str] = plan["warnings"]
    return warnings


def run_plan(settings: Settings, bandwidth: float, as_json: bool, console: Console) -> int:
    one_thread()
    if bandwidth < 0 or not math.isfinite(bandwidth):
        raise UserError("BANDWIDTH must be above 0 bytes per second, as in BANDWIDTH=1e6.")
    study = prepare(settings)
    warm(study)
    plan = make_plan(study, measured=True, bandwidth=bandwidth)
    if as_json:
        print(json.dumps(plan, indent=1))
        return 0
    s = study.settings
    console.print(
        f"{s.method_name} on {study.task.corpus_name}, {s.silos} silos, {s.rounds} rounds, partition {s.partition}, "
        f"seed {s.seed}: nothing was run yet",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(show_header=False)
    for name, value in _rows(plan, s):
        table.add_row(name, value)
    console.print(table)
    for warning in plan["warnings"]:
        console.print(f"[bold red]{warning}[/bold red]", highlight=False, soft_wrap=True)
    return 0


def _rows(plan: Mapping[str, Any], s: Settings) -> Sequence[tuple[str, str]]:
    rows = []
    if "bytes_up_per_silo_round" in plan:
        each = plan["by_silo"].values()
        rows += [
            ("up per silo and round", human_bytes(plan["bytes_up_per_silo_round"])),
            ("down per silo and round", human_bytes(plan["bytes_down_per_silo_round"])),
            (
                "up, down in all",
                f"{human_bytes(plan['bytes_up_total'])}, {human_bytes(plan['bytes_down_total'])}",
            ),
            (
                "one silo's whole run",
                f"{_span([x['up'] for x in each])} up, {_span([x['down'] for x in each])} down",
            ),
        ]
    arrays = (plan["arrays_up_per_silo_round"], plan["arrays_down_per_silo_round"])
    rows.append(
        ("arrays as coded, a round", f"{human_bytes(arrays[0])} up, {human_bytes(arrays[1])} down")
    )
    rows.append(("epsilon", _epsilon_words(plan, s)))
    rows += _utility_rows(plan.get("utility"), s)
    if "wall_seconds" in plan:
        took = f"calibrated for {duration(plan['calibration_seconds'])}; connecting and masking come on top"
        rows += [
            ("time", f"about {duration(plan['wall_seconds'])} ({took})"),
            ("memory, coordinator", f"{plan['coordinator_mb']:.0f} MB of its own"),
            ("memory, a silo that computes", f"{plan['silo_mb']:.0f} MB of its own"),
            (
                "memory, all processes",
                f"{plan['peak_rss_mb']:.0f} MB, {plan['shared_mb']:.0f} MB of it shared",
            ),
        ]
    return rows


def _utility_rows(found: Mapping[str, Any] | None, s: Settings) -> Sequence[tuple[str, str]]:
    if found is None:
        public = s.dp == "record" and s.public
        return [("what to expect", "not measured with public text")] if public else []
    points = ", ".join(f"{v:.2f} at {e:g}" for e, v in found["by_epsilon"].items())
    whose = f"measured with {found['method']} on the built-in corpus, {found['floor']:.2f} without the silos"
    rows = [(f"{found['metric']} by epsilon", f"about {points} ({whose})")]
    if s.epsilon and found["hopeless_below"]:
        least = f"about {found['hopeless_below']:,} records a silo"
        never = found["never_useful"]
        few = f"even {least} added nothing" if never else f"fewer than {least} add nothing"
        rows.append((f"at epsilon {s.epsilon:g}", few))
    return rows


def _span(values: list[int]) -> str:
    low, high = human_bytes(min(values)), human_bytes(max(values))
    return low if low == high else f"{low} to {high}"


def _epsilon_words(plan: Mapping[str, Any], s: Settings) -> str:
    if plan["epsilon"] == "inf":
        return "infinite: no noise is added (DP=off)"
    noise = f", noise {plan['noise']:.4g} clips" if plan.get("noise") else ""
    return f"{plan['epsilon']:.4g} at delta {plan['delta']:g} after {s.rounds} rounds{noise}"
