"""FedLCC: the context that a local model finds for a pair of entities stays near the global
model's.

Xiao, Jin and Hao 2024, "Federated Document-Level Biomedical Relation Extraction with Localized
Context Contrast", LREC-COLING. For every candidate pair, with x its localized context c (equation
5) by the model in training, g by the global model received and p by the silo's own model of the
last round it trained in,

    L_LCC = -log( e^{cos(x,g)/tau} / (e^{cos(x,g)/tau} + e^{cos(x,p)/tau}) )      (12)
    L = L_cls + mu mean L_LCC                                                     (13)

and the coordinator takes the plain mean of the models (14): every participant counts the same. A
silo without a document does not count: cut by structural entropy there can be some, and the model
that they send back unchanged would slow all others down. Silos differ tenfold in size there:
`mean=size` weighs them as FedAvg does.

g and p are computed in eval mode, without gradients, once per round: their models do not change
while the silo trains, however many epochs. On a silo's first participation there is no p and the
term is left out (with p = g it would be the constant log 2, without a gradient). The previous model
is kept on the silo's disk and never sent.

With `TRAIN=head` c never changes, and the term has no gradient: `contrast=context` is refused there,
and `contrast=bilinear` too where the head is linear. Under DP=record, whose default is a linear head,
a run goes on without the term: it is FedAvg with a uniform mean.

The paper contrasts c. The authors' code contrasts the products that the bilinear classifier reads
(`contrast=bilinear`); in the code as released the term is never reached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from config.errors import UserError, check_choice
from config.part import HEAD
from config.settings import Settings
from methods.base import Arrays, Heard, Method, SiloView
from methods.common.previous import previous_model
from methods.common.training import load
from methods.common.weighted import COVERED, Aim, averaged
from methods.moon import contrasts
from methods.tasks.document import DocumentTask
from methods.tasks.document_data import Data, Labelled
from models import document_heads as heads
from models.device import here
from models.document_encoder import DocumentEncoder, Reading

__all__ = ["CITATION", "TASKS", "Options", "bilinear_cosine", "build", "references"]

CITATION = (
    "Xiao et al. 2024, Federated Document-Level Biomedical Relation Extraction with Localized Context Contrast, "
    "LREC-COLING"
)
TASKS = ("document",)
#: The released code's, on SciBERT. It adds the gradients of two batches before each step, which we
#: do not.
FULL_SIZE = {
    "optimizer": "adam",
    "lr": 2.5e-5,
    "decay": 0.01,
    "weight_decay": 5e-8,
    "batch": 3,
    "epochs": 1,
    "rounds": 50,
    "warmup": 0.0,
    "schedule": "constant",
    "clip_norm": 1.0,
}


_NAMES = {"context": "context", "bilinear": "products"}


@dataclass(frozen=True)
class Options:
    mu: float = 0.1  #: weight of the contrast
    tau: float = 0.5  #: its temperature
    #: what is contrasted: context (c, the paper) or bilinear (z_s times z_o, the code)
    contrast: str = "context"
    #: how models are averaged: uniform (equation 14) over silos that have documents, or size, as
    #: FedAvg does
    mean: str = "uniform"
    #: mean=size: silos larger than this weigh as if they had this many documents
    weight_cap: int = 2000


def bilinear_cosine(x: torch.Tensor, y: torch.Tensor, block: int) -> torch.Tensor:
    """The cosine between the grouped products of [z_s; z_o] and of another model's, (pairs,).

    The products have d * block dimensions; their inner product is the sum over groups of <z_s,
    z_s'> <z_o, z_o'>, so that they need never be written out.
    """

    def inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        halves = (a * b).view(len(a), 2, a.shape[1] // (2 * block), block).sum(dim=3)
        return (halves[:, 0] * halves[:, 1]).sum(dim=1)

    return inner(x, y) / (inner(x, x) * inner(y, y)).clamp(min=1e-16).sqrt()


def _what(kind: str, reading: Reading) -> torch.Tensor:
    return (
        reading.context
        if kind == "context"
        else torch.cat([reading.subject, reading.object], dim=1)
    )


def references(
    silo: SiloView[DocumentTask, Data], heard: Heard, before: Arrays, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """g and p of every pair of the silo's documents, in their order: one pass each, none for a
    model seen already.
    """
    task = silo.task

    def read(model: Arrays) -> torch.Tensor:
        return task.read_all(load(task.new_model(0), model), silo.data, lambda r: _what(kind, r))

    g = read(heard.common)
    if all(np.array_equal(before[k], v) for k, v in heard.common.items()):
        return g, g
    return g, read(before)


def _has_gradient(task: DocumentTask, o: Options) -> bool:
    """Whether training can change what is contrasted."""
    trained_head = o.contrast == "bilinear" and task.knobs.classifier == "bilinear"
    return task.part != HEAD or trained_head


def _objective(silo: SiloView[DocumentTask, Data], heard: Heard, o: Options) -> Aim:
    before = previous_model(silo.memory, heard.round)
    if not before or not o.mu or not _has_gradient(silo.task, o):
        return Aim()
    task = silo.task
    g, p = references(silo, heard, before, o.contrast)
    rows = silo.data.pair_rows
    place = np.argsort(rows, kind="stable")
    similarity = (
        None if o.contrast == "context" else lambda a, b: bilinear_cosine(a, b, task.knobs.block)
    )

    def apart(batch: Labelled, reading: Reading) -> torch.Tensor:
        """L_LCC of every pair."""
        at = here(place[np.searchsorted(rows, batch[0].pair_rows, sorter=place)])
        return contrasts(
            _what(o.contrast, reading), g[at], p[at], o.tau, similarity or F.cosine_similarity
        )

    def loss(model: DocumentEncoder, batch: Labelled) -> torch.Tensor:
        reading = model.read(batch[0])
        value = heads.loss(task.head, reading.logits, batch[1])
        return value + o.mu * apart(batch, reading).mean() if len(reading.logits) else value

    def each(model: DocumentEncoder, batch: Labelled) -> torch.Tensor:
        reading = model.read(batch[0], by_document=True)
        values = heads.losses(task.head, reading.logits, batch[1]) + o.mu * apart(batch, reading)
        return batch[0].mean_of_pairs(values)

    return Aim(loss, each)


def build(task: DocumentTask, settings: Settings, options: Options) -> Method:
    o = options
    check_choice("contrast", o.contrast, ("context", "bilinear"))
    check_choice("mean", o.mean, ("uniform", "size"))
    if o.tau <= 0:
        raise UserError(f'Option "tau" must be above 0, not {o.tau}.')
    if o.mu and not _has_gradient(task, o) and settings.dp != "record":
        raise UserError(
            f"FedLCC's contrast of the {_NAMES[o.contrast]} has no gradient with TRAIN=head: what it "
            "compares is never trained; take TRAIN=top:1, or SET=mu=0 to leave the contrast out."
        )
    return averaged(
        "fedlcc",
        CITATION,
        task,
        objective=lambda silo, heard: _objective(silo, heard, o),
        privacy=COVERED,
        of="all of a silo's examples" if o.mean == "size" else "all of a silo's documents",
        weight_cap=o.weight_cap if o.mean == "size" else 1,
        remember=True,
    )
