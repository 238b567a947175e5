"""What a user is told before a run, of the data and of the training: the same lines in a
simulation, by doctor, by `sottovoce corpus`, on the page that a silo's operator agrees to, and in
the report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from config.load import with_task_defaults
from config.settings import FULL_SIZE, TASK_DEFAULTS, Settings
from methods import paper_settings
from methods.tasks.base import Split, Task

__all__ = [
    "computing_line",
    "data_lines",
    "file_line",
    "full_size_line",
    "training_line",
    "warning_lines",
]


def file_line(task: Task) -> str:
    """Which file became what; empty for a built-in corpus."""
    if not task.reading.files:
        return ""
    return f"{task.corpus_name} read as {task.reading.format}: {task.reading.said}"


def warning_lines(task: Task) -> list[str]:
    # a silo's folder has no held-out split, and nothing is scored there
    there = [split for split in get_args(Split) if any(task.held_out(split).values())]
    return [f"warning: {text}" for split in there if (text := task.warning(split))]


def data_lines(task: Task) -> list[str]:
    """Files, then everything that was repaired, cut, merged, skipped or set aside."""
    notes = [n.sentence() for n in task.notes()]
    return [line for line in (file_line(task), *notes, *warning_lines(task)) if line]


_FALLS = {"constant": "", "linear": ", then falling linearly", "cosine": ", then falling by cosine"}


def computing_line(s: Settings, task: Task) -> str:
    """In which numbers what computes."""
    if task.bottom is None:
        return f"the {'encoder' if task.can_halve else 'network'} computes in {s.precision}"
    frozen = "what is frozen of the encoder is computed in float32 and kept in bfloat16"
    trained = f"its trained layers compute in {s.precision}"
    public = "on public text all of it computes in bfloat16"
    half = s.precision == "bfloat16"
    parts = [frozen] + [trained] * (s.train != "head") + [public] * (half and bool(s.public))
    return ", ".join(parts)


def training_line(s: Settings, task: Task) -> str:
    """How parameters are moved, all of it."""
    rate = f"learning rate {s.lr:g}" + f", less {100 * s.decay:g} % a round" * (s.decay > 0)
    rise = f", rising over the first {100 * s.warmup:g} % of the steps" * (s.warmup > 0)
    falls = f"{_FALLS[s.schedule]} to zero" * (s.schedule != "constant")
    falls = falls if rise else falls.replace(", then falling", ", falling")
    name = {"momentum": "sgd with momentum"}.get(s.optimizer, s.optimizer)
    parts = [
        f"{name}, {rate}{rise}{falls}",
        f"weight decay {s.weight_decay:g}",
        *([f"gradients cut to norm {s.clip_norm:g}"] if s.clip_norm else []),
        "a silo keeps its optimizer's state"
        if s.keep_optimizer
        else "a fresh optimizer each round",
        f"batches of {s.batch}, {s.epochs} epoch{'s' * (s.epochs > 1)} a round",
        *([computing] if "bfloat16" in (computing := computing_line(s, task)) else []),
        *([f"scored every {s.evaluate} rounds"] if s.evaluate > 1 else []),
    ]
    return "; ".join(parts)


def full_size_line(s: Settings, task: Task) -> str:
    """Which of these are what they are because the encoder is full-size; empty: none."""
    if task.encoder_size < FULL_SIZE:
        return ""
    keys = [k for k in TASK_DEFAULTS[task.name] if k != "partition"]
    open_ = replace(s, **{k: getattr(Settings(), k) for k in keys})
    paper = paper_settings(s.method, task.name, s.options)
    small = with_task_defaults(open_, task.name, s.silos, task.part)
    large = with_task_defaults(open_, task.name, s.silos, task.part, paper)
    taken = [k for k in keys if getattr(s, k) == getattr(large, k) != getattr(small, k)]
    whose = "its method's paper" if paper and s.dp != "record" else "a full-size encoder"
    found = f"the encoder has {task.encoder_size:,} parameters and is full-size"
    if not taken:
        return f"{found}: nothing was left to its defaults"
    return f"{found}: {', '.join(k.upper() for k in taken)} as by default for {whose}"
