"""What a coordinator alone reads of Lazy MIL's values when it sends models made for it: the triple
behind every name, whatever the names are. It is a limit of the method, not mended; so its disclosure
must say it, and this test shows that the sentence is needed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from methods import build
from methods.base import Heard, SiloView
from methods.common.training import parameters
from methods.lazymil import STEPS, Options, naming_of, score
from methods.tasks.distant import DistantTask
from models.pcnn import MAX_LENGTH
from tests.methods.naming import named
from tests.methods.plain import SECRET, resolved
from tests.methods.small_distant import TWELVE, twelve

ROUND = 3
Read = Callable[[dict[str, np.ndarray]], dict[bytes, float]]


def _blank(task: DistantTask) -> dict[str, np.ndarray]:
    return {k: np.zeros_like(v) for k, v in parameters(task.new_model(0)).items()}


def _softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits)
    return np.asarray(e / e.sum())


def _relations(task: DistantTask, read: Read) -> dict[bytes, int]:
    """A model of biases alone: a bag's value is its relation's."""
    biases = np.arange(len(task.labels), dtype=np.float32)
    p = _softmax(biases.astype(np.float64))
    said = read(_blank(task) | {"out.bias": biases})
    return {name: int(np.abs(p - value).argmin()) for name, value in said.items()}


def _words(task: DistantTask, read: Read, entity: str, of: dict[bytes, int]) -> dict[bytes, int]:
    """A filter that sees the entity's own word and nothing else: a bag's value is the word's
    number.
    """
    m = _blank(task)
    count, width = m["word.weight"].shape
    position = m["head_position.weight"].shape[1]
    m["word.weight"][1:, 0] = np.arange(1, count) / count
    m[f"{entity}_position.weight"][MAX_LENGTH, 0] = 1.0  # the distance to itself
    centre = width + 2 * position
    m["convolution.weight"][0, centre] = 1.0
    m["convolution.weight"][0, centre + width + (position if entity == "tail" else 0)] = 10.0
    m["convolution.bias"][0] = -10.0
    m["out.weight"][0, :: len(m["convolution.bias"])] = 4.0  # of NA, in all three pieces
    logits = np.zeros((count, len(task.labels)))
    logits[:, 0] = 4.0 * np.arange(count) / count
    p = np.stack([_softmax(row) for row in logits])
    return {name: int(np.abs(p[:, of[name]] - v).argmin()) for name, v in read(m).items()}


def test_made_models_read_relation_and_entities_of_every_bag() -> None:
    task, s = twelve(), resolved(silos=3)
    naming = naming_of(s, Options(warmup=0.0))
    silos = [np.arange(4 * k, 4 * k + 4) for k in range(3)]
    views = [SiloView(k, task, task.subset(rows), s, SECRET) for k, rows in enumerate(silos)]
    for view, rows in zip(named(naming, views, ROUND), silos):
        told = {"names/committee": view.memory["names/committee"]}

        def read(model: dict[str, np.ndarray], view=view, told=told) -> dict[bytes, float]:  # type: ignore[no-untyped-def]
            sent = score(view, Heard(ROUND, (0, 1, 2), model, told), naming).sealed
            return {n.tobytes(): v / STEPS for n, v in zip(sent["names"], sent["values"])}

        relation = _relations(task, read)
        head, tail = (_words(task, read, which, relation) for which in ("head", "tail"))
        found = {(head[n], task.labels[relation[n]], tail[n]) for n in relation}
        number = task.word_number
        assert found == {
            (number(h), r, number(t)) for _, _, h, t, r in (TWELVE[row] for row in rows)
        }


@pytest.mark.parametrize("name", ["values", "names"])
def test_the_disclosure_says_so(name: str) -> None:
    method = build("lazymil", twelve(), resolved(silos=3))
    (said,) = (d for d in method.disclosures if d.name == name)
    words = "models made for it reads" if name == "values" else "names by themselves do not tell"
    assert words in said.reveals
