"""A method run in a plain loop: no processes, no masks, no fixed point. The slow truth for tests
and tuning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from config.settings import TASK_DEFAULTS, Settings
from corpora.partition import cut
from methods import build
from methods.base import Answer, Arrays, Folded, Heard, Method, SiloView, State, derived_seed
from methods.tasks.base import Task
from methods.tasks.load import load_task

Watch = Callable[[str, SiloView, Heard, Answer], None]  #: exchange, silo, what it heard and said
SECRET = b"shared by the silos"


def resolved(**given: object) -> Settings:
    """Settings with the task's defaults where nothing was given."""
    s = Settings(**given)  # type: ignore[arg-type]
    d = TASK_DEFAULTS["distant"]
    fill = {k: d[k] for k in ("rounds", "epochs", "batch", "lr") if getattr(s, k) == 0}
    for key in ("decay", "weight_decay", "warmup", "clip_norm"):
        if getattr(s, key) < 0:
            fill[key] = d[key]
    fill |= {k: d[k] for k in ("optimizer", "schedule") if not getattr(s, k)}
    if not s.partition:
        fill["partition"] = d.get("partition", "iid")
    return replace(s, **fill)


def cohort_of(s: Settings, round: int) -> tuple[int, ...]:
    m = max(int(s.fraction * s.silos), 1)
    rng = np.random.default_rng(derived_seed(s.seed, "cohort", round))
    return tuple(sorted(rng.choice(s.silos, size=m, replace=False).tolist()))


def run(
    s: Settings,
    task: Task | None = None,
    after: Callable[[int, State], None] | None = None,
    watch: Watch | None = None,
) -> tuple[Task, Method, State]:
    torch.set_num_threads(1)
    task = task or load_task(s)
    method = build(s.method, task, s)
    parts = cut(s.partition, s.silos, s.seed, task.train_size(), task.partition_keys()).indices
    views = [SiloView(k, task, task.subset(parts[k]), s, SECRET) for k in range(s.silos)]
    state = method.init(s.seed)
    for round in range(s.rounds):
        chosen = cohort_of(s, round)
        for exchange in method.exchanges:
            cohort = tuple(range(s.silos)) if exchange.everyone else chosen
            if exchange.skip(state, round, cohort):
                continue
            said = exchange.broadcast(state, round, cohort)
            total: dict[str, np.ndarray] = {}
            sealed: dict[int, Arrays] = {}
            for k in cohort:
                heard = Heard(round, cohort, said.common, said.private.get(k, {}))
                answer = exchange.answer(views[k], heard)
                if watch:
                    watch(exchange.name, views[k], heard, answer)
                memory = views[k].memory if answer.memory is None else answer.memory
                views[k] = replace(views[k], carry=answer.carry, memory=memory)
                if exchange.sealed:
                    sealed[k] = answer.sealed
                for name, value in answer.masked.items():
                    total[name] = total.get(name, 0.0) + value.astype(np.float64)
            state = exchange.fold(state, Folded(round, cohort, total, sealed))
        if after:
            after(round, state)
    return task, method, state
