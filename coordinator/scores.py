"""What the rounds scored: figures into rounds.jsonl in order of round, and which model is the best.

A round is kept in the checkpoint until its line is written, so that after a crash exactly those are
scored that have no line. Which round is best follows from the lines alone. The models of the best
round and of those that wait are files (coordinator.checkpoint); nothing of them is in memory here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coordinator import checkpoint
from coordinator.checkpoint import Checkpoint
from coordinator.evaluation import Evaluator, Job, Result
from coordinator.progress import Progress
from coordinator.runlog import RunLog
from methods.tasks.base import Evaluation
from report import events
from report.files import read_lines

__all__ = ["Scores", "first_unscored", "unscored"]

_BEFORE, _TEST, _LAST = "before", "test", "last"
_ANY = 1 << 30  #: as many jobs may be undone


def unscored(run: Path, figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rounds of a checkpoint's figures that have no line yet."""
    path = run / "rounds.jsonl"
    there = {line["round"] for line in read_lines(path)} if path.exists() else set()
    return [e for e in figures["pending"] if e["line"]["round"] not in there]


def first_unscored(run: Path, kept: Checkpoint) -> int:
    """The first round of which no line may be left from before a crash."""
    return min((e["line"]["round"] for e in unscored(run, kept.figures)), default=kept.finished)


class Scores:
    def __init__(
        self,
        evaluator: Evaluator,
        runlog: RunLog,
        progress: Progress,
        is_scored: Callable[[int], bool] = lambda round: True,
    ) -> None:
        """`is_scored`: which rounds are; the others get a line without a score."""
        self._evaluator, self._runlog, self._progress = evaluator, runlog, progress
        self._is_scored = is_scored
        self._folder = runlog.path / "checkpoint"
        self._test: Evaluation | None = None
        # Of the rounds that are scored: the last line, as far as it is known; the last one that is
        # written.
        self._last: dict[str, Any] = {}
        self._written: dict[str, Any] = {}
        self._passed: dict[str, Any] = {}  # the last round's line, if it was passed over
        path = runlog.path / "rounds.jsonl"
        for line in read_lines(path) if path.exists() else ():
            self._note(line)
            self._last = self._written
        evaluator.watcher = lambda: self.take(_ANY)
        if progress.before is None:  # chooses nothing: what the trained model is compared with
            evaluator.submit(Job(_BEFORE, "", "test"))

    def add(self, line: dict[str, Any]) -> None:
        """A round that is done and on disk; `line` has all but its score. It stands among the
        pending.
        """
        number = line["round"]
        if not self._is_scored(number):
            line["dev"], line["figures"] = None, {}
            line["phases"] = {**line["phases"], "evaluating": 0.0}
        elif line["model_sha256"] != self._last.get("model_sha256"):
            file = checkpoint.model_file(self._folder, number)
            self._evaluator.submit(Job(str(number), str(file), "dev"))
        self._last = line if self._is_scored(number) else self._last
        self._write_known()
        self.take(self._evaluator.room)

    def take(self, leave: int) -> None:
        """What is scored by now. Waits while more than `leave` are not."""
        for result in self._evaluator.results(leave):
            if result.key == _BEFORE:
                self._progress.before = result.evaluation.value
            elif result.key == _TEST:
                self._test = result.evaluation
            elif result.key == _LAST:
                self._choose({**self._passed, "dev": result.evaluation.value})
            else:
                self._scored(result)
                self._write_known()

    def finish(self) -> tuple[Path | None, Evaluation]:
        """Where the best model is (nowhere: it is the one before the first round), and its score on
        the test split.
        """
        self.take(0)
        if self._passed:  # it ended before its time, with a model that no round's turn was
            last = checkpoint.model_file(self._folder, self._passed["round"])
            self._evaluator.submit(Job(_LAST, str(last), "dev"))
            self.take(0)
        best = self._progress.best_round
        file = checkpoint.model_file(self._folder, best) if best >= 0 else None
        self._evaluator.submit(Job(_TEST, str(file or ""), "test"))
        self.take(0)
        assert self._test is not None
        return file, self._test

    # Lines

    @property
    def _pending(self) -> Sequence[dict[str, Any]]:
        return self._progress.pending

    def _scored(self, result: Result) -> None:
        line = self._pending[0]["line"]
        assert str(line["round"]) == result.key
        line["dev"], line["figures"] = result.evaluation.value, dict(result.evaluation.figures)
        line["phases"] = {**line["phases"], "evaluating": round(result.seconds, 4)}

    def _write_known(self) -> None:
        """The lines of all rounds, from the first that waits, whose score is known. A round that
        left the model as it was has the score of the round before.
        """
        while self._pending:
            line = self._pending[0]["line"]
            if "dev" not in line:
                before = self._written
                if line["model_sha256"] != before.get("model_sha256"):
                    break
                line["dev"], line["figures"] = before["dev"], before["figures"]
            self._runlog.append("rounds.jsonl", line)
            self._progress.pending.pop(0)
            self._note(line)
            best = self._progress.best_round
            waiting = [kept["line"]["round"] for kept in self._pending]
            passed = [self._passed["round"]] if self._passed else []
            checkpoint.keep_only(self._folder, {best, *passed, *waiting})
            self._runlog.event(
                events.RoundDone(
                    round=line["round"],
                    dev=line["dev"],
                    seconds=line["seconds"],
                    bytes_up=line["bytes_up"],
                    missed=tuple(line["missed"]),
                )
            )

    def _note(self, line: dict[str, Any]) -> None:
        """A line is written."""
        if line["dev"] is None:
            self._passed = line
            return
        self._passed, self._written = {}, line
        self._choose(line)

    def _choose(self, line: Mapping[str, Any]) -> None:
        if line["dev"] > self._progress.best_value:
            self._progress.best_value = line["dev"]
            self._progress.best_round = line["round"]
