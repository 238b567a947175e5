"""Scoring models beside the rounds: a process of its own, forked before the first one.

A round's model is on disk before it is scored (coordinator.checkpoint), so that the evaluator is
told a file's name and answers with figures, as JSON lines over two pipes. It takes what cores are
idle: its priority is low, and a split's batches are computed on as many threads as there are cores,
each batch on one thread, so that no figure depends on how many there are. The rounds wait for it
where its queue is full, and at the end, where the best round is chosen.

The in-process runner scores at once, in its own process: with `Inline` in the place of `Apart`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from config.errors import UserError
from coordinator.checkpoint import read_model
from coordinator.exchange import Interrupted, RoundFailed
from methods.base import Arrays, Method, derived_seed
from methods.common.training import load
from methods.tasks.base import Evaluation, Split, Task
from methods.tasks.batching import use_threads
from models.device import use_device
from models.precision import only_read
from wire.stored import give_back

__all__ = ["Apart", "Evaluator", "Inline", "Job", "Result", "scorer"]

_NICE = 19  #: whoever trains should not notice it
_MOST = 3  #: models that may wait, each a file as large as itself

#: (the file of a model, nothing for the one before the first round; split) -> its figures
Scorer = Callable[[str, Split], Evaluation]


@dataclass(frozen=True)
class Job:
    key: str  #: names the result
    file: str  #: of the model; empty: the model before the first round
    split: Split


@dataclass(frozen=True)
class Result:
    key: str
    evaluation: Evaluation
    seconds: float


class Evaluator(Protocol):
    def submit(self, job: Job) -> None: ...
    def results(self, leave: int) -> Iterator[Result]:
        """What is done, in the order in which it was submitted. Waits until at most `leave` jobs
        are not.
        """
        ...

    @property
    def room(self) -> int:
        """How many jobs may be left undone while the rounds go on."""
        ...

    watcher: Callable[[], None]  #: takes what is done, if anybody has time to call it

    def close(self) -> None: ...


def scorer(method: Method, task: Task, seed: int) -> Scorer:
    """Scores with one network, which is made when it is first needed."""
    network: list[torch.nn.Module] = []

    def score(file: str, split: Split) -> Evaluation:
        first = derived_seed(seed, "init")
        model: Arrays = read_model(Path(file)) if file else method.init(first).model
        if method.evaluate is not None:
            return method.evaluate(model, split)
        if not network:
            network.append(only_read(task.new_model(first)))
        load(network[0], model)
        del model
        network[0].eval()
        with torch.no_grad():
            return task.evaluate(network[0], split)

    return score


def _timed(score: Scorer, job: Job) -> Result:
    began = time.monotonic()
    evaluation = score(job.file, job.split)
    return Result(job.key, evaluation, time.monotonic() - began)


class Inline:
    """Scores when it is asked to, here."""

    room = 0

    def __init__(self, score: Scorer) -> None:
        self.watcher: Callable[[], None] = lambda: None
        self._score, self._done = score, list[Result]()

    def submit(self, job: Job) -> None:
        self._done.append(_timed(self._score, job))

    def results(self, leave: int) -> Iterator[Result]:
        while self._done:
            yield self._done.pop(0)

    def look(self) -> bool:
        """Nothing is done beside the rounds."""
        return False

    def close(self) -> None:
        """Nothing is open."""


class Apart:
    """Scores in a forked child, which ends when this process does, however that ends."""

    room = _MOST

    def __init__(self, score: Scorer, should_stop: Callable[[], bool], device: str) -> None:
        self.watcher: Callable[[], None] = lambda: None
        self._code: int | None = None
        self._should_stop = should_stop
        self._waiting: list[str] = []
        self._text = b""
        jobs_out, self._jobs = os.pipe()
        self._answers, answers_in = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._jobs)
            os.close(self._answers)
            _serve(score, jobs_out, answers_in, device)
        os.close(jobs_out)
        os.close(answers_in)
        self._poll = select.poll()  # select.select takes no number above 1023
        self._poll.register(self._answers, select.POLLIN)

    def submit(self, job: Job) -> None:
        self._waiting.append(job.key)
        try:
            os.write(self._jobs, json.dumps(asdict(job)).encode() + b"\n")
        except BrokenPipeError:
            self._ended()

    def results(self, leave: int) -> Iterator[Result]:
        while self._waiting:
            wait = len(self._waiting) > leave
            if wait and self._should_stop():
                raise Interrupted
            if not self._poll.poll(200 if wait else 0):
                if wait:
                    continue
                return
            said = os.read(self._answers, 1 << 16)
            if not said:
                self._ended()
            *lines, self._text = (self._text + said).split(b"\n")
            for line in lines:
                yield self._taken(json.loads(line))

    def _taken(self, said: Mapping[str, Any]) -> Result:
        if "mistake" in said:
            raise UserError(said["mistake"])
        if "bug" in said:
            raise RuntimeError(f"scoring failed; in its process:\n{said['bug']}")
        assert said["key"] == self._waiting.pop(0)
        e = said["evaluation"]
        curve = tuple((float(a), float(b)) for a, b in e["curve"])
        evaluation = Evaluation(e["value"], e["figures"], e["per_class"], curve)
        return Result(said["key"], evaluation, said["seconds"])

    def look(self) -> bool:
        """In between, whenever there is time: whoever takes the results takes what is done. False,
        so that it can stand where it is asked whether to stop. A dead child is told of later, when
        no exchange is under way.
        """
        with contextlib.suppress(RoundFailed):
            self.watcher()
        return False

    def _ended(self) -> None:
        if self._code is None:
            self._code = os.waitpid(self.pid, 0)[1]
            self.pid = 0
        how = os.waitstatus_to_exitcode(self._code)
        why = "memory may be short" if how == -signal.SIGKILL else "the coordinator's log has more"
        what = f"by signal {-how}" if how < 0 else f"with status {how}"
        raise RoundFailed(f"The process that scores models ended {what}: {why}.")

    def close(self) -> None:
        os.close(self._jobs)  # the end of its jobs is the end of the child
        os.close(self._answers)
        if self.pid:
            os.waitpid(self.pid, 0)  # also: its seconds count as this process's


# The child


def _serve(score: Scorer, jobs: int, answers: int, device: str) -> None:
    """Until the pipe of jobs ends, which it does when the parent dies: then at once."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the group; the parent decides
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.nice(_NICE)
        torch.set_num_threads(1)
        # torch's default device is a thread's own, so an accelerator is fed by this one alone
        use_threads((os.cpu_count() or 1) if use_device(device).type == "cpu" else 1)
        waiting: queue.Queue[Job] = queue.Queue()
        threading.Thread(target=_listen, args=(jobs, waiting), daemon=True).start()
        while True:
            line = json.dumps(_said(score, waiting.get())).encode() + b"\n"
            give_back()
            while line:
                line = line[os.write(answers, line) :]
    except BrokenPipeError:
        status = 0
    finally:
        os._exit(status)


def _listen(jobs: int, waiting: queue.Queue[Job]) -> None:
    with os.fdopen(jobs, encoding="utf-8") as lines:
        for line in lines:
            waiting.put(Job(**json.loads(line)))
    os._exit(0)


def _said(score: Scorer, job: Job) -> dict[str, Any]:
    try:
        result = _timed(score, job)
    except UserError as e:
        return {"mistake": str(e)}
    except BaseException:
        return {"bug": traceback.format_exc()}
    return {"key": result.key, "seconds": result.seconds, "evaluation": asdict(result.evaluation)}
