"""FedCMC: local encoders learn against the best classifier vector of every class, whoever owns it.

Du, He and Jin 2023, "Contrast with Major Classifier Vectors for Federated Medical Relation
Extraction with Heterogeneous Label Distribution". Where a silo has many examples of a class, its
classifier vector for that class is unlike its others: the mean cosine d_{k,c} to them is low
(equation 10). The major vector of a class is the one of the silo with the lowest d (equation 12).
Silos train on CE(h Theta^T) + mu CE(h M^T) with the major vectors M held constant (equation 15), so
that a silo's encoder does not bend to its own label distribution. Models are averaged by size.

The published method reads every silo's classifier. Here it runs under secure aggregation, in two
exchanges: silos train and send their updates masked and their C similarities sealed; then each silo
is told which classes it won, and a masked sum, in which every silo sends zeros for the rows it did
not win, gives the coordinator exactly the matrix that it will broadcast, and nothing else of
anybody's classifier.

Rulings (methods.md, section 3): equation 10 prints the same vector twice, the mean is over the
*other* classes; both losses are means; ties go to the lowest silo; a silo without examples has no
similarity (NaN) and cannot win; if the winner of a row is lost before it sends it, the row stays as
it was. `vectors=minor` takes the highest d (equation 18) and `vectors=random` any silo's row: the
paper's ablations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from config.errors import UserError
from config.settings import Settings
from methods import options
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
    SiloView,
    State,
    derived_seed,
)
from methods.common.training import load, parameters, specs, train
from methods.common.weighted import shared_weight, weighted_update
from methods.fedavg import update_disclosure, weight_disclosure, weighted_mean

__all__ = [
    "CITATION",
    "MODEL",
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
MODEL = "fedcmc"
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
    reveals="roughly which classes the silo has many examples of, or that it has no examples at all",
    privacy="free after DP-SGD (it is computed from the trained model); otherwise not protected",
)
_ROWS = Disclosure(
    name="rows",
    channel="masked",
    shape="one classifier vector per class; zeros for the classes that the silo did not win",
    # Wins are told to each silo alone, so the sum's context cannot bind them.
    reveals="the winning vector of each class, which everybody is sent next",
    privacy="free after DP-SGD (a part of the trained model); otherwise not protected",
    unless="the coordinator lies and tells one silo alone that it won every class",
)


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
    """Per class the silo whose row is taken (equation 12); NOBODY where no silo has one. Ties: the
    lowest silo.
    """
    silos = [s for s in sorted(said) if np.isfinite(said[s]).all()]
    if not silos:
        return np.full(classes, NOBODY, np.int64)
    if vectors == "random":
        return np.array(silos)[rng.integers(len(silos), size=classes)]
    d = np.stack([said[s] for s in silos])
    return np.array(silos)[d.argmin(axis=0) if vectors == "major" else d.argmax(axis=0)]


def major_loss(
    model: Any,
    h: torch.Tensor,
    label: torch.Tensor,
    major: torch.Tensor,
    mu: float,
    reduction: str = "mean",
) -> torch.Tensor:
    """Equation 15. The second term reaches the encoder through h, and never the live classifier."""
    own = F.cross_entropy(model.classifier(h), label, reduction=reduction)
    return own + mu * F.cross_entropy(h @ major.T, label, reduction=reduction)


def build(task: Any, settings: Settings) -> Method:
    o: Options = options("fedcmc", task.name, settings.options)
    if o.vectors not in ("major", "minor", "random"):
        raise UserError(f'Option "vectors" must be major, minor or random, not "{o.vectors}".')
    shapes = parameters(task.new_model(0))
    classes, width = shapes[CLASSIFIER].shape

    def init(seed: int) -> State:
        model = parameters(task.new_model(seed))
        return State(model, {"major": model[CLASSIFIER]})  # Algorithm 1, line 2

    def send_model(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast(
            {**{f"theta/{k}": v for k, v in state.model.items()}, "major": state.memory["major"]}
        )

    def learn(silo: SiloView, heard: Heard) -> Answer:
        theta: Arrays = {k: heard.common[f"theta/{k}"] for k in shapes}
        model = load(task.new_model(0), theta)
        notes, said = {"examples": 0.0}, np.full(classes, np.nan, np.float32)
        if task.size(silo.data):
            major = torch.from_numpy(np.array(heard.common["major"]))

            def loss(m: Any, batch: Any) -> torch.Tensor:
                return major_loss(
                    m, m.dropout(task.features(m, batch)), batch.relation, major, o.mu
                )

            def each(m: Any, batch: Any) -> torch.Tensor:
                h = m.dropout(task.features(m, batch))
                return major_loss(m, h, batch.relation, major, o.mu, reduction="none")

            notes = train(silo, model, heard.round, loss=loss, each=each)
            said = similarities(parameters(model)[CLASSIFIER])
        return Answer(
            masked=weighted_update(model, theta, shared_weight(silo, o.weight_cap)),
            sealed={"similarities": said},
            carry={"classifier": parameters(model)[CLASSIFIER]},
            notes=notes,
        )

    def choose(state: State, folded: Folded) -> State:
        said = {s: a["similarities"] for s, a in folded.sealed.items() if s in folded.survivors}
        rng = np.random.default_rng(derived_seed(settings.seed, "random vectors", folded.round))
        model = weighted_mean(state, folded).model
        return State(model, {**state.memory, "winner": winners(said, classes, o.vectors, rng)})

    def tell(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        """Each silo hears of its own wins only."""
        return Broadcast(
            {}, {s: {"won": (state.memory["winner"] == s).astype(np.uint8)} for s in cohort}
        )

    def send_rows(silo: SiloView, heard: Heard) -> Answer:
        won = heard.private["won"].astype(bool)[:, None]
        return Answer(masked={"rows": np.where(won, silo.carry["classifier"], np.float32(0))})

    def gather(state: State, folded: Folded) -> State:
        """Equation 13. A row whose winner is lost keeps its last vector."""
        here = np.isin(state.memory["winner"], folded.survivors)[:, None]
        rows = folded.total["rows"].astype(np.float32)
        return State(state.model, {"major": np.where(here, rows, state.memory["major"])})

    first = Exchange(
        name="train",
        disclosures=(
            update_disclosure("all of a silo's examples"),
            weight_disclosure(),
            _SIMILARITIES,
        ),
        broadcast=send_model,
        answer=learn,
        fold=choose,
        masked={"weight": ArraySpec((1,), "float32", 1.0), **specs(shapes)},
        weight_cap=o.weight_cap,
        sealed={"similarities": ArraySpec((classes,), "float32")},
    )
    second = Exchange(
        name="rows",
        disclosures=(_ROWS,),
        broadcast=tell,
        answer=send_rows,
        fold=gather,
        masked={"rows": ArraySpec((classes, width), "float32")},
    )
    return Method("fedcmc", CITATION, (first, second), init)
