"""Gradient inversion: which words does a silo have? From its update as the coordinator sees it, in
three ways.

A word vector moves only if some record of the silo has the word, so that the update of the
embedding table is a list of the silo's words (Melis et al. 2019; the first step of every text
inversion since). The attacker scores every word by how far its vector moved, beside what weight
decay alone would do, and is asked to tell words that only the victim has from words that only
others have: 1.0 is a full inversion, 0.5 a coin.

* **clear**: the victim's own update, which SECAGG=off would show;
* **masked**: the words that arrive under secure aggregation;
* **the sum**: what the coordinator has when the sum is opened.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from bench.audit.membership import auc
from bench.simulation.inprocess import InProcessCarrier
from coordinator.exchange import Call, call_ranges
from coordinator.runlog import RunLog
from crypto.numbers.encoding import FRAME_WORDS
from crypto.numbers.prg import Mask, add_masks
from methods.base import Answer, Arrays
from study.prepare import Study

__all__ = ["Inversion", "attack_update"]

_VICTIM = 0


@dataclass(frozen=True)
class Inversion:
    view: str
    auc: float
    words: int  #: how many only the victim has


def _table(model: nn.Module) -> str:
    """The parameter with the word vectors, if they are trained; empty: they are not."""
    tables = [
        (m.weight.numel(), name, m)
        for name, m in model.named_modules()
        if isinstance(m, nn.Embedding)
    ]
    _, name, largest = max(tables, key=lambda t: t[:2])
    return f"{name}.weight" if largest.weight.requires_grad else ""


def _words(task: Any, indices: np.ndarray) -> set[int]:
    data, found = task.subset(indices), set()
    for i in range(len(indices)):
        batch = task.batch(data, np.array([i]))
        if isinstance(batch, tuple):
            ids = batch[0].ids
        elif hasattr(batch, "words"):
            ids = batch.words
        else:
            ids = batch.ids if hasattr(batch, "ids") else batch.inputs.ids
        found |= set(ids.unique().tolist())
    return found


def _moved(update: np.ndarray, start: np.ndarray) -> np.ndarray:
    """How far every vector moved across its own direction: along it, weight decay moves all."""
    unit = start / np.maximum(np.linalg.norm(start, axis=1, keepdims=True), 1e-12)
    return np.asarray(
        np.linalg.norm(update - (update * unit).sum(axis=1, keepdims=True) * unit, axis=1)
    )


def _round(study: Study, folder: Path) -> tuple[Arrays, Arrays, Arrays, Call] | None:
    """The first round: the model before it, the victim's masked arrays, and their sum."""
    carrier = InProcessCarrier(study, RunLog(folder))
    state, cohort = study.method.init(0), tuple(range(study.settings.silos))
    start = state.model
    gate, seen = carrier._gates[_VICTIM], list[Answer]()
    answer = gate.answer

    def overheard(*given: Any) -> Answer:
        seen.append(answer(*given))
        return seen[-1]

    gate.answer = overheard  # type: ignore[method-assign,assignment]  # the one silo that is listened to
    for index, exchange in enumerate(study.method.exchanges):
        if exchange.skip(state, 0, cohort):
            continue
        ranges = call_ranges(study.settings, study.method, exchange, len(cohort))
        exact = study.settings.dp == "silo"
        broadcast = exchange.broadcast(state, 0, cohort)
        call = Call(
            0,
            index,
            exchange=exchange,
            broadcast=broadcast,
            cohort=cohort,
            ranges=ranges,
            lane_bits=study.settings.bits,
            exact=exact,
        )
        folded = carrier.perform(call)
        if any(name.startswith("update/") for name in exchange.masked):
            return start, seen[-1].masked, folded.total, call
        state = exchange.fold(state, folded)
    return None


def _as_it_arrives(call: Call, masked: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The victim's upload under a mask that the coordinator does not have, read as if it were
    none.
    """
    encoding = call.encoding()
    mask, words = Mask(os.urandom(16), 1), np.zeros(encoding.words, "<u8")
    for index, frame in enumerate(encoding.encode(list(masked.values()), b"audit")):
        add_masks(frame, [mask], index * FRAME_WORDS, 1)
        words[index * FRAME_WORDS : index * FRAME_WORDS + len(frame)] = frame
    return dict(call.total(encoding.decode(words, 1)))


def attack_update(study: Study) -> tuple[list[Inversion], str]:
    """What each view gives away; or none, and the sentence why."""
    table = _table(study.task.new_model(0))
    if not table:
        return (
            [],
            "No word vectors are trained, so that no update lists a silo's words; nothing else was inverted.",
        )
    with tempfile.TemporaryDirectory() as folder:
        found = _round(study, Path(folder))
    if found is None:
        return [], "No update of parameters leaves a silo in this method."
    start, own, total, call = found
    name = next(k for k in call.exchange.masked if k.startswith("update/") and k.endswith(table))
    before = start[next(k for k in start if k.endswith(table))]
    indices = study.partition.indices
    own_words = _words(study.task, indices[_VICTIM])
    others = set().union(*(_words(study.task, ix) for i, ix in enumerate(indices) if i != _VICTIM))
    mine = own_words - others  # what all have is no secret, and moves most
    rows = np.array(sorted(own_words ^ others))
    member = np.isin(rows, np.array(sorted(mine)))
    views = {
        "clear (SECAGG=off)": own[name],
        "masked, as it arrives": _as_it_arrives(call, own)[name],
        "the opened sum": total[name],
    }
    scores = {view: _moved(np.asarray(u, np.float64), before)[rows] for view, u in views.items()}
    return [Inversion(view, auc(s, member), len(mine)) for view, s in scores.items()], ""
