"""Lazy MIL under DP=record: the best value per bucket instead of per named bag, noised; a record is
a bag.

The public form (`methods.lazymil`) sends the name and the best value of every bag, exact. Values
could be noised; but a name is there or not by one bag, and no noise on values hides it. So here:

* Bags are hashed into M buckets (`buckets`, public and fixed), by a hash keyed with the silos'
  secret. A silo sends one value for **every** bucket, whether it has a bag there or not: the best
  p(r|s) of all sentences of its bags in the bucket, or 0. That vector has M numbers whatever the
  silo has. One bag is in one bucket and moves its value by at most 1: if it was the best there, the
  next best takes its place (a displaced winner), which is between 0 and it. Noise is Gaussian,
  charged as a release of its own.
* The coordinator takes a bucket from a silo that is **clearly** beaten there: whose noisy value
  lies below another's by more than two deviations of the noise of that difference. Nothing but
  noisy values enters, so who wins, here and at every other silo, is free. Without noise that is the
  paper's rule; with so much that nobody is clearly beaten, every silo keeps its own bags. (To the
  highest noisy value alone, three bags of four would go by chance, and many to a silo that has
  nothing in that bucket.)
* A silo trains on its bags in the buckets it kept, each represented by its best sentence under the
  received model. A bag is sampled, clipped and protected as one record: a sentence that comes or
  goes changes which sentence stands for its own bag, and no other bag's gradient. In the warm start
  a sentence of the bag, drawn anew in each step, stands for it. Rates and divisors are made of the
  number of all bags and of the share of buckets kept, never of the number of own bags among them.
* Values are noisy, so they are released in few rounds (`scorings`, by default once, after the warm
  start), and the winners stay until the next.

The choice between silos is a weak one then: docs and reports must not call it the paper's method at
small epsilon. What is chosen within a silo's own bag costs nothing and is not noisy.
"""

from __future__ import annotations

import hmac
import math
from dataclasses import dataclass

import numpy as np
from torch import nn

from config.settings import Settings
from methods.base import (
    Answer,
    Arrays,
    ArraySpec,
    Broadcast,
    Disclosure,
    Exchange,
    Folded,
    Heard,
    Method,
    Privacy,
    State,
)
from methods.common.contribution import contribution_disclosure, enough
from methods.common.training import load, parameters, specs, train
from methods.common.weighted import (
    first_model,
    send_model,
    uniform_mean,
    update_disclosure,
    updates,
)
from methods.dp.dpsgd import Records
from methods.dp.releases import noised, record_privacy, release_grid, release_noise
from methods.lazymil import Silo
from methods.tasks.distant import DistantTask
from methods.tasks.distant_bags import Bags, Batch

__all__ = [
    "bucket_values",
    "buckets_of",
    "build_private",
    "kept_buckets",
    "kept_enough",
    "scoring_rounds",
]

_MARGIN = 2.0  #: deviations by which a silo must be beaten to lose a bucket

_VALUES = Disclosure(
    name="values",
    channel="sealed",
    shape="one number per bucket of bags, as many buckets for every silo: the best probability p(r|s) of the "
    "silo's sentences there, or 0, with Gaussian noise; nothing in rounds without scoring",
    reveals="within what the noise allows, how sure the current model is of the silo's best sentence in each bucket",
    privacy="a Gaussian release of its own",
)


def scoring_rounds(rounds: int, warm: int, scorings: int) -> frozenset[int]:
    """The first round after the warm start, and others at even distances after it."""
    left = rounds - warm
    return (
        frozenset(warm + j * left // scorings for j in range(scorings)) if left > 0 else frozenset()
    )


def buckets_of(secret: bytes, triples: list[bytes], buckets: int) -> np.ndarray:
    """The bucket of each bag: HMAC-SHA256 under the silos' secret, the same in every round."""
    digests = (hmac.digest(secret, b"sottovoce lazymil bucket\x00" + t, "sha256") for t in triples)
    return np.array([int.from_bytes(d[:8], "big") % buckets for d in digests], dtype=np.int64)


def bucket_values(best: np.ndarray, bucket: np.ndarray, buckets: int) -> np.ndarray:
    """Per bucket the highest of its bags' values, each between 0 and 1; 0 where there is none."""
    out = np.zeros(buckets)
    np.maximum.at(out, bucket, np.clip(np.nan_to_num(best), 0.0, 1.0))
    return out


def _bags(silo: Silo, buckets: int) -> tuple[Bags, np.ndarray]:
    bags = silo.task.bags(silo.data)
    return bags, buckets_of(silo.secret, silo.task.triples(silo.data, bags.first), buckets)


def _label_probabilities(silo: Silo, model: nn.Module) -> np.ndarray:
    label = silo.data.sentences.relation[silo.data.indices]
    return np.asarray(silo.task.probabilities(model, silo.data)[np.arange(len(label)), label])


def kept_buckets(values: dict[int, np.ndarray], deviation: float) -> dict[int, np.ndarray]:
    """Per silo, the buckets in which nobody clearly beats it: by more than the margin, the other's
    noise included.
    """
    said = {s: np.nan_to_num(v, nan=-np.inf) for s, v in values.items()}
    best = np.stack(list(said.values())).max(axis=0)
    margin = _MARGIN * math.sqrt(2) * deviation
    return {s: np.flatnonzero(v >= best - margin).astype(np.uint32) for s, v in said.items()}


@dataclass(frozen=True)
class Plan:
    """What of the study decides this form: all of it is agreed before the run."""

    settings: Settings
    warm: int  #: rounds of the warm start
    buckets: int
    scorings: int
    floor: float

    @property
    def scored(self) -> frozenset[int]:
        return scoring_rounds(self.settings.rounds, self.warm, self.scorings)


def score(silo: Silo, heard: Heard, plan: Plan) -> Answer:
    """First exchange: the noisy value of every bucket, in rounds that score; else nothing."""
    values, notes = np.zeros(0, np.float32), {}
    if heard.round in plan.scored:
        bags, bucket = _bags(silo, plan.buckets)
        p = _label_probabilities(silo, load(silo.task.new_model(0), heard.common))
        best = np.maximum.reduceat(p[bags.rows], bags.starts[:-1]) if len(bags) else np.zeros(0)
        grid = release_grid(silo, 1.0)  # a bag moves one bucket's value, from 0 to 1 at most
        exact = grid.whole(bucket_values(best, bucket, plan.buckets))
        values = noised(silo, heard.round, exact, grid)
        notes = {"bags": float(len(bags))}
    memory = {"values": values} if len(values) else None  # the coordinator has them, too
    return Answer({}, {"values": values}, {"model": heard.common}, memory, notes)


def kept_enough(said: np.ndarray, won: np.ndarray, floor: float) -> bool:
    """Whether a silo keeps so much that others can hide behind it: of its noisy values, each taken
    as from 0 to 1, this share is in the buckets kept.

    How many of its bags are there would be an exact word about them. This one follows from what
    the coordinator has been told and from what it said. Buckets chosen for being empty fail it as
    far as their values show that they are.
    """
    values = np.clip(np.nan_to_num(said), 0.0, 1.0)
    return enough(float(values[won].sum()), float(values.sum()), floor)


def keep_winners(state: State, folded: Folded, buckets: int, deviation: float) -> State:
    said = {s: a["values"] for s, a in sorted(folded.sealed.items()) if len(a["values"]) == buckets}
    if not said:
        return state
    kept = kept_buckets(said, deviation)
    return State(state.model, {f"winners/{s}": own for s, own in kept.items()})


def send_winners(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
    """A silo that was not scored hears nothing, and trains on all it has."""
    keys = {s: f"winners/{s}" for s in cohort}
    return Broadcast(
        {}, {s: {"winners": state.memory[k]} for s, k in keys.items() if k in state.memory}
    )


def learn(silo: Silo, heard: Heard, plan: Plan) -> Answer:
    """Second exchange: DP-SGD over the silo's bags, all of them or those in the buckets it kept."""
    start: Arrays = silo.carry["model"]
    model = load(silo.task.new_model(0), start)
    bags, bucket = _bags(silo, plan.buckets)
    notes, contributes = {"examples": 0.0}, False
    if len(bags):
        contributes = True
        if heard.round < plan.warm or "winners" not in heard.private:
            records = _one_sentence_each(silo, heard.round, bags)
        else:
            # each once, and none beyond the last: what is no bucket must not count as one kept
            won = np.unique(heard.private["winners"]).astype(np.int64)
            won = won[(won >= 0) & (won < plan.buckets)]
            said = silo.memory.get("values", np.zeros(0))
            contributes = len(said) == plan.buckets and kept_enough(said, won, plan.floor)
            records = _kept_bags(silo, model, bags, bucket, won, plan.buckets)
        notes = train(silo, model, heard.round, each=silo.task.record_losses, records=records)
    return Answer(masked=updates(model, start), notes=notes, contributes=contributes)


def _one_sentence_each(silo: Silo, round: int, bags: Bags) -> Records:
    """The warm start: a sentence of the bag, drawn anew in each step, stands for it."""
    any_of = np.random.default_rng(list(silo.noise_key(round, "a sentence of each bag")))

    def batch(chosen: np.ndarray) -> Batch:
        first, size = bags.starts[chosen], bags.sizes[chosen]
        return silo.task.batch(silo.data, bags.rows[first + any_of.integers(size)])

    return Records(len(bags), batch)


def _kept_bags(
    silo: Silo, model: nn.Module, bags: Bags, bucket: np.ndarray, won: np.ndarray, buckets: int
) -> Records:
    """The bags in the buckets kept, each represented by its best sentence under the received
    model.
    """
    p = _label_probabilities(silo, model)
    own = np.flatnonzero(np.isin(bucket, won))
    best = np.array([r[np.argmax(p[r])] for r in map(bags.of, own.tolist())], dtype=np.int64)
    nominal = max(1, round(len(bags) * len(won) / buckets))
    return Records(len(own), lambda chosen: silo.task.batch(silo.data, best[chosen]), nominal)


def build_private(task: DistantTask, citation: str, plan: Plan, privacy: Privacy) -> Method:
    release = record_privacy(privacy).release
    assert release is not None  # declared in methods.lazymil
    select = Exchange(
        name="score",
        disclosures=(_VALUES,),
        broadcast=send_model,
        answer=lambda silo, heard: score(silo, heard, plan),
        fold=lambda state, folded: keep_winners(
            state, folded, plan.buckets, release_noise(plan.settings, release)
        ),
        sealed={"values": ArraySpec((None,), "float32", most=plan.buckets)},
        rehearsed=lambda silo, heard: {
            "values": np.zeros(plan.buckets if heard.round in plan.scored else 0, np.float32)
        },
    )
    training = Exchange(
        name="train",
        disclosures=(
            update_disclosure("the bags kept, or all"),
            contribution_disclosure(
                f"all its bags, or kept buckets with at least {plan.floor:.0%} of the values it sent"
            ),
        ),
        broadcast=send_winners,
        answer=lambda silo, heard: learn(silo, heard, plan),
        fold=uniform_mean,
        masked=specs(parameters(task.new_model(0))),
        contributors=True,  # winners are told to each silo alone
    )
    return Method("lazymil", citation, (select, training), first_model(task), privacy=privacy)
