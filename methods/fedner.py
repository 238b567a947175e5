"""FedNER: silos that annotate different entity types teach each other all of them, through prompts
of a frozen BART or in a tagger.

Wang et al. 2023, "Federated Domain Adaptation for Named Entity Recognition via Distilling with
Heterogeneous Tag Sets", Findings of ACL. With theta the prompts, T^k the types that silo k
annotates and T\\k the others:

1. *Pseudo-complete annotation* (section 3.2). Each silo decodes its sentences with the received
   theta and adds what it finds of T\\k to its own annotation. In the first round theta is random,
   so gold alone is used.
2. *Instance weights* (section 3.3, algorithm 2). At theta, dropout off, g_i = d source_i / dq for
   every sentence, and G_k = mean_i d target_i / dq. The silos' G_k are summed; each silo subtracts
   its own and has g_tgt, the sum of the others'. Then w_i <- alpha w_i + (1 - alpha) cos(g_i,
   g_tgt), from one.
3. *Training* on mean_i (w_i source_i + target_i + end_i); the update is averaged over silos, each
   counting the same.

Where the paper leaves a choice: G_k is a mean (equation 7), not algorithm 2's sum, so that large
silos do not drown small ones; a zero gradient leaves w_i alone; `weights=safe` clips at zero and
rescales to mean one the weights of a silo's sentences that have such a gradient, because raw
weights all shrink towards the mean cosine and the source loss fades (docs/results/trials/ner.md has
what that costs); it is the default, `weights=paper` the printed form. Only q, its projections and the
label weights travel; the language model never does.

With `network=tagger` the same is done to a token classifier, which the paper does not have: theta
is what TRAIN names of it, and the gradients are those of its classifier's weights in the place of
q. A word inside of an entity that the silo annotated belongs to source_i, one inside of an entity
that theta found to target_i, and a word outside of both to neither, as the end does. The loss is the
mean over words that a tagger has, and not the sum over a sentence's tokens.

With DP=record G_k is a mean of clipped gradients with noise, charged as a release of its own, and
it is that noisy G_k that the silo subtracts from the sum: then w_i depends on sentence i, on models
and on noisy releases, and on no other sentence. `safe` would break that by its mean, so
`weights=shifted` stands in for it: w_i moves towards 1 + cos, which is never negative and one where
the cosine says nothing. (As printed w_i fades towards cosines that noise has made small, and the
loss on a silo's own annotation with it.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from config.errors import UserError, check_choice
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
    RecordPrivacy,
    Release,
    SiloView,
    State,
)
from methods.common.instance_weights import Source, instance_gradients, new_weights
from methods.common.previous import previous_model, remembered
from methods.common.pseudo import WANG_2023, pseudo_complete
from methods.common.training import load, parameters, specs, trained
from methods.common.weighted import send_model, uniform_mean, update_disclosure, updates
from methods.dp.coverage import RELEASED, TRAINED
from methods.dp.releases import noised, planned_rounds, release_grid
from methods.tasks.ner import Data, NerTask
from methods.tasks.ner_networks import Network

__all__ = [
    "ABLATIONS",
    "CITATION",
    "NETWORK",
    "RECORD_NETWORK",
    "TASKS",
    "Options",
    "build",
]

CITATION = (
    "Wang et al. 2023, Federated Domain Adaptation for Named Entity Recognition via Distilling with Heterogeneous "
    "Tag Sets, Findings of ACL"
)
TASKS = ("ner",)
NETWORK = "pointer"
RECORD_NETWORK = "tagger"  #: some hundred steps pass before a pointer network writes anything
FULL_SIZE = WANG_2023
ABLATIONS = ("none", "no_weight", "no_distill")
WEIGHTS = ("safe", "shifted", "paper")


@dataclass(frozen=True)
class Options:
    #: no_weight: all w_i = 1; no_distill: nor any pseudo-annotation (w/o distill&weight)
    ablation: str = "none"
    #: safe: clipped at zero, mean one; shifted: 1 + cos; paper: cos; empty: safe, DP=record shifted
    weights: str = ""
    alpha: float = 0.9  #: momentum of the weights
    #: how target gradients travel: masked (only their sum is readable), or sealed as printed
    channel: str = "masked"


def _target_disclosure(channel: str, network: Network) -> Disclosure:
    told = {
        "masked": "nothing of one silo alone; every silo learns the sum of the others' gradients, which with two silos "
        "is the other's own",
        "sealed": f"how this silo's sentences would move the {network.moved_words} towards the types it does not "
        "annotate; the coordinator reads it for each silo apart",
    }
    return Disclosure(
        name="target",
        channel="masked" if channel == "masked" else "sealed",
        shape=f"one number per entry of the {network.measured_words}: a mean gradient",
        reveals=told[channel],
        privacy="not covered by DP-SGD: a release of its own, clipped by sentence and noised when a budget is set",
    )


# Algorithm 1, line by line

Silo = SiloView[NerTask, Data]


@dataclass(frozen=True)
class _Algorithm:
    """The whole method; its ablations stand below."""

    task: NerTask
    settings: Settings
    options: Options

    def initialize(self, seed: int) -> State:
        """theta_1 at random. Instance weights begin as ones, at the silos."""
        start = parameters(self.task.new_model(seed))
        return State(start, {"target": np.zeros_like(start[self.task.network.measured])})

    def _model(self, theta: Arrays) -> nn.Module:
        return load(self.task.new_model(0), theta)

    # Update instance weighting: algorithm 2, in two halves with the sum in between

    def measure(self, silo: Silo, heard: Heard) -> Answer:
        """At the silo: the pseudo-complete annotation under theta_t, g_i of every sentence, G_k."""
        model = self._model(heard.common)
        data = self.annotate(silo, model, heard.round)
        source, own = self._gradients(silo, heard.round, model, data)
        found = sum(map(len, data.pseudo)) if data.pseudo is not None else 0
        masked = self.options.channel == "masked"
        return Answer(
            masked={"target": own} if masked else {},
            sealed={} if masked else {"target": own},
            carry={"model": heard.common, "data": data, "source": source, "own": own},
            notes={"pseudo_entities": float(found)},
        )

    def annotate(self, silo: Silo, model: nn.Module, round: int) -> Data:
        """Section 3.2. In the first round theta is random, so gold alone is used."""
        return pseudo_complete(self.task, model, silo.data) if round > 0 else silo.data

    def _gradients(
        self, silo: Silo, round: int, model: nn.Module, data: Data
    ) -> tuple[Source, np.ndarray]:
        """g_i and G_k; with DP=record G_k as it is released, clipped by sentence and noised."""
        n = max(1, self.task.size(data))
        # In the first round there is no pseudo-annotation, and G is zero whatever the data are.
        if self.settings.dp != "record" or round == 0:
            source, total = instance_gradients(self.task, model, data)
            return source, (total / n).astype(np.float32)
        grid = release_grid(silo, self.settings.clip)
        source, total = instance_gradients(self.task, model, data, grid.clipped)
        return source, noised(silo, round, total.astype(np.int64), grid) / np.float32(n)

    def sum_targets(self, state: State, folded: Folded) -> State:
        """At the coordinator: the sum of the silos' G_k."""
        if self.options.channel == "masked":
            total = folded.total["target"]
        else:
            each = [folded.sealed[k]["target"].astype(np.float64) for k in sorted(folded.sealed)]
            total = np.sum(each, axis=0)
        return State(state.model, {"target": total.astype(np.float32)})

    def send_target(self, state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast({"target": state.memory["target"]})

    def _measured(self, silo: Silo, round: int) -> tuple[Data, Source]:
        """What `measure` left; the same again at a silo that was restarted since."""
        data, source = silo.carry.get("data"), silo.carry.get("source")
        if data is None or source is None:
            model = self._model(silo.carry["model"])
            data = self.annotate(silo, model, round)
            source, _ = instance_gradients(self.task, model, data)
        return data, source

    def weigh(self, silo: Silo, heard: Heard, source: Source) -> np.ndarray:
        """Equation 12, at the silo. The others' target gradient is the sum without its own."""
        count, o = len(source), self.options
        kept = previous_model(silo.memory, heard.round).get("instance_weights")
        if kept is None or len(kept) != count:  # at first, or if its data have changed since
            kept = np.ones(count, np.float32)
        # Its own part as it is in the sum: against the unrounded one, a residue would be left where
        # nobody else has a target gradient, and weights would follow it.
        own = silo.carry.get("coded", {}).get("target", silo.carry["own"])
        others = np.asarray(heard.common["target"], np.float32) - own
        return new_weights(np.asarray(kept), source, others, o.alpha, o.weights)

    # Local training

    def learn(self, silo: Silo, heard: Heard) -> Answer:
        """Train on mean_i (w_i source_i + target_i + end_i), from theta_t."""
        start, (data, source) = silo.carry["model"], self._measured(silo, heard.round)
        if not self.task.size(data):
            return self._trained(silo, heard, start, data)
        w = self.weigh(silo, heard, source)
        answer = self._trained(silo, heard, start, replace(data, weights=w))
        spread = {"weight_min": w.min(), "weight_mean": w.mean(), "weight_max": w.max()}
        return replace(
            answer,
            memory=remembered(silo.memory, heard.round, {"instance_weights": w}),
            notes={**answer.notes, **{k: float(v) for k, v in spread.items()}},
        )

    def _trained(self, silo: Silo, heard: Heard, start: Arrays, data: Data) -> Answer:
        model, notes = trained(silo, start, heard.round, data)
        return Answer(masked=updates(model, start), notes=notes)

    # Aggregation is `uniform_mean`: weighting by size made small platforms worse (appendix C).


class _NoWeight(_Algorithm):
    """Ablation: all w_i are one, so nothing is measured and one exchange is left."""

    def initialize(self, seed: int) -> State:
        return State(parameters(self.task.new_model(seed)))

    def learn(self, silo: Silo, heard: Heard) -> Answer:
        data = self.annotate(silo, self._model(heard.common), heard.round)
        return self._trained(silo, heard, heard.common, data)


class _NoDistill(_NoWeight):
    """Ablation: nor any pseudo-annotation; a silo learns the types that it annotates."""

    def annotate(self, silo: Silo, model: nn.Module, round: int) -> Data:
        return silo.data


_FORMS = {"none": _Algorithm, "no_weight": _NoWeight, "no_distill": _NoDistill}


def _checked(task: NerTask, settings: Settings, options: Options) -> Options:
    o = options
    if not o.weights:
        o = replace(o, weights="shifted" if settings.dp == "record" else "safe")
    check_choice("ablation", o.ablation, ABLATIONS)
    check_choice("weights", o.weights, WEIGHTS)
    check_choice("channel", o.channel, ("masked", "sealed"))
    if not 0.0 <= o.alpha <= 1.0:
        raise UserError(f'Option "alpha" must be between 0 and 1, not {o.alpha}.')
    if settings.dp == "record" and o.weights == "safe":
        raise UserError(
            'The method "fedner" does not run with DP=record and weights=safe: it scales by the mean of all weights, '
            "so that one sentence changes the loss of every other; use weights=shifted."
        )
    return o


def build(task: NerTask, settings: Settings, options: Options) -> Method:
    o = _checked(task, settings, options)
    algorithm, weighted = _FORMS[o.ablation](task, settings, o), o.ablation == "none"
    shapes = parameters(task.new_model(0))
    q = {"target": ArraySpec(tuple(shapes[task.network.measured].shape), "float32", 64.0)}
    target = Exchange(
        name="target",
        disclosures=(_target_disclosure(o.channel, task.network),),
        broadcast=send_model,
        answer=algorithm.measure,
        fold=algorithm.sum_targets,
        keep_coded=True,
        computed_again=("data", "source"),
        masked=q if o.channel == "masked" else {},
        sealed=q if o.channel == "sealed" else {},
    )
    training = Exchange(
        name="train",
        disclosures=(update_disclosure("all of a silo's sentences"),),
        broadcast=algorithm.send_target if weighted else send_model,
        answer=algorithm.learn,
        fold=uniform_mean,
        masked=specs(shapes),
    )
    # G is released in every round but the first, in which it is zero.
    often = max(planned_rounds(settings) - 1, 0) if weighted else 0
    covered = RecordPrivacy(
        {"target": RELEASED, "update": TRAINED}, release=Release("target gradient", often)
    )
    exchanges = (target, training) if weighted else (training,)
    privacy = Privacy(covered, silo=True, instead="use SET=channel=masked")
    return Method("fedner", CITATION, exchanges, algorithm.initialize, privacy=privacy)
