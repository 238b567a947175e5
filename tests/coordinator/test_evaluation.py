"""Scoring beside the rounds: the same figures as within them, each once, also after a crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.simulation.inprocess import InProcessCarrier
from config.errors import UserError
from coordinator import checkpoint
from coordinator.evaluation import Apart, Evaluator, Inline, Job, Result, scorer
from coordinator.exchange import Interrupted, RoundFailed
from coordinator.loop import run_study
from coordinator.runlog import RunLog
from coordinator.scores import first_unscored
from methods.common.arrays import model_sha256
from methods.tasks.base import Evaluation
from methods.tasks.batching import for_each, use_threads
from study.prepare import Study
from tests.conftest import alive, lines, summary, wait_for
from tests.methods import small_document, small_ner, small_sentence

SILOS = [range(15), range(15, 30), range(30, 45)]
TIMES = ("seconds", "phases", "silo_seconds")


def _study(**settings: Any) -> Study:
    return small_sentence.tiny_study("fedavg", SILOS, rounds=4, batch=8, **settings)


def _run(folder: Path, study: Study, evaluator: Evaluator | None) -> None:
    folder.mkdir(exist_ok=True)
    runlog, kept = RunLog(folder), checkpoint.read(folder / "checkpoint")
    if kept is not None:
        runlog.truncate_rounds(first_unscored(folder, kept))
    carrier = InProcessCarrier(study, runlog)
    try:
        run_study(
            study.method,
            study.task,
            settings=study.settings,
            carrier=carrier,
            runlog=runlog,
            evaluator=evaluator,
            resume=kept,
        )
    finally:
        carrier.close()


def _rounds(folder: Path) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in line.items() if k not in TIMES} for line in lines(folder / "rounds.jsonl")
    ]


class _Counted:
    """Scores as the child does, and notes what it was asked for; stopped after so many results."""

    room = 3

    def __init__(self, study: Study, stop_after: int = 1 << 30) -> None:
        self._inner = Inline(scorer(study.method, study.task, study.settings.seed))
        self._left, self._jobs = stop_after, list[Job]()
        self.watcher: Callable[[], None] = lambda: None
        self.asked: list[tuple[str, str]] = []

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def results(self, leave: int) -> Iterator[Result]:
        while len(self._jobs) > leave:
            if self._left == 0:
                raise Interrupted
            self._left -= 1
            job = self._jobs.pop(0)
            self.asked.append((job.key, job.split))
            self._inner.submit(job)
            yield from self._inner.results(0)

    def close(self) -> None: ...


def test_a_process_of_its_own_scores_as_the_loop_does(tmp_path: Path) -> None:
    study = _study()
    _run(tmp_path / "here", study, None)
    apart = Apart(scorer(study.method, study.task, study.settings.seed), lambda: False, "cpu")
    _run(tmp_path / "apart", study, apart)
    apart.close()
    here, there = _rounds(tmp_path / "here"), _rounds(tmp_path / "apart")
    assert here == there and [line["round"] for line in there] == [0, 1, 2, 3]
    same = ("value", "before_value", "figures", "per_class", "selected_round", "model_sha256")
    a, b = summary(tmp_path / "here"), summary(tmp_path / "apart")
    assert {k: a[k] for k in same} == {k: b[k] for k in same}
    assert lines(tmp_path / "apart" / "traffic.jsonl") == []  # nothing crossed a wire
    assert lines(tmp_path / "here" / "privacy.jsonl") == lines(tmp_path / "apart" / "privacy.jsonl")


@pytest.mark.parametrize("after", range(6))
def test_what_a_crash_left_unscored_is_scored_once(tmp_path: Path, after: int) -> None:
    """Stopped after so many results, it goes on with the rounds that have no line; the run is that
    of one that was never stopped.
    """
    study = _study()
    _run(tmp_path / "whole", study, _Counted(study))
    first, then = _Counted(study, stop_after=after), _Counted(study)
    with pytest.raises(Interrupted):
        _run(tmp_path / "cut", study, first)
    _run(tmp_path / "cut", study, then)
    assert _rounds(tmp_path / "cut") == _rounds(tmp_path / "whole")
    whole, cut = summary(tmp_path / "whole"), summary(tmp_path / "cut")
    for key in ("value", "before_value", "selected_round", "model_sha256", "per_class"):
        assert cut[key] == whole[key]
    dev = [key for key, split in first.asked + then.asked if split == "dev"]
    assert sorted(dev) == ["0", "1", "2", "3"]  # each once, before or after
    assert [key for key, _ in then.asked].count("test") == 1


def test_a_round_that_changed_nothing_is_not_scored_again(tmp_path: Path) -> None:
    study = _study(lr=1e-30)  # below what float32 adds to a parameter
    counted = _Counted(study)
    _run(tmp_path / "run", study, counted)
    assert [key for key, split in counted.asked if split == "dev"] == ["0"]
    found = _rounds(tmp_path / "run")
    assert len(found) == 4 and len({(line["dev"], line["model_sha256"]) for line in found}) == 1


def test_only_the_best_model_and_those_that_wait_stay_on_disk(tmp_path: Path) -> None:
    study = _study()
    seen: list[set[str]] = []

    class Watched(_Counted):
        def results(self, leave: int) -> Iterator[Result]:
            folder = tmp_path / "run" / "checkpoint"
            for result in super().results(leave):
                seen.append({p.name for p in folder.glob("round-*")})
                yield result

    _run(tmp_path / "run", study, Watched(study))
    assert max(map(len, seen)) <= 1 + Watched.room + 1  # the best, those that wait, the newest
    best = summary(tmp_path / "run")["selected_round"]
    folder = tmp_path / "run" / "checkpoint"
    assert [p.name for p in folder.glob("round-*")] == [f"round-{best:05d}.safetensors"]
    kept = checkpoint.read_model(checkpoint.model_file(folder, best))
    assert model_sha256(kept) == summary(tmp_path / "run")["model_sha256"]


def test_the_child_ends_with_its_parent_and_its_death_is_told() -> None:
    def hangs(file: str, split: str) -> Evaluation:
        signal.pause()
        raise AssertionError

    apart = Apart(hangs, lambda: False, "cpu")
    apart.submit(Job("0", "", "dev"))
    child = apart.pid
    apart.close()  # as the kernel does when the parent dies: also in the middle of a job
    wait_for(lambda: not alive(child))
    apart = Apart(hangs, lambda: False, "cpu")
    apart.submit(Job("0", "", "dev"))
    os.kill(apart.pid, signal.SIGKILL)
    with pytest.raises(RoundFailed, match="signal 9"):
        list(apart.results(0))
    apart.close()


def test_what_goes_wrong_there_is_said_here() -> None:
    def mistaken(file: str, split: str) -> Evaluation:
        raise UserError("The test split is empty.") if file else ZeroDivisionError("by zero")

    apart = Apart(mistaken, lambda: False, "cpu")
    apart.submit(Job("0", "some file", "dev"))
    with pytest.raises(UserError, match="test split is empty"):
        list(apart.results(0))
    apart.submit(Job("1", "", "dev"))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(apart.results(0))
    apart.close()


def test_who_is_asked_to_stop_does_not_wait_for_scores() -> None:
    apart = Apart(lambda file, split: signal.pause(), lambda: True, "cpu")  # type: ignore[arg-type, return-value]
    apart.submit(Job("0", "", "dev"))
    assert list(apart.results(1)) == []
    with pytest.raises(Interrupted):
        list(apart.results(0))
    apart.close()


@pytest.mark.parametrize("small", [small_sentence, small_document, small_ner])
def test_figures_do_not_depend_on_how_many_threads_compute_them(small: Any) -> None:
    task = small.tiny_task()
    model = task.new_model(3)
    alone = task.evaluate(model, "test")
    use_threads(3)
    try:
        assert task.evaluate(model, "test") == alone
    finally:
        use_threads(1)


def test_parts_come_back_in_order() -> None:
    use_threads(4)
    try:
        assert for_each(lambda n: n * n, range(50)) == [n * n for n in range(50)]
    finally:
        use_threads(1)
