"""What a plan expects of a budget is read off measured runs: between them, never beyond, and it says
from which size on silos add something.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench.papers.privacy import TAGS
from bench.planning.plan import _utility_rows
from bench.planning.utility import EPSILONS, TABLE, Measured, measured, of_table, utility_of
from config.load import load


def _row(records: int, epsilon: float, value: float, floor: float = 0.2) -> Measured:
    of = {"task": "document", "method": "fedlcc", "silos": 4, "metric": "f1"}
    return Measured(**of, records=records, epsilon=epsilon, value=value, floor=floor)  # type: ignore[arg-type]


#: strengths 200, 800, 3200: a silo's records times the root of four silos times epsilon
ROWS = [_row(100, 1.0, 0.1), _row(400, 1.0, 0.3), _row(1600, 1.0, 0.5)]


def test_other_sizes_and_budgets_lie_on_one_curve() -> None:
    found = utility_of("document", 400, 4, 4.0, ROWS)
    assert found is not None and set(found.by_epsilon) == {*EPSILONS, 4.0}
    assert found.by_epsilon[1.0] == pytest.approx(0.3)
    assert found.by_epsilon[4.0] == pytest.approx(0.5)
    # strength 2400 lies ln 3 / ln 4 of the way from 800 to 3200
    assert found.by_epsilon[3.0] == pytest.approx(0.3 + 0.2 * math.log(3) / math.log(4))
    # beyond what was measured nothing is promised
    assert found.by_epsilon[8.0] == pytest.approx(0.5)
    # the same number of records at four times as many silos counts double
    more = utility_of("document", 200, 16, 1.0, ROWS)
    assert more is not None and more.by_epsilon[1.0] == pytest.approx(0.3)
    assert utility_of("ner", 400, 4, 1.0, ROWS) is None


def test_below_which_size_a_budget_is_hopeless() -> None:
    found = utility_of("document", 50, 4, 1.0, ROWS)
    assert found is not None and found.hopeless_below == 400
    half = utility_of("document", 50, 4, 0.5, ROWS)
    assert half is not None and half.hopeless_below == 800
    never = utility_of("document", 50, 4, 1.0, [_row(100, 1.0, 0.1), _row(400, 1.0, 0.24)])
    assert never is not None and never.hopeless_below == 400  # as far as it was measured
    always = utility_of("document", 50, 4, 1.0, [_row(100, 1.0, 0.4), _row(400, 1.0, 0.5)])
    assert always is not None and always.hopeless_below == 0


def test_dips_are_chance_and_are_evened_out() -> None:
    rows = [_row(100, 1.0, 0.1), _row(200, 1.0, 0.5), _row(400, 1.0, 0.3)]
    found = utility_of("document", 400, 4, 1.0, rows)
    assert found is not None and found.by_epsilon[1.0] == pytest.approx(0.4)


def test_a_plan_takes_from_the_privacy_table_what_fits_its_tasks(tmp_path: Path) -> None:
    def line(words: str, **more: object) -> str:
        s = {"task": "ner", "method": "fedner", "silos": 3, "metric": "f1", "seed": 1}
        s |= {"value": 0.61234, "before_value": 0.01, **more}
        return json.dumps({"key": words, "summary": s, "dev": []})

    ner = f"CORPUS=ner:sentences=12000 DP=record EPSILON=3 METHOD=fedner SEED=1 SET=tags={TAGS}"
    document = "CORPUS=document:documents=900,wordings=1 DP=record EPSILON=1 METHOD=fedlcc SEED=1"
    held = {"relations to find": 25, "entity pairs": 100}
    path = tmp_path / "runs.jsonl"
    path.write_text(
        "\n".join(
            [
                line(ner),
                line(ner + " PUBLIC=ner:sentences=300"),
                line(ner.replace(TAGS, "disjoint")),
                line(ner.replace("DP=record EPSILON=3", "DP=off")),
                line(document, task="document", method="fedlcc", test_size=held),
                line(document.replace("fedlcc", "fedavg"), task="document", test_size=held),
            ]
        )
        + "\n",
        "utf-8",
    )
    one, other = of_table(path, ["ner", "document"])
    assert (one.records, one.epsilon, one.value, one.floor) == (4000, 3.0, 0.6123, 0.01)
    # to predict every pair: precision 0.25, recall 1
    assert (other.records, other.floor) == (300, 0.4)
    assert of_table(path, ["distant"]) == []


def test_the_words() -> None:
    s = load(None, {"dp": "record", "epsilon": "1", "method": "fedlcc"})
    found = utility_of("document", 50, 4, 1.0, ROWS)
    assert found is not None
    (by, words), (at, few) = _utility_rows(vars(found), s)
    assert by == "f1 by epsilon" and words.startswith("about 0.10 at 1, ")
    assert at == "at epsilon 1" and few == "fewer than about 400 records a silo add nothing"
    never = utility_of("document", 50, 4, 1.0, [_row(100, 1.0, 0.1), _row(400, 1.0, 0.24)])
    assert never is not None
    assert _utility_rows(vars(never), s)[1][1] == "even about 400 records a silo added nothing"
    public = load(None, {"dp": "record", "epsilon": "1", "public": "own", "method": "fedavg"})
    assert _utility_rows(None, public) == [("what to expect", "not measured with public text")]


def test_the_table_names_its_command_and_more_budget_never_costs_much() -> None:
    assert TABLE.read_text("utf-8").startswith("# python -m bench.planning.utility")
    rows = measured()
    assert rows and all(0 <= r.value <= 1 and r.records > 0 and r.epsilon in EPSILONS for r in rows)
    for task in {r.task for r in rows}:
        found = utility_of(task, 1000, 5, 1.0, rows)
        assert found is not None
        values = [found.by_epsilon[e] for e in EPSILONS]
        assert values == sorted(values)
