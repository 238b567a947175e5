"""Lazy MIL as its released code runs (a reference that breaks privacy): every silo trains on the
union of all winners.

The code that Sui et al. 2021 released builds the silos' lists by repeating one list, so that each
active silo trains on every winning sentence, whosever it is. That is other silos' text. This file
shows what the paper's trend comes from, and nothing else: it runs in a simulation in one process,
where all sentences are in one place anyway, and refuses to run anywhere else.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from config.errors import UserError
from config.settings import Settings
from methods import lazymil
from methods.base import (
    Answer,
    ArraySpec,
    Broadcast,
    Disclosure,
    Exchange,
    Folded,
    Heard,
    Method,
    SiloView,
    State,
)
from methods.common.bag_names import NAME_BYTES
from methods.common.contribution import quantise
from methods.common.training import load, parameters, specs, trained
from methods.common.weighted import first_model, uniform_mean, update_disclosure, updates
from methods.tasks.distant import DistantTask
from methods.tasks.distant_bags import Rows

__all__ = ["CITATION", "REFERENCE", "TASKS", "Options", "build"]

CITATION = "a reference of this project: the released code of Sui et al. 2021 (Lazy MIL)"
TASKS = ("distant",)
REFERENCE = "A reference that breaks privacy: every silo trained on other silos' sentences."
Options = lazymil.Options

_BAGS = Disclosure(
    name="bags",
    channel="sealed",
    shape="per bag: a hash of (head, relation, tail), the best probability, and the sentence",
    reveals="which bags the silo has, and which sentence of each is shown to all other silos; for a simulation only",
    privacy="not protected: this is a yardstick, not a federation",
)


def score(silo: SiloView[DistantTask, Rows], heard: Heard) -> Answer:
    """Equation 2 at every silo; names are plain hashes, and sentences are named by their rows."""
    task, data = silo.task, silo.data
    values = quantise(task.label_probabilities(load(task.new_model(0), heard.common), data))
    bags = task.bags(data)
    best = lazymil.best_of_bags(values, bags.rows, bags.starts)
    triples = lazymil.bags_of(silo)
    hashes = [hashlib.blake2b(t, digest_size=NAME_BYTES).digest() for t in triples]
    names = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, NAME_BYTES)
    return Answer(sealed=_said(names, values[best], data.indices[best]), carry=_kept(heard))


def _said(names: np.ndarray, values: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    return {"bags/names": names, "bags/values": values, "bags/rows": rows}


def _blank(bags: int) -> dict[str, np.ndarray]:
    names = np.zeros((bags, NAME_BYTES), np.uint8)
    return _said(names, np.zeros(bags, np.uint16), np.zeros(bags, np.int64))


def _kept(heard: Heard) -> dict[str, Any]:
    return {"model": heard.common}


def build(task: DistantTask, settings: Settings, options: lazymil.Options) -> Method:
    if settings.runner != "inprocess":
        raise UserError(
            "The union of winners hands silos' sentences to each other, as the released code of Lazy MIL does: it "
            "breaks privacy, and runs in a simulation with RUNNER=inprocess and nowhere else."
        )
    if settings.dp != "off":
        raise UserError("The union of winners breaks privacy: no budget covers it; leave DP out.")
    warm_rounds = int(options.warmup * settings.rounds)

    def answer(silo: SiloView[DistantTask, Rows], heard: Heard) -> Answer:
        if heard.round >= warm_rounds:
            return score(silo, heard)
        return Answer(sealed=_blank(0), carry=_kept(heard))

    def keep_union(state: State, folded: Folded) -> State:
        said = {
            s: {k.removeprefix("bags/"): v for k, v in arrays.items()}
            for s, arrays in folded.sealed.items()
        }
        rows = [said[s]["rows"][at] for s, at in lazymil.winners(said).items()]
        return State(state.model, {"union": np.sort(np.concatenate(rows))})

    def tell(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast({"union": state.memory["union"]})

    def learn(silo: SiloView[DistantTask, Rows], heard: Heard) -> Answer:
        warm = heard.round < warm_rounds
        data = silo.data if warm else task.subset(heard.common["union"])
        model, notes = trained(silo, silo.carry["model"], heard.round, data)
        return Answer(masked=updates(model, silo.carry["model"]), notes=notes)

    first = Exchange(
        name="score",
        disclosures=(_BAGS,),
        broadcast=lambda state, round, cohort: Broadcast(state.model),
        answer=answer,
        fold=keep_union,
        sealed={
            "bags/names": ArraySpec((None, NAME_BYTES), "uint8", most=options.bags),
            "bags/values": ArraySpec((None,), "uint16", most=options.bags),
            "bags/rows": ArraySpec((None,), "int64", most=options.bags),
        },
        rehearsed=lambda silo, heard: _blank(
            0 if heard.round < warm_rounds else len(task.bags(silo.data))
        ),
    )
    second = Exchange(
        name="train",
        disclosures=(update_disclosure("all silos' winning sentences"),),
        broadcast=tell,
        answer=learn,
        fold=uniform_mean,
        masked=specs(parameters(task.new_model(0))),
    )
    return Method("lazymil_union", CITATION, (first, second), first_model(task))
