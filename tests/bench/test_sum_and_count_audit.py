"""The audit of two releases that are neither training nor values: the noisy sum of DP=silo, and the
class counts that FedLC keeps. As they are, nothing is found; with a tenth of their noise, or none, the
promise is shown to be broken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.audit.__main__ import _study
from bench.audit.releases import Attacked, attack_releases
from config.errors import UserError
from privacy.noise import SecretStream
from study.prepare import Study
from tests.methods.small_sentence import tiny_folder

PLAYS = 200  #: a hundred are judged: the most that they can prove is 2.6


def study_of(method: str, **more: str) -> Study:
    words = {"METHOD": method, "CORPUS": "sentence:sentences=60,dev=20,test=20", "ROUNDS": "1"}
    words |= {"ENCODER": str(tiny_folder()), "SET": "max_length=64", "TRAIN": "head", "SILOS": "3"}
    return _study(words | {"EPOCHS": "1", **more})


def summed() -> Attacked:
    """CLIP is so small that the silo's vector is as long as it may be."""
    (found,) = attack_releases(study_of("fedavg", DP="silo", EPSILON="1", CLIP="0.01"), PLAYS)
    return found


def counted() -> Attacked:
    """A tenth of the budget is for the counts."""
    of = study_of("fedlc", DP="record", EPSILON="10")
    (found,) = attack_releases(of, PLAYS, only="class counts")
    return found


pytestmark = pytest.mark.slow  # small runs, and some thousand plays

RELEASES = {
    "noisy sum": (summed, "discrete_normal"),
    "class counts": (counted, "rounded_normal"),
}


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_as_it_is_keeps_its_promise(release: str) -> None:
    found = RELEASES[release][0]()
    assert found.release == release and found.moved > 0
    assert found.epsilon_at_most == pytest.approx(1.0, rel=0.05)
    assert not found.broken
    assert {f.distinguisher for f in found.found} == {"likelihood ratio", "support", "low bits"}
    assert all(f.plays == PLAYS // 2 for f in found.found)


def with_noise_times(share: float, drawn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is charged as if all of it were there."""
    honest = getattr(SecretStream, drawn)

    def less(self: SecretStream, n: int, *deviation: Any) -> np.ndarray:
        return np.rint(share * honest(self, n, *deviation)).astype(np.int64)

    monkeypatch.setattr(SecretStream, drawn, less)


@pytest.mark.parametrize(
    ("release", "share"), [("noisy sum", 0.1), ("noisy sum", 0.0), ("class counts", 0.1)]
)
def test_too_little_noise_breaks_it(
    release: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked, drawn = RELEASES[release]
    with_noise_times(share, drawn, monkeypatch)
    found = attacked()
    assert found.epsilon_at_most == pytest.approx(1.0, rel=0.05)
    assert found.broken
    told = next(f for f in found.found if f.distinguisher == "likelihood ratio")
    assert told.epsilon_at_least > found.epsilon_at_most
    assert told.true_positives > 0.7 and told.false_positives < 0.4


def test_counts_without_any_noise_end_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a release made is found by drawing its noise anew. Where nothing changes then, nobody
    could attack it, and to leave it out in silence would be to pass it.
    """
    with_noise_times(0.0, "rounded_normal", monkeypatch)
    with pytest.raises(UserError, match="changes with the noise of class counts"):
        counted()


def test_what_is_sent_beside_a_sum_is_attacked_with_it() -> None:
    """FedCMC's similarities are sealed, and come of the same noisy training as its masked update."""
    (found,) = attack_releases(study_of("fedcmc", DP="record", EPSILON="4"), 20)
    assert found.release == "training" and not found.broken and found.moved > 0
    assert {"masked update", "sealed similarities"} <= set(found.arrays)
