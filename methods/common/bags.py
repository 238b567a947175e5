"""What ONE, AVE, ATT and ATT_RA have in common: each silo forms bags of its own sentences and
denoises within them.

Everything but the bag is as in Lazy MIL (the paper's section 4.3: only the denoising module is
replaced): the same network, optimizer and schedule, and a mean in which every silo counts the same
(its equation 5).

With DP=record the record is the bag: a bag's loss is no sum over its sentences, so that it is a bag
that is sampled, has its gradient clipped, and hides (PRIVACY.md says what follows for one
sentence).
"""

from __future__ import annotations

import numpy as np

from methods.base import Arrays, Heard, Method, Privacy, RecordPrivacy, SiloView, Unit
from methods.common.bag_names import NAME_BYTES
from methods.common.contribution import STEPS
from methods.common.weighted import Aim, averaged
from methods.dp.coverage import TRAINED
from methods.dp.dpsgd import Records
from methods.tasks.distant import DistantTask
from methods.tasks.distant_bags import Rows

__all__ = ["BAGS", "build_bag_method", "rehearsed_bags"]

#: A record of DP=record is a bag of sentences.
BAGS = Unit("bag", lambda task, data: len(task.bags(data)))


def bag_by_bag(silo: SiloView[DistantTask, Rows], heard: Heard) -> Aim:
    """E epochs over the silo's bags, B bags to a step."""
    task, data = silo.task, silo.data
    bags = task.bags(data)
    return Aim(
        loss=task.bag_loss,
        batches=task.bag_batches,
        records=Records(len(bags), lambda chosen: task.bag_batch(data, bags, chosen)),
    )


def build_bag_method(name: str, citation: str, task: DistantTask) -> Method:
    """The bag rule itself is the task's, since testing uses it too; it is read from `BAG_RULE`."""
    privacy = Privacy(RecordPrivacy({"update": TRAINED}, unit=BAGS), silo=True)
    return averaged(name, citation, task, objective=bag_by_bag, privacy=privacy, of="a silo's bags")


def rehearsed_bags(silo: SiloView[DistantTask, Rows]) -> Arrays:
    """What planning counts of Lazy MIL's names and values: the silo's real bags, under their numbers in
    the corpus, with values drawn at random once.
    """
    bags, s = silo.task.bags(silo.data), silo.data.sentences
    rows = silo.data.indices[bags.first]
    ids = [s.head[rows], s.relation[rows], s.tail[rows], np.zeros(len(rows))]
    names = np.stack(ids, axis=1).astype(np.uint32).view(np.uint8).reshape(-1, NAME_BYTES)
    values = silo.rng(0, "rehearsal").integers(0, STEPS, len(rows), dtype=np.uint16)
    return {"names": names, "values": values}
