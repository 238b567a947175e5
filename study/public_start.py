"""PUBLIC: the coordinator trains on public text before the first round.

All parameters are trained, without noise and at no privacy cost: no silo has a part in it. The
text is a folder that the coordinator has, a built-in corpus (for a trial), or the public set of the
study's own corpus. What came of it is kept in the run's folder, so that a run that is gone on with
starts from the same numbers. How silos get what they do not train: `methods.common.public_start`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from config.errors import UserError
from config.load import with_task_defaults
from config.settings import FOLDER, FULL_SIZE, OWN, TASK_DEFAULTS, Settings
from corpora.holding import Holding
from methods import paper_settings
from methods.base import derived_seed
from methods.common.arrays import save_arrays
from methods.common.steps import Steps
from methods.tasks.base import Task
from methods.tasks.load import is_built_in, load_corpus, task_name
from methods.tasks.sentence import SentenceTask
from models.device import may_accelerate, there
from study.apart import apart

__all__ = ["made_public_start", "public_words", "start_publicly"]

_FILE = "public.safetensors"


def start_publicly(run: Path, settings: Settings, task: Task) -> None:
    """The task's models begin with what public text gave, if the study has any."""
    if settings.public:
        task.start_from(made_public_start(run, settings, task))


def made_public_start(run: Path, settings: Settings, task: Task) -> Mapping[str, np.ndarray]:
    """The trained parameters: from the run's folder, or trained now and kept there."""
    path = run / _FILE
    if not path.is_file():
        if may_accelerate(settings.device) and torch.get_default_device().type == "cpu":
            # silos, or the process that scores, are forked from this one
            apart("training on public text", lambda: _made(path, settings, task), settings.device)
        else:
            _made(path, settings, task)
    return load_file(path)


def _made(path: Path, settings: Settings, task: Task) -> dict[str, str]:
    training, (sibling, data) = _training(settings, task), _public(settings, task)
    kept = _kept(training, sibling)
    if kept is None:
        save_arrays(path, _trained(training, sibling, data))
    else:
        with _alone(kept):  # runs that want the same wait for the first of them
            if not kept.is_file():
                new = kept.with_suffix(".new")
                save_arrays(new, _trained(training, sibling, data))
                new.replace(kept)
        save_arrays(path, load_file(kept))
    return {}


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


#: Settings that public training does not read: how a run is carried out, and what silos do in it.
_ELSEWHERE = (
    "out",
    "runner",
    "features",
    "ledger",
    "slots",
    "port",
    "fraction",
    "clip",
    "physical",
)


def _kept(training: Settings, sibling: Task) -> Path | None:
    """Where runs of a simulation that share FEATURES keep what they would all train alike: under the
    hash of everything that decides it.
    """
    if not training.features:
        return None
    said = {k: v for k, v in asdict(training).items() if k not in _ELSEWHERE}
    content = [
        said,
        sibling.corpus_hash,
        sibling.labels,
        sibling.network_words,
        sibling.agreement(),
    ]
    text = json.dumps(content, sort_keys=True, default=str)
    return (
        Path(training.features) / f"public-{hashlib.sha256(text.encode()).hexdigest()}.safetensors"
    )


def public_words(settings: Settings, task: Task) -> str:
    """What is trained on before the first round, for the run's first lines."""
    s, (sibling, data) = _training(settings, task), _public(settings, task)
    where = "the corpus's public set" if settings.public == OWN else f'"{sibling.corpus_name}"'
    passes = f"{s.epochs} pass{'es' * (s.epochs > 1)}"
    size = f"{sibling.size(data):,} {task.record_unit}s"
    return f"public text: {size} of {where}, {passes} before the first round"


def _public(settings: Settings, task: Task) -> tuple[Task, Any]:
    """The study's network, all of it trained, and the public text."""
    if settings.public == OWN:
        return _own(task)
    if settings.public == FOLDER:
        raise UserError(
            "This study starts from public text that the coordinator has: name its folder with --public."
        )
    spec = settings.public
    if not is_built_in(spec) and _same_place(spec, settings.corpus):
        raise UserError(
            f'PUBLIC names the folder of CORPUS, "{spec}": what silos hold is not public. Name another one.'
        )
    there = replace(settings, corpus=spec, seed=derived_seed(settings.seed, "public") % (1 << 31))
    try:
        name = task_name(there)
    except UserError as e:
        raise UserError(f"PUBLIC: {e}") from None
    if name != task.name:
        raise UserError(
            f'PUBLIC="{spec}" is text for the task {name}, and this study is of the task {task.name}.'
        )
    built_in = is_built_in(spec)
    try:
        corpus = load_corpus(there, task.name, _knobs(task), None if built_in else _holding(task))
    except UserError as e:
        raise UserError(f"PUBLIC: {e}") from None
    made = task.sibling(corpus)
    if made.labels != task.labels:
        odd = sorted(set(made.labels) ^ set(task.labels))
        raise UserError(f'PUBLIC="{spec}" has other classes than the study: {", ".join(odd[:6])}.')
    return _some(made, made.subset(np.arange(made.train_size())), f'PUBLIC="{spec}"')


def _own(task: Task) -> tuple[Task, Any]:
    if not isinstance(task, SentenceTask):
        raise UserError(
            f"PUBLIC=own is for sentence relations: a corpus of the task {task.name} has no public set of "
            "its own; name a folder."
        )
    made = task.sibling(task.corpus)
    return _some(made, made.public, "PUBLIC=own: the corpus's public set")


def _some(task: Task, data: Any, what: str) -> tuple[Task, Any]:
    if not task.size(data):
        raise UserError(f"{what} has no {task.record_unit} to train on.")
    return task, data


def _same_place(public: str, corpus: str) -> bool:
    places = [Path(p.rpartition(":")[2]).resolve() for p in (public, corpus)]
    return bool(corpus) and places[0] == places[1]


def _knobs(task: Any) -> Any:
    """Those of the study's task; of public text all is trained on."""
    return replace(task.knobs, public=0.0) if hasattr(task.knobs, "public") else task.knobs


def _holding(task: Any) -> Holding:
    """A folder of training text under the names that the study has."""
    none = task.labels[task.none] if getattr(task, "none", -1) >= 0 else ""
    classes = task.relations if task.name == "document" else task.labels
    return Holding(task.name, tuple(classes), "train", none)


def _training(settings: Settings, task: Task) -> Settings:
    """As the task trains without a budget; the method's own settings are for its rounds."""
    keys = [k for k in TASK_DEFAULTS[task.name] if k != "partition"]
    open_ = replace(
        settings,
        dp="off",
        epsilon=0.0,
        noise=0.0,
        train="all",
        **{k: getattr(Settings(), k) for k in keys},
    )
    full = task.encoder_size >= FULL_SIZE
    paper = paper_settings(settings.method, task.name, settings.options) if full else None
    s = with_task_defaults(open_, task.name, settings.silos, paper=paper)
    return replace(s, rounds=1, epochs=settings.public_epochs or s.rounds * s.epochs)


def _trained(s: Settings, task: Task, data: Any) -> dict[str, np.ndarray]:
    model = task.new_model(derived_seed(s.seed, "init"))
    steps = Steps(s, model, 0, s.epochs * math.ceil(task.size(data) / s.batch))
    rng = np.random.default_rng(derived_seed(s.seed, "public start"))
    torch.manual_seed(derived_seed(s.seed, "public start dropout"))
    model.train()
    for _ in range(s.epochs):
        for batch in task.batches(data, s.batch, rng):
            steps.clear()
            task.loss(model, batch).backward()
            steps.step()
    task.settle(model, data)
    return {name: there(p).copy() for name, p in model.named_parameters()}
