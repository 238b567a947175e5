"""FedCMC: local encoders learn against the best classifier vector of every class, whoever owns it.

Du, He and Jin 2023, "Contrast with Major Classifier Vectors for Federated Medical Relation
Extraction with Heterogeneous Label Distribution". Where a silo has many examples of a class, its
classifier vector for that class is unlike its others: the mean cosine d_{k,c} to them is low
(equation 10). The major vector of a class is the one of the silo with the lowest d (equation 12).
Silos train on CE(h Theta^T) + mu CE(h M^T) with the major vectors M held constant (equation 15), so
that a silo's encoder does not bend to its own label distribution. Models are averaged by size.

The published method reads every silo's classifier. Here it runs under secure aggregation, in two
exchanges: silos train and send their updates masked and their C similarities sealed and signed;
then all are shown the signed similarities of everybody in that sum, and a masked sum, in which
every silo sends zeros for the rows it did not win, gives the coordinator exactly the matrix that it
will broadcast, and nothing else of anybody's classifier.

No word of the coordinator decides who won. Each silo finds the winners itself, among exactly those
whose updates are in the round's first sum: it has seen that enough holders signed that set, and
each similarity is signed by its silo, on what was broadcast in this round of this run. A
coordinator that leaves somebody's similarities out, or changes them, is refused (`silent-others`),
also where it leaves out of the second sum everybody who would know. The price: silos of one round
see each other's similarities, and the disclosure says so.

Rulings (docs/methods.md, "FedCMC"): equation 10 prints the same vector twice, the mean is over the
*other* classes; both losses are means; ties go to the lowest silo; a silo without examples has no
similarity (NaN) and cannot win; if the winner of a row is lost before it sends it, the row stays as
it was. `vectors=minor` takes the highest d (equation 18) and `vectors=random` any silo's row: the
paper's ablations. `predict=major` is a variant of ours: the major vectors classify, and not the
averaged classifier, which is what label skew spoils. Training is the same, word for word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.errors import UserError, check_choice
from config.settings import Settings
from crypto.identity.statements import SIGNATURE_BYTES
from crypto.sum.params import Policy
from methods.base import (
    Answer,
    Arrays,
    ArraySpec,
    Broadcast,
    Contradiction,
    Disclosure,
    Exchange,
    Folded,
    Heard,
    Method,
    Privacy,
    RecordPrivacy,
    SiloView,
    State,
    derived_seed,
)
from methods.common.training import parameters, specs, trained
from methods.common.weighted import (
    shared_weight,
    update_disclosure,
    weight_disclosure,
    weight_spec,
    weighted_mean,
    weighted_update,
)
from methods.dp.coverage import COUNT, TRAINED
from methods.tasks.sentence import Batch, Data, SentenceTask
from models.device import here
from models.sentence_encoder import SentenceEncoder

__all__ = [
    "CITATION",
    "NETWORK",
    "TASKS",
    "Options",
    "build",
    "major_loss",
    "shown",
    "similarities",
    "winners",
]

CITATION = (
    "Du et al. 2023, Contrast with Major Classifier Vectors for Federated Medical Relation Extraction with "
    "Heterogeneous Label Distribution"
)
TASKS = ("sentence",)
NETWORK = "fedcmc"
#: The paper trains by SGD, and under AdamW the contrast does nothing. The rate that it prints, 5e-5,
#: leaves an encoder where it was (docs/decisions.md, 90), so the rate is ours.
FULL_SIZE = {"optimizer": "sgd", "lr": 0.05, "warmup": 0.0, "schedule": "constant"}
CLASSIFIER = "classifier.weight"
AVERAGED = "averaged"  #: with predict=major, where the averaged classifier is kept
NOBODY = -1


@dataclass(frozen=True)
class Options:
    mu: float = 1.0  #: weight of the contrast; never given in the paper, search {0.1, 0.5, 1}
    vectors: str = "major"  #: or minor, random: the ablations
    #: what classifies at test: the averaged classifier (equation 17), or the major vectors
    predict: str = "averaged"
    weight_cap: int = 2000


_SIGNED = "made from the similarities and the silo's key"
_SIMILARITIES = Disclosure(
    name="similarities",
    channel="sealed",
    shape="one number per class: how like the silo's other classifier vectors its vector for the class is",
    reveals="roughly which classes the silo has many examples of, or that it has no examples at all; all silos of "
    "the round are shown them too, with the silo's name",
    privacy="free after DP-SGD (it is computed from the trained model); otherwise not protected",
)
_SIGNATURE = Disclosure(
    name="signature",
    channel="sealed",
    shape="64 bytes: the silo's signature under its similarities, the round and what was broadcast in it",
    reveals="that the similarities are this silo's, to anybody who has the roster; nothing else",
    privacy=f"free: {_SIGNED}",
)
_ROWS = Disclosure(
    name="rows",
    channel="masked",
    shape="one classifier vector per class; zeros for the classes that the silo did not win",
    reveals="of each class one silo's vector, which everybody is sent next: of the silo that won it among those "
    "whose updates are in the round's sum",
    privacy="free after DP-SGD (a part of the trained model); otherwise not protected",
)
#: The ablation that draws winners at random: from the run's seed, which the coordinator knows.
_DRAWN_ROWS = replace(
    _ROWS,
    unless="the coordinator leaves silos out of a round until the draw falls on one silo for every class",
)
_PRIVACY = Privacy(
    RecordPrivacy(
        {
            "update": TRAINED,
            "weight": COUNT,
            "similarities": TRAINED,
            "signature": _SIGNED,
            "rows": TRAINED,
        }
    ),
    silo=True,
)
#: What a silo's signature under its similarities is for.
_PURPOSE = "fedcmc/similarities"
_TRAINING = 0  #: the exchange that the similarities are of


# The equations


def major_loss(
    classifier: nn.Module,
    h: torch.Tensor,
    label: torch.Tensor,
    major: torch.Tensor,
    mu: float,
    reduction: str = "mean",
) -> torch.Tensor:
    """Equation 15. The second term reaches the encoder through h, and never the live classifier."""
    own = F.cross_entropy(classifier(h), label, reduction=reduction)
    return own + mu * F.cross_entropy(h @ major.T, label, reduction=reduction)


def similarities(classifier: np.ndarray) -> np.ndarray:
    """d_{k,c} of equation 10: the mean cosine of row c to the other rows, float32 (C,)."""
    theta = classifier.astype(np.float64)
    unit = theta / np.maximum(np.linalg.norm(theta, axis=1, keepdims=True), 1e-12)
    cosine = unit @ unit.T
    others = max(len(theta) - 1, 1)
    return ((cosine.sum(axis=1) - np.diag(cosine)) / others).astype(np.float32)


def winners(
    said: Mapping[int, np.ndarray], classes: int, vectors: str, rng: np.random.Generator
) -> np.ndarray:
    """Per class the silo whose row is taken (equation 12); NOBODY where no silo has a similarity.
    Ties: the lowest silo.
    """
    silos = [s for s in sorted(said) if np.isfinite(said[s]).all()]
    if not silos:
        return np.full(classes, NOBODY, np.int64)
    d = np.stack([said[s] for s in silos])
    if vectors == "random":
        at = rng.integers(len(silos), size=classes)
    else:
        at = d.argmin(axis=0) if vectors == "major" else d.argmax(axis=0)
    return np.array(silos)[at]


def shown(silo: SiloView[SentenceTask, Data], heard: Heard) -> dict[int, np.ndarray]:
    """The similarities of everybody in the round's first sum, as this silo was shown them: whole,
    and each as its own silo signed it. Raises Contradiction where they are not.
    """
    silos = [int(i) for i in heard.common["silos"]]
    said = dict(zip(silos, heard.common["similarities"], strict=True))
    signatures = dict(zip(silos, heard.common["signatures"], strict=True))
    if len(said) != len(silos):
        raise Contradiction("a silo's similarities are shown twice")
    if silo.settings.secagg:  # else there is nothing to hide, and nobody certifies anything
        certified = silo.certified.get(_TRAINING)
        if certified is None:
            raise Contradiction("it was not shown whose updates are in the round's sum")
        if set(said) != set(certified):
            raise Contradiction("they are not the similarities of everybody in the round's sum")
    own = said.get(silo.index)
    if own is None or own.tobytes() != silo.carry["similarities"].tobytes():
        raise Contradiction("its own similarities are missing, or are not those it sent")
    for index, d in said.items():
        signed = _statement(silo.carry["context"], d)
        if not silo.verify(index, _PURPOSE, signed, signatures[index].tobytes()):
            raise Contradiction(f"the similarities of silo {index} are not signed by it")
    return said


def _statement(context: bytes, d: np.ndarray) -> bytes:
    """What is signed: the similarities, and what they were computed on."""
    return context + d.astype("<f4").tobytes()


# Algorithm 1, line by line


@dataclass(frozen=True)
class _Framework:
    """`theta` is the whole model, encoder and classifier; `major` the major vectors, (C, d)."""

    task: SentenceTask
    seed: int
    options: Options

    def initialize(self, seed: int) -> State:
        """Lines 1 and 2: the major vectors begin as the classifier's own."""
        model = parameters(self.task.new_model(seed))
        return State(model, {"major": model[CLASSIFIER]})

    def send(self, state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        """Line 5, what LocalTraining is given."""
        theta = {f"theta/{k}": v for k, v in self._averaged(state).items()}
        return Broadcast({**theta, "major": state.memory["major"]})

    def _averaged(self, state: State) -> Arrays:
        """The averaged model; with predict=major the state's own has the major vectors in it."""
        kept = state.memory.get(AVERAGED)
        return state.model if kept is None else {**state.model, CLASSIFIER: kept}

    def local_training(self, silo: SiloView[SentenceTask, Data], heard: Heard) -> Answer:
        """Lines 12 to 18, at the silo. A silo without examples has no similarity (NaN)."""
        theta: Arrays = {
            k.removeprefix("theta/"): v for k, v in heard.common.items() if k != "major"
        }
        major = here(np.array(heard.common["major"]))
        model, notes = trained(
            silo,
            theta,
            heard.round,
            loss=lambda m, batch: self._loss(m, batch, major, "mean"),
            each=lambda m, batch: self._loss(m, batch, major, "none"),
        )
        classifier = parameters(model)[CLASSIFIER]
        nothing = np.full(len(classifier), np.nan, np.float32)
        d = similarities(classifier) if self.task.size(silo.data) else nothing
        signature = silo.sign(_PURPOSE, _statement(heard.context, d))
        return Answer(
            masked=weighted_update(model, theta, shared_weight(silo, self.options.weight_cap)),
            sealed={"similarities": d, "signature": np.frombuffer(signature, np.uint8)},
            carry={"classifier": classifier, "similarities": d, "context": heard.context},
            notes=notes,
        )

    def _loss(
        self, model: SentenceEncoder, batch: Batch, major: torch.Tensor, reduction: str
    ) -> torch.Tensor:
        h = model.dropout(self.task.features(model, batch))
        return major_loss(model.classifier, h, batch.relation, major, self.options.mu, reduction)

    def aggregate(self, state: State, folded: Folded) -> State:
        """Line 7: the mean of the models by size (equations 8 and 9). For line 8, who has the major
        vector of which class (equation 12).
        """
        silos = [s for s in sorted(folded.sealed) if s in folded.survivors]
        said = {s: folded.sealed[s]["similarities"] for s in silos}
        memory = {
            "silos": np.array(silos, np.int64),
            "similarities": np.stack([said[s] for s in silos]),
            "signatures": np.stack([folded.sealed[s]["signature"] for s in silos]),
            "winner": self._winners(said, folded.round),
        }
        mean = weighted_mean(State(self._averaged(state)), folded).model
        return State(mean, {"major": state.memory["major"], **memory})

    def _winners(self, said: Mapping[int, np.ndarray], round: int) -> np.ndarray:
        """The same at the coordinator and at every silo."""
        rng = np.random.default_rng(derived_seed(self.seed, "random vectors", round))
        classes = len(next(iter(said.values())))
        return winners(said, classes, self.options.vectors, rng)

    def tell(self, state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        """All silos see what everybody signed."""
        return Broadcast({k: state.memory[k] for k in ("silos", "similarities", "signatures")})

    def send_rows(self, silo: SiloView[SentenceTask, Data], heard: Heard) -> Answer:
        """The rows that it won; zeros for the others, so that their sum is the major vectors."""
        won = (self._winners(shown(silo, heard), heard.round) == silo.index)[:, None]
        return Answer(masked={"rows": np.where(won, silo.carry["classifier"], np.float32(0))})

    def ensemble(self, state: State, folded: Folded) -> State:
        """Line 8, equation 13. A row whose winner is lost keeps its last vector."""
        here = np.isin(state.memory["winner"], folded.survivors)[:, None]
        rows = folded.total["rows"].astype(np.float32)
        major = np.where(here, rows, state.memory["major"])
        if self.options.predict == "averaged":
            return State(state.model, {"major": major})
        averaged = state.model[CLASSIFIER]
        return State({**state.model, CLASSIFIER: major}, {"major": major, AVERAGED: averaged})


def build(task: SentenceTask, settings: Settings, options: Options) -> Method:
    check_choice("vectors", options.vectors, ("major", "minor", "random"))
    check_choice("predict", options.predict, ("averaged", "major"))
    if settings.secagg and settings.silos > (most := Policy().holders_up_to):
        # beyond that a committee signs who is in a sum, and the others are not shown it
        raise UserError(
            f"METHOD=fedcmc runs with at most {most} silos, not {settings.silos}: every silo must see "
            "who is in a round's sum; take SECAGG=off, or METHOD=fedavg."
        )
    shapes = parameters(task.new_model(0))
    classes, width = shapes[CLASSIFIER].shape
    line = _Framework(task, settings.seed, options)
    training = Exchange(
        name="train",
        disclosures=(
            update_disclosure("all of a silo's examples"),
            weight_disclosure(),
            _SIMILARITIES,
            _SIGNATURE,
        ),
        broadcast=line.send,
        answer=line.local_training,
        fold=line.aggregate,
        masked={**weight_spec(), **specs(shapes)},
        weight_cap=options.weight_cap,
        sealed={
            "similarities": ArraySpec((classes,), "float32"),
            "signature": ArraySpec((SIGNATURE_BYTES,), "uint8"),
        },
    )
    rows = Exchange(
        name="rows",
        disclosures=(_DRAWN_ROWS if options.vectors == "random" else _ROWS,),
        broadcast=line.tell,
        answer=line.send_rows,
        fold=line.ensemble,
        masked={"rows": ArraySpec((classes, width), "float32")},
    )
    return Method("fedcmc", CITATION, (training, rows), line.initialize, privacy=_PRIVACY)
