"""`sottovoce evaluate MODEL CORPUS`: a run's model on a corpus, also one that it was not trained
on.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from config.errors import UserError
from config.load import load, with_task_defaults
from extract.pairs import model_folder
from methods import adjusted, build
from methods.common.training import load as load_weights
from methods.tasks.base import Evaluation, Split, Task
from methods.tasks.distant import DistantTask
from methods.tasks.document import DocumentTask
from methods.tasks.load import load_task
from models.device import use_device
from models.saved import read_weights

__all__ = ["evaluate_model", "run_evaluate"]


def run_evaluate(
    model: Path, corpus: str, split: str, *, as_json: bool, device: str, console: Console
) -> int:
    if split not in ("dev", "test"):
        raise UserError(f'--split must be dev or test, not "{split}".')
    use_device(device)
    task, result = evaluate_model(model, corpus, split)  # type: ignore[arg-type]
    if as_json:
        content = {
            "model": str(model),
            "corpus": task.corpus_name,
            "corpus_sha256": task.corpus_hash,
            "split": split,
            "metric": task.metric,
            "value": result.value,
            "figures": dict(result.figures),
            "per_class": dict(result.per_class),
            "warning": task.warning("dev" if split == "dev" else "test"),
        }
        print(json.dumps(content, ensure_ascii=False))
        return 0
    table = Table("", f"{split} split of {task.corpus_name}")
    table.add_row(task.metric, f"{result.value:.4f}", style="bold")
    for name, value in ((k, v) for k, v in result.figures.items() if k != task.metric):
        table.add_row(name, f"{value:.4f}")
    table.add_section()
    for name, value in result.per_class.items():
        table.add_row(name, f"{value:.4f}")
    console.print(table)
    if warned := task.warning("dev" if split == "dev" else "test"):
        console.print(f"warning: {warned}", style="bold", highlight=False)
    if task.corpus_note:
        console.print(task.corpus_note, style="dim", highlight=False)
    return 0


def evaluate_model(path: Path, corpus: str, split: Split) -> tuple[Task, Evaluation]:
    """With the settings of the run that the model is from, its corpus excepted."""
    folder, about = model_folder(path)
    config = folder.parent / "config.toml"
    if not config.is_file():
        raise UserError(
            f'"{folder}" does not stand in a run folder: evaluate needs the config.toml beside it.'
        )
    torch.set_num_threads(1)
    settings = adjusted(load(config, {}))
    settings = replace(settings, corpus=corpus or settings.corpus)
    task = load_task(settings)
    task.compute_in(settings.precision)
    _same_labels(task, about.get("relations") or about.get("types"), folder)
    if isinstance(task, DistantTask) and (folder / "vocabulary.txt").is_file():
        task.use_vocabulary(tuple((folder / "vocabulary.txt").read_text("utf-8").split("\n")[2:]))
    method = build(
        settings.method,
        task,
        with_task_defaults(settings, task.name, task.natural_silos(), task.part),
    )
    weights = read_weights(folder)
    if method.evaluate is not None:
        return task, method.evaluate(weights, split)
    if settings.public:  # what lies below the trained part is not the checkpoint's
        task.start_from(weights)
    network = task.new_model(0)
    try:
        load_weights(network, weights)
    except (KeyError, RuntimeError):
        raise UserError(f'The weights in "{folder}" do not fit the network of its run.') from None
    network.eval()
    with torch.no_grad():
        return task, task.evaluate(network, split)


def _same_labels(task: Task, trained: list[str] | None, folder: Path) -> None:
    # Of document pairs, "no relation" is a label to partition by, and no class of the model.
    labels = task.relations if isinstance(task, DocumentTask) else task.labels
    if trained is None or list(trained) == list(labels):
        return
    missing, new = sorted(set(trained) - set(labels)), sorted(set(labels) - set(trained))
    how = "; ".join(
        f"{what} {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
        for what, names in (("the corpus lacks", missing), ("the model does not know", new))
        if names
    )
    raise UserError(
        f'The model in "{folder}" and the corpus "{task.corpus_name}" do not have the same classes: '
        f"{how or 'they come in another order'}."
    )
