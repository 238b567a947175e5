"""The search that every row gets: the same number of trials, from a space that is stated, judged on
dev alone.

What all rows search (a learning rate, an optimizer) is drawn once and is the same in every row:
trial 3 has one rate for all of them, so that luck in the draw favours nobody. A row's own knob is
drawn beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bench.papers.jobs import Done, Job, merged
from bench.studies.base import Row, Span, Spec, Words

__all__ = ["TUNING_SEED", "best_trial", "drawn", "trial_jobs"]

#: of partition and initialisation in trials; the reported seeds count from 0 and never reach it
TUNING_SEED = 1000


def drawn(space: Sequence[Mapping[str, Span]], trials: int, salt: str) -> list[Words]:
    """`trials` points; alternatives take turns. The first of each range is its middle, so that even
    one trial is a sensible one.
    """
    rng = np.random.default_rng([TUNING_SEED, *salt.encode()])
    return [
        tuple(
            f"{name if name.endswith('=') else name + '='}{_value(span, k < len(space), rng)}"
            for name, span in space[k % len(space)].items()
        )
        for k in range(trials)
    ]


def _value(span: Span, middle: bool, rng: np.random.Generator) -> str:
    if span.word:
        return span.word
    at = 0.5 if middle else float(rng.random())
    low, high = math.log(span.low), math.log(span.high)
    return f"{math.exp(low + at * (high - low)):.3g}"


def trial_jobs(spec: Spec, name: str, row: Row, common: Words, trials: int) -> Iterator[Job]:
    """The trials of one row in one column, whose settings are in `common`."""
    shared = drawn(spec.space, trials, "all")
    own = drawn((row.own,), trials, name)
    for k, (a, b) in enumerate(zip(shared, own, strict=True)):
        words = merged(common, row.words, a, b, (f"PARTITION_SEED={TUNING_SEED}",))
        yield Job(name, f"trial {k + 1}", TUNING_SEED, words)


def best_trial(jobs: Sequence[Job], done: Mapping[str, Done]) -> tuple[int, Done]:
    """By the dev metric of the round that the run itself chose on dev; the first of equals."""
    values = [float(done[job.key].summary["dev_value"]) for job in jobs]
    at = max(range(len(values)), key=lambda i: (values[i], -i))
    return at, done[jobs[at].key]
