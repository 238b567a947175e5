"""FedED: silos send predictions on a public set instead of models; the coordinator learns from
their ensemble.

Sui et al. 2020, "FedED: Federated Learning via Ensemble Distillation for Medical Relation
Extraction", EMNLP. Every silo trains from Theta_t on its own data (equation 3) and predicts the
labelled public set D_v; the mean of what they predict is the teacher q (equations 4 and 5); the
coordinator makes one pass over D_v from Theta_t (Algorithm 1), minimising -log p(y) + KL(q || p)
(equation 6). No parameter ever goes up.

Where the paper is silent or contradicts itself (docs/methods.md, "FedED"):

* Words say logits, symbols say probabilities. `form=logits` (default) sends log-softmax clipped at
  -20: averaging these and taking the softmax equals averaging logits, because each model's own
  constant cancels, and the range is bounded. `form=probs` is the literal reading, in which the
  teacher's top class cannot exceed e^(1/tau) / (e^(1/tau) + C - 1); use tau <= 0.1 with it.
* tau is not given: 1. The student is at temperature 1, both terms weigh the same (`loss=paper`);
  `loss=hinton` is (1 - lam) CE + lam tau^2 KL with both at tau.
* Only the sum over silos is needed. `logits=sealed` codes each number in 8, 16 or 32 bits for the
  coordinator's eyes; `logits=masked` lets nobody see one silo's predictions and costs a lane of the
  secure sum per number, of which the narrowest has 16 bits, beside the keys and shares of the sum
  itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.errors import UserError, check_choice
from config.settings import Settings
from methods.base import (
    Answer,
    ArraySpec,
    Channel,
    Disclosure,
    Exchange,
    Folded,
    Heard,
    Method,
    Privacy,
    RecordPrivacy,
    SiloView,
    State,
)
from methods.common.public import public_passes
from methods.common.training import trained
from methods.common.weighted import first_model, send_model
from methods.dp.coverage import TRAINED
from methods.tasks.sentence import Batch, Data, SentenceTask
from models.device import here

__all__ = [
    "CITATION",
    "FLOOR",
    "NETWORK",
    "PUBLIC",
    "TASKS",
    "Options",
    "adjust",
    "build",
    "decode",
    "distil_loss",
    "encode",
    "teacher",
]

CITATION = "Sui et al. 2020, FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction, EMNLP"
TASKS = ("sentence",)
NETWORK = "feded"
#: Section 4.2 of the paper, on Clinical BERT; which optimizer it leaves open.
FULL_SIZE = {
    "optimizer": "adamw",
    "lr": 2.5e-5,
    "batch": 4,
    "epochs": 2,
    "warmup": 0.0,
    "schedule": "constant",
    "clip_norm": 0.0,
}
PUBLIC = True
FLOOR = -20.0  #: log-probabilities below this are sent as this
_CODES = {32: "float32", 16: "uint16", 8: "uint8"}
_PRIVACY = Privacy(
    RecordPrivacy({"predictions": TRAINED}), silo=True, instead="use SET=logits=masked"
)


@dataclass(frozen=True)
class Options:
    logits: str = "sealed"  #: or masked: how predictions travel
    form: str = "logits"  #: or probs: what is averaged
    tau: float = 1.0  #: temperature of the teacher
    #: or hinton, or kl: the distillation term alone, a variant of ours without labels of D_v
    loss: str = "paper"
    lam: float = 0.5  #: weight of the distillation term in Hinton's loss
    #: bits per number: 32, 16 or 8. Masked, 8 means a lane of 16; BITS is not used
    logit_bits: int = 8


def _bounds(form: str) -> tuple[float, float]:
    return (FLOOR, 0.0) if form == "logits" else (0.0, 1.0)


def encode(log_p: np.ndarray, o: Options) -> np.ndarray:
    """A silo's predictions on D_v, (|D_v|, C) log-probabilities, as they travel."""
    low, high = _bounds(o.form)
    values = np.clip(log_p if o.form == "logits" else np.exp(log_p), low, high)
    if o.logits == "masked":  # centred, so that the secure sum's symmetric range is used whole
        return (values - (low + high) / 2).astype(np.float32)
    if o.logit_bits == 32:
        return values.astype(np.float32)
    steps = (1 << o.logit_bits) - 1
    return np.rint((values.astype(np.float64) - low) / (high - low) * steps).astype(
        _CODES[o.logit_bits]
    )


def decode(coded: np.ndarray, o: Options) -> np.ndarray:
    """One silo's sealed predictions as numbers again, float64."""
    low, high = _bounds(o.form)
    if o.logit_bits == 32:
        return np.clip(np.nan_to_num(coded.astype(np.float64), nan=low), low, high)
    return low + coded.astype(np.float64) * ((high - low) / ((1 << o.logit_bits) - 1))


def ensemble(folded: Folded, o: Options) -> np.ndarray:
    """z of equation 5: the mean over the silos that answered, (|D_v|, C)."""
    if o.logits == "masked":
        low, high = _bounds(o.form)
        return folded.total["predictions"] / len(folded.survivors) + (low + high) / 2
    return np.mean(
        [decode(folded.sealed[s]["predictions"], o) for s in sorted(folded.sealed)], axis=0
    )


def teacher(z: np.ndarray, tau: float) -> np.ndarray:
    """q of equation 4: softmax of z / tau."""
    e = np.exp((z - z.max(axis=-1, keepdims=True)) / tau)
    return e / e.sum(axis=-1, keepdims=True)


def distil_loss(
    logits: torch.Tensor, label: torch.Tensor, q: torch.Tensor, o: Options
) -> torch.Tensor:
    """Equation 6 over a batch (`paper`), Hinton's form with the student at the teacher's
    temperature, or KL alone: with labels in every pass the student learns D_v by heart, and its own
    answers there come back as the next teacher's (docs/methods.md, "FedED").
    """
    if o.loss == "kl":
        return F.kl_div(F.log_softmax(logits, dim=-1), q, reduction="batchmean")
    truth = F.cross_entropy(logits, label)
    if o.loss == "hinton":
        soft = F.kl_div(F.log_softmax(logits / o.tau, dim=-1), q, reduction="batchmean")
        return (1 - o.lam) * truth + o.lam * o.tau**2 * soft
    return truth + F.kl_div(F.log_softmax(logits, dim=-1), q, reduction="batchmean")


def _disclosure(o: Options, channel: Channel) -> Disclosure:
    what = "log-probability, at least -20," if o.form == "logits" else "probability"
    return Disclosure(
        name="predictions",
        channel=channel,
        shape=f"one number per public sentence and class: the {what} that the silo's trained model gives it",
        reveals="nothing of one silo alone; the sum shows what the trained models together predict on public sentences"
        if channel == "masked"
        else "how the silo's trained model behaves on public sentences, from which its class balance can be guessed",
        privacy="free after DP-SGD (public text through the trained model); otherwise not protected",
    )


def _checked(task: SentenceTask, o: Options) -> None:
    check_choice("logits", o.logits, ("sealed", "masked"))
    check_choice("form", o.form, ("logits", "probs"))
    check_choice("loss", o.loss, ("paper", "hinton", "kl"))
    if o.logit_bits not in _CODES:
        raise UserError(f'Option "logit_bits" must be 32, 16 or 8, not {o.logit_bits}.')
    if not o.tau > 0:
        raise UserError(f'Option "tau" must be above 0, not {o.tau}.')
    if task.size(task.public) == 0:
        raise UserError(
            "FedED distils on a public set, and this corpus has none; put a public.jsonl into its folder, or in a "
            'simulation set option "public" above 0.'
        )


def adjust(settings: Settings) -> Settings:
    """Predictions are the only thing masked here, so `logit_bits` decides the lanes."""
    if settings.options.get("logits") != "masked":
        return settings
    return replace(
        settings, bits=32 if settings.options.get("logit_bits", Options.logit_bits) == 32 else 16
    )


def build(task: SentenceTask, settings: Settings, options: Options) -> Method:
    o = options
    _checked(task, o)
    shape = (task.size(task.public), len(task.labels))

    def local_update(silo: SiloView[SentenceTask, Data], heard: Heard) -> Answer:
        """LocalUpdate of Algorithm 1. A silo without data predicts with the model it received."""
        model, notes = trained(silo, heard.common, heard.round)
        predictions = {"predictions": encode(task.log_probabilities(model, task.public), o)}
        if o.logits == "masked":
            return Answer(masked=predictions, notes=notes)
        return Answer(sealed=predictions, notes=notes)

    def distil(state: State, folded: Folded) -> State:
        """The aggregator of Algorithm 1: one pass over D_v, from the model that was sent out."""
        if not folded.survivors:
            return state
        q = here(teacher(ensemble(folded, o), o.tau).astype(np.float32))

        def loss(model: nn.Module, batch: Batch, rows: np.ndarray) -> torch.Tensor:
            return distil_loss(model(*batch.inputs), batch.relation, q[rows], o)

        student = public_passes(
            task,
            settings,
            state.model,
            round=folded.round,
            loss=loss,
            passes=1,
            purpose="distil",
        )
        return State(student, state.memory)

    channel: Channel = "masked" if o.logits == "masked" else "sealed"
    low, high = _bounds(o.form)
    exchange = Exchange(
        name="train",
        disclosures=(_disclosure(o, channel),),
        broadcast=send_model,
        answer=local_update,
        fold=distil,
        masked={"predictions": ArraySpec(shape, "float32", (high - low) / 2, bounded=True)}
        if channel == "masked"
        else {},
        sealed={"predictions": ArraySpec(shape, _CODES[o.logit_bits])}
        if channel == "sealed"
        else {},
    )
    return Method("feded", CITATION, (exchange,), first_model(task), privacy=_PRIVACY)
