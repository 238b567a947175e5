"""Features of a silo's texts belong to one study of one silo, and go when it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import silo.process
from config.load import load
from coordinator.rundir import make_keys
from silo.home import Home
from study.agreement import study_hash
from study.prepare import Study, prepare
from wire import messages as m

STUDY = {
    "method": "fedavg",
    "corpus": "sentence:sentences=60,dev=20,test=20",
    "silos": "3",
    "train": "top:1",
}
ROWS = np.arange(6)
ALONE = nullcontext()


class Line:
    """In the place of a silo's socket: the coordinator says stop, after `before` was called."""

    address, stood = "tcp://nowhere", 0.0

    def __init__(self, before: Callable[[], object], reason: str) -> None:
        self._before, self._reason = before, reason

    def send(self, message: m.Message, payload: Any = None) -> None: ...

    def receive(self, timeout: float) -> tuple[m.Message, None]:
        self._before()
        return m.Stop(self._reason), None

    def close(self) -> None: ...


def _study(**more: str) -> Study:
    return prepare(load(None, STUDY | more))


def _batch(study: Study) -> torch.Tensor:
    task: Any = study.task
    made: torch.Tensor = task.batch(task.subset(ROWS), ROWS).ids
    return made


def _hash(study: Study) -> bytes:
    return study_hash(study.settings, study.agreement, study.task.name)


def _serve(home: Home, study: Study, turn: AbstractContextManager[object] = ALONE) -> int:
    return silo.process.serve(
        home,
        address="tcp://nowhere",
        settings=study.settings,
        task=study.task,
        data=study.task.subset(ROWS),
        method=study.method,
        work=home.work(_hash(study)),
        turn=turn,
    )


def _kept(home: Home) -> list[Path]:
    return sorted(home.path.rglob("*.bf16"))


@pytest.fixture
def homes(tmp_path: Path) -> list[Home]:
    make_keys(tmp_path / "hub", tmp_path / "silos", 3, bytes(32))
    return [Home(p) for p in sorted((tmp_path / "silos").iterdir())]


def test_two_studies_at_once_keep_their_features(
    homes: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, first, second, third = homes[0], _study(), _study(seed="7"), _study()
    lines = [
        Line(lambda: _batch(first), m.INTERRUPTED),
        Line(lambda: _batch(second), m.OVER),
        Line(lambda: _batch(third), m.OVER),
    ]
    monkeypatch.setattr(silo.process, "Dealer", lambda *where: lines.pop(0))
    assert _serve(home, first) == silo.process.AGAIN
    (kept,) = _kept(home)
    assert _serve(home, second) == 0  # in another process, while the first goes on
    assert _kept(home) == [kept]

    def nothing(*_: object) -> torch.Tensor:
        raise AssertionError("computed again")

    third.task.bottom.compute = nothing  # type: ignore[union-attr]
    assert _serve(home, third) == 0  # the first once more
    assert not _kept(home)


def test_silos_that_share_a_process_keep_features_each_in_its_own_folder(
    homes: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, turn = _study(), threading.Lock()
    here, plain, made = threading.Barrier(3, timeout=20), _batch(_study()), list[torch.Tensor]()

    class Together(Line):
        """All have greeted before the first of them is told."""

        def receive(self, timeout: float) -> tuple[m.Message, None]:
            here.wait()
            return m.Stop(self._reason), None

    class Working:
        """A turn in which the silo reads its texts."""

        def __enter__(self) -> None:
            turn.acquire()

        def __exit__(self, *_: object) -> None:
            made.append(_batch(study))
            turn.release()

    monkeypatch.setattr(silo.process, "Dealer", lambda *_: Together(lambda: None, m.INTERRUPTED))
    threads = [threading.Thread(target=_serve, args=(h, study, Working())) for h in homes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 6 and all(torch.equal(one, plain) for one in made)
    assert [len(_kept(h)) for h in homes] == [1, 1, 1]


def test_a_silo_can_forget_a_study_whose_process_was_killed(homes: list[Home]) -> None:
    home, one, two = homes[0], _study(), _study(seed="7")
    for study in (one, two):
        study.task.keep_features_in(home.work(_hash(study)) / "features" / _hash(study).hex())
        _batch(study)
    home.forget_features(_hash(one))
    (left,) = _kept(home)
    assert _hash(two).hex() in left.parts
