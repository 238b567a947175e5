"""FedCMC: local encoders learn against the best classifier vector of every class, whoever owns it.

Du, He and Jin 2023, "Contrast with Major Classifier Vectors for Federated Medical Relation
Extraction with Heterogeneous Label Distribution". Where a silo has many examples of a class, its
classifier vector for that class is unlike its others: the mean cosine d_{k,c} to them is low
(equation 10). The major vector of a class is the one of the silo with the lowest d (equation 12).
Silos train on CE(h Theta^T) + mu CE(h M^T) with the major vectors M held constant (equation 15), so
that a silo's encoder does not bend to its own label distribution. Models are averaged by size.

The published method reads every silo's classifier. Here it runs under secure aggregation, in two
exchanges: silos train and send their updates masked and their C similarities sealed; then all are
told the lowest similarity of every class and whose it is, and a masked sum, in which every silo
sends zeros for the rows it did not win, gives the coordinator exactly the matrix that it will
broadcast, and nothing else of anybody's classifier.

No private word decides. What is told is the same for all and in the sum's context. A silo sends a
row only where its own similarity is the one that is claimed; where its own is lower than what is
claimed, the claim is a lie, and it takes no part (`silent-others`). What is left to a coordinator
that lies is to leave out of the second sum those who would know: it then reads the row of a silo
that is the lowest only among the others. The disclosure says so.

Rulings (docs/methods.md, "FedCMC"): equation 10 prints the same vector twice, the mean is over the
*other* classes; both losses are means; ties go to the lowest silo; a silo without examples has no
similarity (NaN) and cannot win; if the winner of a row is lost before it sends it, the row stays as
it was. `vectors=minor` takes the highest d (equation 18) and `vectors=random` any silo's row: the
paper's ablations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.errors import check_choice
from config.settings import Settings
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
from models.sentence_encoder import SentenceEncoder

__all__ = [
    "CITATION",
    "NETWORK",
    "TASKS",
    "Options",
    "build",
    "major_loss",
    "similarities",
    "winners",
]

CITATION = (
    "Du et al. 2023, Contrast with Major Classifier Vectors for Federated Medical Relation Extraction with "
    "Heterogeneous Label Distribution"
)
TASKS = ("sentence",)
NETWORK = "fedcmc"
CLASSIFIER = "classifier.weight"
NOBODY = -1


@dataclass(frozen=True)
class Options:
    mu: float = 1.0  #: weight of the contrast; never given in the paper, search {0.1, 0.5, 1}
    vectors: str = "major"  #: or minor, random: the ablations
    weight_cap: int = 2000


_SIMILARITIES = Disclosure(
    name="similarities",
    channel="sealed",
    shape="one number per class: how like the silo's other classifier vectors its vector for the class is",
    reveals="roughly which classes the silo has many examples of, or that it has no examples at all; all silos are "
    "told the lowest of each class, and whose it is",
    privacy="free after DP-SGD (it is computed from the trained model); otherwise not protected",
)
_ROWS = Disclosure(
    name="rows",
    channel="masked",
    shape="one classifier vector per class; zeros for the classes that the silo did not win",
    reveals="the winning vector of each class, which everybody is sent next",
    privacy="free after DP-SGD (a part of the trained model); otherwise not protected",
    unless="the coordinator lies about who won a class and leaves out of the sum every silo that would know",
)
#: The ablation that draws winners at random: nothing that a silo knows could contradict a draw.
_DRAWN_ROWS = replace(
    _ROWS, unless="the coordinator lies and says that one silo was drawn for every class"
)
#: Beyond any mean cosine: what is claimed of a class that no silo has a vector for.
_BEYOND = 2.0
_PRIVACY = Privacy(
    RecordPrivacy({"update": TRAINED, "weight": COUNT, "similarities": TRAINED, "rows": TRAINED}),
    silo=True,
)


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
) -> tuple[np.ndarray, np.ndarray]:
    """Per class the silo whose row is taken (equation 12), and its similarity. NOBODY, and a number
    that no cosine reaches, where no silo has one. Ties: the lowest silo.
    """
    silos = [s for s in sorted(said) if np.isfinite(said[s]).all()]
    if not silos:
        beyond = _BEYOND if vectors != "minor" else -_BEYOND
        return np.full(classes, NOBODY, np.int64), np.full(classes, beyond, np.float32)
    d = np.stack([said[s] for s in silos])
    if vectors == "random":
        at = rng.integers(len(silos), size=classes)
    else:
        at = d.argmin(axis=0) if vectors == "major" else d.argmax(axis=0)
    return np.array(silos)[at], d[at, np.arange(classes)].astype(np.float32)


def contradiction(own: np.ndarray, claimed: np.ndarray, vectors: str) -> str:
    """Why a claim of the lowest (`minor`: highest) similarities is a lie, by one silo's own; empty:
    it may be true. A silo without examples (NaN) knows nothing.
    """
    if vectors == "random":
        return ""
    beaten = own < claimed if vectors == "major" else own > claimed
    if not beaten.any():
        return ""
    kind = "lowest" if vectors == "major" else "highest"
    return f"class {int(np.argmax(beaten))}: its own similarity beats the {kind} that is claimed"


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
        theta = {f"theta/{k}": v for k, v in state.model.items()}
        return Broadcast({**theta, "major": state.memory["major"]})

    def local_training(self, silo: SiloView[SentenceTask, Data], heard: Heard) -> Answer:
        """Lines 12 to 18, at the silo. A silo without examples has no similarity (NaN)."""
        theta: Arrays = {
            k.removeprefix("theta/"): v for k, v in heard.common.items() if k != "major"
        }
        major = torch.from_numpy(np.array(heard.common["major"]))
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
        return Answer(
            masked=weighted_update(model, theta, shared_weight(silo, self.options.weight_cap)),
            sealed={"similarities": d},
            carry={"classifier": classifier, "similarities": d},
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
        said = {s: a["similarities"] for s, a in folded.sealed.items() if s in folded.survivors}
        rng = np.random.default_rng(derived_seed(self.seed, "random vectors", folded.round))
        won, d = winners(said, len(state.memory["major"]), self.options.vectors, rng)
        memory = {**state.memory, "winner": won, "similarity": d}
        return State(weighted_mean(state, folded).model, memory)

    def tell(self, state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        """All silos hear who won which class, and with what."""
        return Broadcast({k: state.memory[k] for k in ("winner", "similarity")})

    def send_rows(self, silo: SiloView[SentenceTask, Data], heard: Heard) -> Answer:
        """The rows that it won; zeros for the others, so that their sum is the major vectors."""
        own, claimed = silo.carry["similarities"], heard.common["similarity"]
        if lie := contradiction(own, claimed, self.options.vectors):
            raise Contradiction(lie)
        won = ((heard.common["winner"] == silo.index) & (own == claimed))[:, None]
        return Answer(masked={"rows": np.where(won, silo.carry["classifier"], np.float32(0))})

    def ensemble(self, state: State, folded: Folded) -> State:
        """Line 8, equation 13. A row whose winner is lost keeps its last vector."""
        here = np.isin(state.memory["winner"], folded.survivors)[:, None]
        rows = folded.total["rows"].astype(np.float32)
        return State(state.model, {"major": np.where(here, rows, state.memory["major"])})


def build(task: SentenceTask, settings: Settings, options: Options) -> Method:
    check_choice("vectors", options.vectors, ("major", "minor", "random"))
    shapes = parameters(task.new_model(0))
    classes, width = shapes[CLASSIFIER].shape
    line = _Framework(task, settings.seed, options)
    training = Exchange(
        name="train",
        disclosures=(
            update_disclosure("all of a silo's examples"),
            weight_disclosure(),
            _SIMILARITIES,
        ),
        broadcast=line.send,
        answer=line.local_training,
        fold=line.aggregate,
        masked={**weight_spec(), **specs(shapes)},
        weight_cap=options.weight_cap,
        sealed={"similarities": ArraySpec((classes,), "float32")},
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
