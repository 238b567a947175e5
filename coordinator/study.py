"""The rounds: who takes part, what they are told, what becomes of their answers, how good it is, and where it is kept.

This loop is the same for real processes and for the in-process runner; the two differ in the `Chorus` that carries
an exchange. Everything random here comes from the run's seed, so the two give the same model, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from config.settings import Settings
from coordinator import checkpoint
from coordinator.checkpoint import Checkpoint, model_sha256
from coordinator.runlog import RunLog, read_lines
from crypto.encoding import Encoding, default_rounding
from methods.base import Arrays, Broadcast, Exchange, Folded, Method, State, derived_seed
from methods.local import load
from methods.task import Evaluation, Task
from wire.counter import ByteCounter

__all__ = ["Call", "Chorus", "Interrupted", "RoundFailed", "run_study", "select", "silo_name"]


class RoundFailed(Exception):
    """A round that cannot be completed with the silos that are left. The run ends and can be resumed."""


class Interrupted(Exception):
    """The operator asked to stop. What is finished is kept."""


@dataclass(frozen=True)
class Call:
    """One exchange, to be carried to the cohort and back."""

    round: int
    index: int
    exchange: Exchange
    broadcast: Broadcast
    cohort: tuple[int, ...]
    ranges: tuple[float, ...]
    lane_bits: int

    def encoding(self, parties: int) -> Encoding:
        sizes = tuple(int(np.prod(s.shape, dtype=np.int64)) for s in self.exchange.masked.values())
        rounding, rotate = default_rounding(self.lane_bits, parties)
        return Encoding(self.lane_bits, parties, sizes, self.ranges, rounding, rotate)

    def total(self, sums: list[np.ndarray]) -> dict[str, np.ndarray]:
        return {n: x.reshape(s.shape) for (n, s), x in zip(self.exchange.masked.items(), sums)}  # type: ignore[arg-type]


@dataclass
class Phases:
    """Seconds of one round by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, phase: str, since: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - since

    def drain(self) -> dict[str, float]:
        taken, self.seconds = {k: round(v, 4) for k, v in self.seconds.items()}, {}
        return taken


class Chorus(Protocol):
    """Carries exchanges. `present` are the silos that can be asked; `perform` returns what the survivors gave."""

    counter: ByteCounter
    phases: Phases

    def present(self) -> tuple[int, ...]: ...
    def perform(self, call: Call) -> Folded: ...
    def end_round(self, round: int) -> None: ...
    def stop(self, reason: str) -> None: ...


def silo_name(index: int) -> str:
    return f"silo-{index:03d}"


def select(settings: Settings, round: int, present: tuple[int, ...]) -> tuple[int, ...]:
    """m = max(floor(C K), 1) silos, in the order of one permutation per round, passing over those that are gone."""
    m = max(int(settings.fraction * settings.silos), 1)
    rng = np.random.default_rng(derived_seed(settings.seed, "cohort", round))
    order = [int(i) for i in rng.permutation(settings.silos) if int(i) in set(present)]
    return tuple(sorted(order[:m]))


def _first_ranges(settings: Settings, exchange: Exchange) -> tuple[float, ...]:
    """Before there is an aggregate: the cap itself where 32-bit lanes make resolution free, else a guess of 1."""
    if settings.range:
        return tuple(min(settings.range, s.cap) for s in exchange.masked.values())
    return tuple(s.cap if settings.bits == 32 else min(1.0, s.cap) for s in exchange.masked.values())


def _next_ranges(settings: Settings, call: Call, folded: Folded) -> tuple[float, ...]:
    """Eight times the largest coordinate of the last mean: public, since the mean is. Fixed where the user fixed it."""
    if settings.range or settings.bits == 32:
        return call.ranges
    n = len(folded.survivors)
    return tuple(
        float(np.clip(8 * np.abs(folded.total[name]).max(initial=0.0) / n, spec.cap / 4096, spec.cap))
        for name, spec in call.exchange.masked.items()
    )


@dataclass
class _Progress:
    """What the loop carries beside the state; JSON, so that a checkpoint holds it."""

    best_value: float = float("-inf")
    best_round: int = -1
    wall: float = 0.0
    ranges: dict[str, tuple[float, ...]] = field(default_factory=dict)


def run_study(
    method: Method,
    task: Task,
    settings: Settings,
    chorus: Chorus,
    runlog: RunLog,
    resume: Checkpoint | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """All rounds, then summary.json and the model. Returns the summary."""
    started = time.monotonic()
    state = method.init(derived_seed(settings.seed, "init"))
    progress, best, finished = _Progress(), state.model, 0
    if resume is not None:
        finished, best = resume.finished, resume.best
        state = State({k: resume.state.model[k] for k in state.model}, resume.state.memory)
        progress = _Progress(**resume.figures)  # type: ignore[arg-type]
        progress.ranges = {k: tuple(v) for k, v in progress.ranges.items()}
    network = task.new_model(derived_seed(settings.seed, "init"))
    earlier = progress.wall
    for round in range(finished, settings.rounds):
        began = time.monotonic()
        chorus.counter.round = round
        cohort = select(settings, round, chorus.present())
        runlog.event("round", round=round, rounds=settings.rounds, cohort=[silo_name(i) for i in cohort])
        asked, sent = cohort, []
        for index, exchange in enumerate(method.exchanges):
            ranges = progress.ranges.get(exchange.name) or _first_ranges(settings, exchange)
            broadcast = exchange.broadcast(state, round, cohort)
            call = Call(round, index, exchange, broadcast, cohort, ranges, settings.bits)
            folded = chorus.perform(call)
            state = exchange.fold(state, folded)
            if exchange.masked:
                progress.ranges[exchange.name] = _next_ranges(settings, call, folded)
            cohort = folded.survivors
            sent += [(silo_name(i), exchange.name) for i in cohort]
        chorus.end_round(round)
        scored = time.monotonic()
        evaluation = _evaluate(task, network, state.model, "dev")
        chorus.phases.add("evaluating", scored)
        if evaluation.value > progress.best_value:
            progress.best_value, progress.best_round, best = evaluation.value, round, state.model
        up, down = runlog.traffic(chorus.counter)
        runlog.privacy(method, round, sent)
        progress.wall = earlier + time.monotonic() - started
        line = {
            "round": round,
            "participants": [silo_name(i) for i in asked],
            "survivors": [silo_name(i) for i in cohort],
            "missed": [silo_name(i) for i in range(settings.silos) if i in set(asked) - set(cohort)],
            "metric": task.metric,
            "dev": evaluation.value,
            "figures": dict(evaluation.figures),
            "seconds": time.monotonic() - began,
            "phases": chorus.phases.drain(),
            "bytes_up": up,
            "bytes_down": down,
            "model_sha256": model_sha256(state.model),
        }
        runlog.append("rounds.jsonl", line)
        checkpoint.write(runlog.path / "checkpoint", Checkpoint(round + 1, state, best, vars(progress)))
        runlog.event("round-done", **{k: line[k] for k in ("round", "dev", "seconds", "bytes_up", "missed")})
        if should_stop() and round + 1 < settings.rounds:
            raise Interrupted
    chorus.stop("the run is over")
    runlog.traffic(chorus.counter)
    test = _evaluate(task, network, best, "test")
    progress.wall = earlier + time.monotonic() - started
    checkpoint.save_model(runlog.path / "model", best, task.model_files())
    return _summary(method, task, settings, runlog, progress, best, test)


def _evaluate(task: Task, network: torch.nn.Module, model: Arrays, split: Any) -> Evaluation:
    load(network, model)
    network.eval()
    with torch.no_grad():
        return task.evaluate(network, split)


def _summary(
    method: Method,
    task: Task,
    settings: Settings,
    runlog: RunLog,
    progress: _Progress,
    model: Arrays,
    test: Evaluation,
) -> dict[str, Any]:
    rounds = read_lines(runlog.path / "rounds.jsonl")
    traffic = read_lines(runlog.path / "traffic.jsonl")
    up = sum(x["wire_bytes"] for x in traffic if x["direction"] == "up")
    down = sum(x["wire_bytes"] for x in traffic if x["direction"] == "down")
    in_rounds = sum(x["wire_bytes"] for x in traffic if x["direction"] == "up" and x["round"] >= 0)
    missed: dict[str, list[int]] = {}
    for line in rounds:
        for silo in line["missed"]:
            missed.setdefault(silo, []).append(line["round"])
    summary: dict[str, Any] = {
        "method": method.name,
        "task": task.name,
        "corpus": task.corpus_name,
        "corpus_sha256": task.corpus_hash,
        "corpus_note": task.corpus_note,
        "partition": settings.partition,
        "silos": settings.silos,
        "rounds": settings.rounds,
        "seed": settings.seed,
        "runner": settings.runner,
        "masked": settings.secagg,
        "metric": task.metric,
        "value": test.value,
        "figures": dict(test.figures),
        "per_class": dict(test.per_class),
        "selected_round": progress.best_round,
        "dev_value": progress.best_value,
        "bytes_up_total": up,
        "bytes_down_total": down,
        "bytes_up_per_silo_round": in_rounds / max(1, sum(len(x["participants"]) for x in rounds)),
        "epsilon": "inf",
        "delta": 0.0,
        "missed": missed,
        "wall_seconds": round(progress.wall, 2),
        "peak_rss_mb": None,
        "model_sha256": model_sha256(model),
    }
    runlog.write_json("curve.json", {"metric": task.metric, "points": [list(p) for p in test.curve]})
    runlog.write_json("summary.json", summary)
    return summary


