"""Lazy MIL: at the start of a round all silos choose together, for every fact, the one sentence to
believe.

Sui et al. 2021, "Distantly Supervised Relation Extraction in Federated Settings", Findings of
EMNLP. A bag is all sentences with the same (head, relation, tail), scattered over the silos. In the
first exchange each silo scores its part of every bag with the global model and sends the best value
(equation 2); the coordinator picks the best silo per bag (Algorithm 1). In the second each silo
trains on those of its own sentences that won (equation 3), and the models are averaged, each silo
counting the same (equation 5).

Where this file departs from the paper or its released code:

* Bags travel under names made by an oblivious function whose key some silos hold together
  (`methods.common.bag_names`), other names every round: the coordinator can compare the silos'
  values for a bag, and learns of the names nothing else, also with the help of as many silos as may
  side with it, beyond a number of guesses that the study declares (`queries`). The values are
  another matter: they are what the model that it sent says, and a model can be made to say which
  bag it is. The disclosure says so.
* No sentence number is sent. A silo remembers what each entry of its message stood for, and hears
  the positions of those that won; nothing about the others.
* A silo trains on its own winners only. The released code hands every silo the union of all
  winners, that is, other silos' text (docs/methods.md, "Lazy MIL").
* The first two fifths of the rounds are a **warm start** (`warmup`): silos train on all their
  sentences, and nothing is scored or sent in the first exchange. The paper selects from round 0 on,
  with a model that knows nothing; its winners are then drawn at random, and the choice confirms
  itself. `warmup=0` is the paper's form; docs/results/trials/lazymil.md has the figures.
* All silos hear one level. Nobody trains on more, and whoever has much less does not count as one
  behind whom others hide (`methods.common.contribution`). Where some win much more than others, they
  leave their least certain winners out.
* Values are probabilities in steps of 1/65535 (a half float's, near 1, are thirty times coarser).
  They are compared as rounded: highest value, then lowest silo, then lowest row.

With DP=record these would be exact releases; `methods.lazymil_private` is what runs then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from config.errors import UserError
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
    Release,
    SiloView,
    State,
)
from methods.common.bag_names import NAME_BYTES, Naming, names_of
from methods.common.bags import BAGS, rehearsed_bags
from methods.common.contribution import (
    FROM_RELEASED,
    STEPS,
    check_floor,
    contribution_disclosure,
    contributors_of,
    enough,
    level_of,
    quantise,
    weights,
    with_ties,
    within,
)
from methods.common.grouping import grouped
from methods.common.training import load, parameters, specs, trained
from methods.common.weighted import (
    first_model,
    uniform_mean,
    update_disclosure,
    updates,
)
from methods.dp.coverage import RELEASED, TRAINED
from methods.tasks.distant import DistantTask
from methods.tasks.distant_bags import Rows

__all__ = [
    "CITATION",
    "TASKS",
    "Options",
    "best_of_bags",
    "build",
    "naming_of",
    "quantise",
    "winners",
]

CITATION = "Sui et al. 2021, Distantly Supervised Relation Extraction in Federated Settings, Findings of EMNLP"
TASKS = ("distant",)

Silo = SiloView[DistantTask, Rows]


@dataclass(frozen=True)
class Options:
    #: share of the rounds, from the start, that train on all sentences; 0 as in the paper
    warmup: float = 0.4
    #: share of its own bags on which a silo must train for others to hide behind it
    floor: float = 0.25
    buckets: int = 4096  #: DP=record: into how many buckets bags are hashed
    scorings: int = 1  #: DP=record: in how many rounds noisy values are released
    #: how many bags a silo may have named; so many guesses a silo that helps the coordinator can test
    queries: int = 65536
    bags: int = 1_000_000  #: the most bags that a silo may have; the coordinator takes no more


_SCORES = Disclosure(
    name="values",
    channel="sealed",
    shape="one 16-bit number per bag of the silo: the best probability p(r|s) in the bag",
    reveals="how sure the model that the coordinator sent is of the silo's best sentence for each bag; not the "
    "sentence, nor its number. A coordinator that sends models made for it reads from them the relation of each "
    "bag, and words of its sentences. All silos hear one number made of them: how much the silo with most trains on",
    privacy="outside the privacy budget: adding one sentence can displace another's value and win",
)


def _names(naming: Naming) -> Disclosure:
    return Disclosure(
        name="names",
        channel="sealed",
        shape="16 bytes per bag of the silo: a name of (head, relation, tail), fresh every round; at most `bags` names",
        reveals="how many bags the silo has, and which silos have a bag in common; the names by themselves do not "
        f"tell which entities or relation it is, {naming.unless}",
        privacy="outside the privacy budget: the number of bags is exact",
    )


# Algorithm 1: which sentence of every bag is believed


def best_of_bags(values: np.ndarray, rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Equation 2: per bag, the row of highest value, the first of them when several are equal."""
    if len(starts) < 2:
        return np.zeros(0, dtype=np.int64)
    bag = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((rows, -values[rows].astype(np.int64), bag))
    return rows[order[starts[:-1]]]


def bags_of(silo: Silo) -> list[bytes]:
    """What every silo calls its bags, in the order of this silo's own."""
    return silo.task.triples(silo.data, silo.task.bags(silo.data).first)


def naming_of(settings: Settings, options: Options) -> Naming:
    first = int(options.warmup * settings.rounds)
    return Naming(settings.silos, min(options.queries, options.bags), first, bags_of)


def score(silo: Silo, heard: Heard, naming: Naming) -> Answer:
    """At the silo: the value of every bag it has, in the order of the names, which tells nothing."""
    task, data = silo.task, silo.data
    model = load(task.new_model(0), heard.common)
    values = quantise(task.label_probabilities(model, data))
    bags = task.bags(data)
    best = best_of_bags(values, bags.rows, bags.starts)
    names, memory = names_of(naming, silo, heard)
    order = np.lexsort(names.T[::-1])
    return Answer(
        sealed={"names": names[order], "values": values[best][order]},
        carry={"model": heard.common, "best": best[order], "values": values[best][order]},
        memory=memory,
        notes={
            "bags": float(len(best)),
            "mean_best": float(values[best].mean() / STEPS) if len(best) else 0.0,
        },
    )


def winners(scored: Mapping[int, Arrays]) -> dict[int, np.ndarray]:
    """Algorithm 1, the server's half: per silo, the positions of its entries that are the best of
    their bag.

    Ties go to the lower silo index. A message whose two arrays differ in length is taken as empty.
    """
    silos = sorted(s for s, a in scored.items() if len(a["names"]) == len(a["values"]) > 0)
    won = {s: np.zeros(0, dtype=np.uint32) for s in scored}
    if not silos:
        return won
    names = np.concatenate([np.ascontiguousarray(scored[s]["names"]) for s in silos]).view(">u8")
    counts = [len(scored[s]["values"]) for s in silos]
    silo = np.repeat(np.arange(len(silos)), counts)
    position = np.concatenate([np.arange(n) for n in counts])
    # Highest value, then lowest silo, then lowest position, in one number of 16, 16 and 32 bits.
    rank = np.concatenate([scored[s]["values"] for s in silos]).astype(np.uint64) << np.uint64(48)
    rank |= (len(silos) - 1 - silo).astype(np.uint64) << np.uint64(32)
    rank |= (2**32 - 1 - position).astype(np.uint64)
    order, starts = grouped(names.astype(np.uint64))
    best = np.maximum.reduceat(rank[order], starts)
    chosen = order[rank[order] == np.repeat(best, np.diff([*starts, len(order)]))]
    for i, s in enumerate(silos):
        won[s] = np.sort(position[chosen[silo[chosen] == i]]).astype(np.uint32)
    return won


def keep_winners(state: State, folded: Folded, naming: Naming) -> State:
    """After scoring, at the coordinator: V, each silo's own part of it."""
    notes = naming.relay.replied(state, folded.survivors)
    for s, won in winners(folded.sealed).items():
        values = folded.sealed[s]["values"]
        notes[f"winners/{s}"], notes[f"weights/{s}"] = won, weights(values[won])
        notes[f"bags/{s}"] = np.array([len(values)])
    return State(state.model, notes)


# Algorithm 2: training on those. Its mean is `uniform_mean` (equation 5).


def send_winners(
    state: State, cohort: tuple[int, ...], settings: Settings, floor: float
) -> Broadcast:
    """V is not broadcast: each silo hears of its own winners only. All train within one level."""
    notes, nobody = state.memory, np.zeros(0, np.uint32)
    won = {s: notes.get(f"winners/{s}", nobody) for s in cohort}
    given = {s: notes.get(f"weights/{s}", nobody) for s in cohort}
    owned = {s: int(notes.get(f"bags/{s}", [0])[0]) for s in cohort}
    level = level_of(given, owned, contributors_of(settings, len(cohort)), floor)
    private = {s: {"winners": won[s][with_ties(given[s], level)]} for s in cohort}
    return Broadcast({"level": np.array([level])}, private)


def train_on_winners(silo: Silo, heard: Heard, floor: float = Options.floor) -> Answer:
    """Local_Training over D*_i, the silo's own winning rows; without any, an update of zeros."""
    best, level = silo.carry["best"], int(heard.common["level"][0])
    # Each once: a position said twice must not count twice.
    at = np.unique(heard.private.get("winners", np.zeros(0, np.uint32))).astype(np.int64)
    # In the silo's own order: the names' order hangs on the silos' secret, and the model must not.
    at = at[np.argsort(best[at])]
    given = weights(silo.carry["values"][at])
    if len(with_ties(given, level)) < len(at):
        raise Contradiction("it is to train on more than all silos are told that anyone does")
    fits = within(given, level)
    mass, data = int(given[fits].sum()), silo.task.subset(silo.data.indices[best[at[fits]]])
    contributes = enough(len(fits), len(best), floor) and enough(mass, level, floor)
    return _local_training(silo, heard.round, data, contributes)


def _local_training(silo: Silo, round: int, data: Rows, contributes: bool) -> Answer:
    """E epochs from the model that the first exchange brought (equation 3)."""
    start: Arrays = silo.carry["model"]
    model, notes = trained(silo, start, round, data)
    return Answer(masked=updates(model, start), notes=notes, contributes=contributes)


# The warm start


def score_nothing(silo: Silo, heard: Heard) -> Answer:
    """Scoring in a warm-up round: the model is kept for training, no bag is named or scored."""
    nothing: dict[str, np.ndarray] = {
        "names": np.zeros((0, NAME_BYTES), np.uint8),
        "values": np.zeros(0, np.uint16),
    }
    return Answer(sealed=nothing, carry={"model": heard.common})


def train_on_all(silo: Silo, heard: Heard) -> Answer:
    """Training in a warm-up round: over D_i, whatever the coordinator says has won."""
    return _local_training(silo, heard.round, silo.data, len(silo.data.indices) > 0)


def privacy(options: Options) -> Privacy:
    """A record is a bag. Values are noised and released `scorings` times; the update follows from
    DP-SGD's model.

    Warm start and selection sample at two rates, and each plan is made as if all rounds had its
    own. So training's noise is solved for a little less than all of epsilon.
    """
    return Privacy(
        RecordPrivacy(
            {"values": RELEASED, "update": TRAINED, "contributes": FROM_RELEASED},
            unit=BAGS,
            release=Release("bucket values", often=options.scorings),
            spent=0.98,
        ),
        silo=True,
    )


def build(task: DistantTask, settings: Settings, options: Options) -> Method:
    o = options
    if not 0.0 <= o.warmup <= 1.0:
        raise UserError(
            f'Option "warmup" of lazymil is a share of the rounds, from 0 to 1, not {o.warmup:g}.'
        )
    warm_rounds = int(o.warmup * settings.rounds)
    if min(o.buckets, o.scorings, o.bags, o.queries) < 1:
        raise UserError(
            'Options "buckets", "scorings", "bags" and "queries" of lazymil must be 1 or more.'
        )
    check_floor("lazymil", o.floor)
    if settings.dp == "record":
        from methods.lazymil_private import Plan, build_private

        plan = Plan(settings, warm_rounds, o.buckets, o.scorings, o.floor)
        return build_private(task, CITATION, plan, privacy(o))

    naming = naming_of(settings, o)
    select = Exchange(
        name="score",
        disclosures=(_names(naming), _SCORES),
        broadcast=lambda state, round, cohort: Broadcast(
            state.model, naming.relay.replies(state, cohort)
        ),
        answer=lambda silo, heard: (
            score_nothing(silo, heard) if heard.round < warm_rounds else score(silo, heard, naming)
        ),
        fold=lambda state, folded: keep_winners(state, folded, naming),
        sealed={
            "names": ArraySpec((None, NAME_BYTES), "uint8", most=o.bags),
            "values": ArraySpec((None,), "uint16", most=o.bags),
        },
        rehearsed=lambda silo, heard: (
            score_nothing(silo, heard).sealed if heard.round < warm_rounds else rehearsed_bags(silo)
        ),
    )
    learn = Exchange(
        name="train",
        disclosures=(
            update_disclosure("the sentences chosen this round"),
            contribution_disclosure(
                f"anything (warm start), or on at least {o.floor:.0%} of its bags, and on at least {o.floor:.0%} of "
                "what any silo trains on, each bag counted by how unsure the model is of it"
            ),
        ),
        broadcast=lambda state, round, cohort: send_winners(state, cohort, settings, o.floor),
        answer=lambda silo, heard: (
            train_on_all(silo, heard)
            if heard.round < warm_rounds
            else train_on_winners(silo, heard, o.floor)
        ),
        fold=uniform_mean,  # equation 5: every survivor counts the same, with winners or without
        masked=specs(parameters(task.new_model(0))),
        contributors=True,  # winners are told to each silo alone
    )
    exchanges = (*naming.exchanges(), select, learn)
    return Method("lazymil", CITATION, exchanges, first_model(task), privacy=privacy(o))
