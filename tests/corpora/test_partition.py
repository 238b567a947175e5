"""Every cut gives each unit to exactly one silo, from one seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import UserError
from config.settings import Settings
from corpora.partition import Partition, cut, parse


def _keys(size: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"label": rng.integers(0, 5, size), "pair": rng.integers(0, max(size // 3, 1), size)}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["iid", "pair", "dirichlet:0.05", "dirichlet:10"]),
    st.integers(1, 12),
    st.integers(12, 200),
    st.integers(0, 2**62),
)
def test_a_partition_is_a_partition(spec: str, silos: int, size: int, seed: int) -> None:
    p = cut(spec, silos, seed, size, _keys(size))
    assert len(p.indices) == silos and (p.spec, p.seed) == (spec, seed)
    assert np.sort(np.concatenate(p.indices)).tolist() == list(range(size))
    again = cut(spec, silos, seed, size, _keys(size))
    assert all((a == b).all() for a, b in zip(p.indices, again.indices))
    if spec != "pair":
        assert min(p.sizes) >= 1


def test_iid_spreads_the_remainder() -> None:
    assert cut("iid", 4, 0, 10, {}).sizes == (3, 3, 2, 2)
    assert not (cut("iid", 4, 0, 10, {}).indices[0] == cut("iid", 4, 1, 10, {}).indices[0]).all()


def test_pairs_stay_together_and_silos_are_about_equal() -> None:
    keys = _keys(600)
    p = cut("pair", 5, 3, 600, keys)
    homes = [set(keys["pair"][i]) for i in p.indices]
    assert sum(map(len, homes)) == len(set(keys["pair"]))
    assert max(p.sizes) - min(p.sizes) <= 10


def test_dirichlet_skews_labels_and_reports_its_repairs() -> None:
    labels = {"label": np.repeat(np.arange(4), 100)}
    skewed, even = (
        cut("dirichlet:0.05", 5, 0, 400, labels),
        cut("dirichlet:1000", 5, 0, 400, labels),
    )

    def top(p: Partition) -> float:
        return np.mean([np.bincount(labels["label"][i]).max() / len(i) for i in p.indices])

    assert top(skewed) > 0.7 > 0.4 > top(even)
    crowded = cut("dirichlet:0.01", 40, 0, 60, {"label": np.repeat([0, 1], 30)})
    assert min(crowded.sizes) == 1 and "repaired" in crowded.note


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("iidd", '"iid"'),
        ("dirichlett:1", '"dirichlet"'),
        ("dirichlet", "positive number"),
        ("dirichlet:-1", "positive number"),
        ("dirichlet:nan", "positive number"),
        ("iid:3", "takes no value"),
        ("entropy", "structure"),
    ],
)
def test_a_wrong_spec_is_one_clear_sentence(spec: str, says: str) -> None:
    with pytest.raises(UserError) as e:
        cut(spec, 3, 0, 100, _keys(100))
    assert says in str(e.value) and "\n" not in str(e.value)


def test_what_the_task_lacks_and_too_many_silos() -> None:
    with pytest.raises(UserError, match="cuts by pair"):
        cut("pair", 3, 0, 10, {"label": np.zeros(10)})
    with pytest.raises(UserError, match="at least one"):
        cut("iid", 11, 0, 10, {})
    assert parse("dirichlet:0.5") == ("dirichlet", 0.5)


@pytest.mark.parametrize("spec", ["iid", "dirichlet:0.5", "domain"])
def test_a_sample_is_drawn_before_it_is_cut_and_is_one_for_all_numbers_of_silos(spec: str) -> None:
    label = np.arange(200) % 3
    keys = {"label": label, "domain": label}
    some = cut(f"{spec},sample=60", 5, 7, 200, keys)
    together = np.sort(np.concatenate(some.indices))
    assert len(together) == len(np.unique(together)) == 60
    alone = cut("iid,sample=60", 1, 7, 200, {})
    np.testing.assert_array_equal(alone.indices[0], together)
    assert "a sample of 60 of 200" in some.note
    if spec == "domain":  # keys are those of the drawn units
        assert all(len(np.unique(label[ix])) == 1 for ix in some.indices)
    other = cut(f"{spec},sample=60", 5, 8, 200, keys)
    assert np.sort(np.concatenate(other.indices)).tolist() != together.tolist()


def test_a_centralised_run_has_the_same_sample() -> None:
    from methods.centralised import adjust

    asked = Settings(method="centralised", partition="dirichlet:0.5,sample=60", silos=5)
    assert adjust(asked).partition == "iid,sample=60"
    assert adjust(Settings(method="centralised", partition="dirichlet:0.5")).partition == "iid"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("iid,sample=300", "draws 300 training examples, and there are 200"),
        ("iid,sample=0", 'as in "iid,sample=1000", not "sample=0"'),
        ("iid,most=5", 'not "most=5"'),
    ],
)
def test_a_sample_that_cannot_be_drawn_is_refused(spec: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        cut(spec, 5, 7, 200, {})
