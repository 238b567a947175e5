"""Membership inference on a run's final model: who was in the training data? Two attacks, and the
epsilon they prove.

Every record of the corpus is in the training data with probability one half, decided by its own
coin. The attacker gets the final model, the record, and (for the second attack) shadow models: the
same study, run again with other coins.

* **Loss threshold** (Yeom et al. 2018): the lower the loss, the likelier a member.
* **Likelihood ratio** (LiRA; Carlini et al. 2022): log-odds of the record's label under shadow
  models that had it and under those that had not, each as a Gaussian; the ratio of the two at the
  target's value.

**Lower bound.** The attacker guesses only where it is surest: the tenth of the records with the
highest and the tenth with the lowest score. If training is epsilon-DP, the number of right guesses
is at most Binomial(guesses, e^eps / (1 + e^eps)) in distribution, whatever dependence one training
run makes between records (Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training
Run"); so the logit of a Clopper-Pearson lower limit of the hit rate is a lower limit of epsilon.
Delta enters by at most 2 m delta in the error probability, which is taken off the confidence.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import beta, rankdata

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from methods import build
from methods.base import derived_seed
from methods.common.bags import BAGS
from methods.common.training import load
from models.saved import read_weights
from study.prepare import Study

__all__ = [
    "Attack",
    "attack_membership",
    "auc",
    "clopper_pearson",
    "epsilon_lower_bound",
    "record_scores",
]

CONFIDENCE = 0.95
_SURE = 0.1  #: the share of records guessed at each end
_CHUNK = 64


@dataclass(frozen=True)
class Attack:
    name: str
    auc: float
    advantage: float  #: the most by which true positives exceed false ones, over all thresholds
    guesses: int
    right: int
    epsilon_at_least: float  #: with 95 % confidence
    #: as the ledgers of the attacked model's run have it: of half the records, other than of all
    epsilon_at_most: float | str = "inf"


def clopper_pearson(right: int, guesses: int, confidence: float = CONFIDENCE) -> float:
    """The lower limit of a probability of which `right` of `guesses` were seen."""
    return float(beta.ppf(1 - confidence, right, guesses - right + 1)) if right else 0.0


def epsilon_lower_bound(right: int, guesses: int, records: int, delta: float) -> float:
    """What epsilon must at least be, for so many guesses to be right."""
    confidence = min(CONFIDENCE + 2 * records * delta, 1 - 1e-9)
    least = clopper_pearson(right, guesses, confidence)
    return max(0.0, math.log(least / (1 - least))) if least > 0 else 0.0


def auc(scores: np.ndarray, member: np.ndarray) -> float:
    """The probability that a member scores above a non-member."""
    n, m = int(member.sum()), int((~member).sum())
    if not n or not m:
        return 0.5
    return float((rankdata(scores)[member].sum() - n * (n + 1) / 2) / (n * m))


def _judge(name: str, scores: np.ndarray, member: np.ndarray, delta: float) -> Attack:
    order = np.argsort(scores, kind="stable")
    k = max(1, int(_SURE * len(order)))
    right = int(member[order[-k:]].sum() + (~member[order[:k]]).sum())
    at = member[order[::-1]]
    gap = np.cumsum(at) / max(1, at.sum()) - np.cumsum(~at) / max(1, (~at).sum())
    bound = epsilon_lower_bound(right, 2 * k, len(order), delta)
    return Attack(name, auc(scores, member), float(max(gap.max(), 0.0)), 2 * k, right, bound)


def _groups(study: Study) -> np.ndarray:
    """Which record each training unit is part of."""
    task: Any = study.task
    n = task.train_size()
    declared = study.method.privacy.record if study.method.privacy is not None else None
    if declared is None or declared.unit is not BAGS:
        return np.arange(n)
    bags = task.bags(task.subset(np.arange(n)))
    group = np.empty(n, dtype=np.int64)
    group[bags.rows] = np.repeat(np.arange(len(bags)), bags.sizes)
    return group


def record_scores(study: Study, model: torch.nn.Module, group: np.ndarray) -> np.ndarray:
    """Log-odds of what is known about every record: log p / (1 - p) with p = exp(-loss); mean over
    a bag.
    """
    task: Any = study.task
    data = task.subset(np.arange(task.train_size()))
    loss = np.zeros(task.train_size())
    model.eval()
    with torch.no_grad():
        for some in task.record_chunks(
            data, np.arange(task.train_size()), _CHUNK if task.record_rows else 1
        ):
            batch = task.batch(data, some)
            loss[some] = (task.record_losses if task.record_rows else task.loss)(
                model, batch
            ).numpy()
    mean = np.bincount(group, loss) / np.bincount(group)
    p = np.exp(-np.clip(mean, 1e-6, 30.0))
    return np.log(p) - np.log1p(-np.clip(p, 0.0, 1 - 1e-6))


def _train(study: Study, number: int, kept: np.ndarray) -> tuple[torch.nn.Module, float | str]:
    """The study once more, with those units only and another seed; its final model, and the epsilon
    that it cost.
    """
    settings = replace(
        study.settings, seed=derived_seed(study.settings.seed, "audit", number) % 2**31, ledger=""
    )
    indices = tuple(ix[kept[ix]] for ix in study.partition.indices)
    again = Study(
        settings,
        study.task,
        build(settings.method, study.task, settings),
        replace(study.partition, indices=indices),
    )
    with tempfile.TemporaryDirectory() as folder:
        if run_inprocess(Path(folder), again) != 0:
            raise UserError(
                "A run of the audit did not finish; with fewer records per silo, raise EPSILON or SILOS."
            )
        values = read_weights(Path(folder) / "model")
        spent = json.loads((Path(folder) / "summary.json").read_text("utf-8"))["epsilon"]
    model = study.task.new_model(0)
    own = dict(model.named_parameters())
    return load(model, {k: v for k, v in values.items() if k in own}), spent


def _lira(target: np.ndarray, shadows: np.ndarray, had: np.ndarray) -> np.ndarray:
    """`shadows` (models, records) log-odds, `had` whether each model was trained on each record.

    One deviation for all records on each side: a handful of shadow models does not tell it for
    each.
    """

    def fit(which: np.ndarray) -> tuple[np.ndarray, float]:
        count = which.sum(axis=0)
        overall = shadows[which].mean() if which.any() else 0.0
        mean = np.where(count > 0, (shadows * which).sum(axis=0) / np.maximum(count, 1), overall)
        return mean, float(
            np.sqrt(((shadows - mean)[which] ** 2).mean()) + 1e-3
        ) if which.any() else 1.0

    (mean_in, s_in), (mean_out, s_out) = fit(had), fit(~had)
    ratio = ((target - mean_out) / s_out) ** 2 - ((target - mean_in) / s_in) ** 2
    return np.asarray(ratio / 2 + math.log(s_out / s_in))


def attack_membership(study: Study, shadows: int) -> Sequence[Attack]:
    """Train the target and its shadows, attack the target."""
    group = _groups(study)
    records = int(group.max()) + 1
    rng = np.random.default_rng(derived_seed(study.settings.seed, "coins"))
    coins = rng.random((shadows + 1, records)) < 0.5
    rows, spent = list[np.ndarray](), list[float | str]()
    for coin in coins:
        model, epsilon = _train(study, len(rows), coin[group])
        rows.append(record_scores(study, model, group))
        spent.append(epsilon)
    scores = np.stack(rows)
    delta = study.settings.delta if study.settings.dp != "off" else 0.0
    found = [_judge("loss threshold", scores[0], coins[0], delta)]
    if shadows >= 2:
        ratio = _lira(scores[0], scores[1:], coins[1:])
        found.append(_judge(f"likelihood ratio, {shadows} shadow models", ratio, coins[0], delta))
    return [replace(attack, epsilon_at_most=spent[0]) for attack in found]
