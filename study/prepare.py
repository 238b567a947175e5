"""From settings to what both runners need: task, method, partition, each checked before anything
starts.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import UserError
from config.load import with_task_defaults
from config.settings import FULL_SIZE, Settings
from corpora.holding import Holding
from corpora.partition import Partition, cut
from crypto.numbers.encoding import steps_of
from crypto.sum.params import least_honest, policy_for
from methods import adjusted, build, paper_settings
from methods.base import Method, derived_seed
from methods.common.steps import Steps
from methods.dp.coverage import records_in
from methods.dp.dpsgd import plan
from methods.dp.releases import record_privacy
from methods.dp.sum_noise import sum_noise_of
from methods.tasks.base import Task
from methods.tasks.load import load_task, task_name
from models.device import may_accelerate
from models.precision import gain
from privacy.discrete import table
from privacy.noise import SecretStream
from privacy.sum_noise import SumNoise
from study.apart import apart

__all__ = ["Study", "planned_sum_noise", "prepare", "warm", "write_partition"]


_BINS = 20  #: of the histogram by silo
_WORTH = 1.2  #: times faster that bfloat16 must be


@dataclass(frozen=True)
class Study:
    settings: Settings
    task: Task
    method: Method
    partition: Partition

    @property
    def agreement(self) -> dict[str, str]:
        """What every party must have alike, by name: hashes of public content."""
        return {**self.task.agreement(), **self.method.agreement}


def prepare(settings: Settings, holder: int | None = None, holding: Holding | None = None) -> Study:
    """`holder`: None where one corpus is cut among the silos; else the number of the silo that has
    all of it, or -1 for a coordinator, which needs no training data. `holding`: what the study says of
    these data, where each party has its own.
    """
    settings = adjusted(settings)
    # its own corpus has the types that it has
    name = task_name(settings) if holding is None else holding.task
    if holder is not None and name == "ner":
        settings = replace(settings, options={"tags": "all", **settings.options})
    if holder is not None and name == "sentence":
        # Of a silo's own records nothing is public; D_v, whose hash is sent, is the folder's
        # public.jsonl or empty.
        settings = replace(settings, options={**settings.options, "public": 0.0})
    task = load_task(settings, holding)
    paper = (
        paper_settings(settings.method, task.name, settings.options)
        if task.encoder_size >= FULL_SIZE
        else None
    )
    settings = with_task_defaults(
        settings, task.name, task.natural_silos(), train=task.part, paper=paper
    )
    settings = replace(settings, precision=_precision(settings, task, alone=holder is None))
    task.compute_in(settings.precision)
    if settings.features:
        if task.bottom is None:
            raise UserError(
                f"FEATURES means nothing with TRAIN={settings.train}: no part of the network is frozen "
                "below what is trained; use TRAIN=top:K or TRAIN=head, or leave it out."
            )
        task.keep_features_in(Path(settings.features) / settings.precision, lasting=True)
    own = settings.partition_seed
    seed = derived_seed(settings.seed if own < 0 else own, "partition")
    if holder is None:
        partition = cut(
            settings.partition, settings.silos, seed, task.train_size(), task.partition_keys()
        )
    else:
        nothing = np.arange(0)
        held = tuple(
            np.arange(task.train_size()) if i == holder else nothing for i in range(settings.silos)
        )
        partition = Partition(held, "own", seed)
    task.divided(partition.indices)
    _check_noise(settings)
    method = build(settings.method, task, settings)
    if not settings.secagg and not any(e.masked for e in method.exchanges):
        raise UserError(
            f"SECAGG=off means nothing for {settings.method_name}: it sends nothing masked."
        )
    return Study(settings, task, method, partition)


def _precision(s: Settings, task: Task, *, alone: bool) -> str:
    """`auto` is bfloat16 where a full-size encoder gains by it on this machine, and float32 in all
    other cases: for small networks, with DP=record, and between machines (not `alone`), which must
    compute alike whatever their processors are. What it was is written into config.toml.
    """
    if s.precision == "bfloat16" and not task.can_halve:
        raise UserError(
            f"PRECISION=bfloat16 is for encoders that are called whole; the network of {s.method_name} on this "
            f"corpus ({task.name}) computes in float32: leave it out."
        )
    if s.precision != "auto":
        return s.precision
    possible = alone and s.dp != "record" and task.can_halve and task.encoder_size >= FULL_SIZE
    return "bfloat16" if possible and _gain(s.device) >= _WORTH else "float32"


def _gain(device: str) -> float:
    if not may_accelerate(device):
        return gain()
    return float(apart("measurement of bfloat16", lambda: {"gain": gain()}, device)["gain"])


def _check_noise(s: Settings) -> None:
    """DP=silo counts on the noise of honest silos in every sum. Where a round is smaller than the
    number of silos that may be corrupt, and a coordinator names it, there may be none.
    """
    if s.dp != "silo" or policy_for(s.fraction, s.silos).corrupt_among == "roster":
        return
    enough = next(m for m in range(1, s.silos + 1) if _outnumbers(m, s.silos))
    raise UserError(
        f"DP=silo does not run with FRACTION={s.fraction:g} of {s.silos} silos: a coordinator could "
        f"name, for a round, those whose noise it knows. It needs {enough} silos in every round: "
        f"FRACTION={math.ceil(1000 * enough / s.silos) / 1000:g} or more."
    )


def _outnumbers(cohort: int, silos: int) -> bool:
    return policy_for(cohort / silos, silos).corrupt_among == "roster"


def warm(study: Study) -> None:
    """One tiny training step, so that forked silos find torch's optimizers and kernels already
    loaded.
    """
    task = study.task
    # seconds, once here and not once in every silo: the noise that meets epsilon
    if study.settings.dp == "record":
        import methods.dp.engine
        import methods.dp.optimizer  # noqa: F401 (Opacus takes a second to import)

        held = (task.subset(ix) for ix in study.partition.indices)
        declared = record_privacy(study.method.privacy)
        for records in {records_in(study.method, task, data) for data in held} - {0}:
            plan(study.settings, records, declared)
        SecretStream(bytes(32)).wide_normal(1)  # makes its tables
    if study.settings.dp == "silo":
        table(planned_sum_noise(study).deviation)
    some = task.subset(np.arange(min(2, task.train_size())))
    model = task.new_model(0)
    optimizer = Steps(study.settings, model, 0, 1)
    for batch in task.batches(some, 2, np.random.default_rng(0)):
        task.loss(model, batch).backward()
        optimizer.step()


def planned_sum_noise(study: Study) -> SumNoise:
    """DP=silo: the noise of every sum in which nobody is missing from the start."""
    s = study.settings
    cohort = s.cohort_size
    honest = least_honest(cohort, policy_for(s.fraction, s.silos), s.silos)
    return sum_noise_of(s, study.method, honest, steps_of(s.bits, cohort))


def write_partition(run: Path, study: Study) -> None:
    """Sizes and label counts per silo, for the report. A simulation knows them; a consortium's
    coordinator does not.
    """
    counts = [study.task.label_counts(indices).tolist() for indices in study.partition.indices]
    content: dict[str, Any] = {
        "spec": study.partition.spec,
        "seed": study.partition.seed,
        "note": study.partition.note,
        "labels": list(study.task.labels),
        "sizes": [len(ix) for ix in study.partition.indices],
        "label_counts": counts,
    }
    measure = study.task.unit_measure()
    if measure is not None:
        edges = np.histogram_bin_edges(measure[1], bins=_BINS)
        bars = [
            np.histogram(measure[1][ix], bins=edges)[0].tolist() for ix in study.partition.indices
        ]
        content["histogram"] = {"of": measure[0], "edges": edges.round(4).tolist(), "counts": bars}
    (run / "partition.json").write_text(json.dumps(content) + "\n", "utf-8")
