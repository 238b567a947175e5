"""The state machines that ARCHITECTURE.md draws are those of the tables in the code."""

from __future__ import annotations

import re

from crypto.sum.coordinator import ALLOWED, SumState
from crypto.sum.silo_states import TRANSITIONS, SiloState
from silo.states import LEGAL, State
from tests.conftest import ROOT
from tests.silo.talk import PATHS, new_session, say
from tests.silo.test_session import MESSAGES

Arrow = tuple[str, str, str]  #: from, what is heard or called, to


def _diagram(chapter: str, which: int) -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    (body,) = re.findall(rf"^## {chapter}.*?(?=^## |\Z)", text, re.M | re.S)
    return re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", body, re.S)[which]


def _words(label: str) -> list[str]:
    """What stands on an arrow, remarks in brackets aside."""
    return [w.strip() for w in re.sub(r"\(.*?\)", "", label).split(",")]


def _arrows(drawn: str) -> set[Arrow]:
    found = re.findall(r"^\s*(\w+) --> (\w+): (.+)$", drawn, re.M)
    return {(a, word, b) for a, b, label in found for word in _words(label)}


def _noted(drawn: str, everywhere: set[str]) -> set[Arrow]:
    """The rules of the note: in these states, this leads there, or changes nothing."""
    found: set[Arrow] = set()
    for states, rules in re.findall(r"^\s*in ([\w, ]+?): (.+)$", drawn, re.M):
        sources = everywhere if states == "every state" else set(states.split(", "))
        for rule in _words(rules):
            kind, target = re.fullmatch(r"(\S+) (?:leads to (\w+)|changes nothing)", rule).groups()  # type: ignore[union-attr]
            found |= {(s, kind, target or s) for s in sources}
    return found


def test_the_silos_conversation() -> None:
    drawn = _diagram("The silo", 0)
    states = {s.value for s in State}
    arrows = _arrows(drawn) | _noted(drawn, states)
    legal = {(s.value, kind.replace(":", " ")) for kind, where in LEGAL.items() for s in where}
    assert {(a, kind) for a, kind, _ in arrows} == legal
    assert {s for a, _, b in arrows for s in (a, b)} == states
    assert drawn.split()[:3] == ["[*]", "-->", State.GREETED.value]


def test_arrows_of_the_conversation_end_where_a_session_does() -> None:
    """Without a secure sum, whose steps the next test compares; there `welcome` ends elsewhere."""
    drawn = _diagram("The silo", 0)
    ends: dict[tuple[str, str], set[str]] = {}
    for a, kind, b in _arrows(drawn) | _noted(drawn, {s.value for s in State}):
        ends.setdefault((a, kind), set()).add(b)
    played = set()
    for state, path in PATHS.items():
        for kind, (message, payload) in MESSAGES.items():
            if kind == "welcome" or kind.startswith("sum:") or state not in LEGAL.get(kind, ()):
                continue
            session = new_session()
            for word in path:
                say(session, *word)
            assert session.state is state
            say(session, message, payload)
            assert session.state.value in ends[state.value, kind], (state, kind)
            played.add((state.value, kind))
    assert len(played) > 20 and ("told", "go") in played and ("hearing", "chunk") in played


def test_the_silos_secure_sum() -> None:
    drawn = _diagram("The silo", 1)
    assert _arrows(drawn) == {
        (a.value, call.value, b.value) for (a, call), b in TRANSITIONS.items()
    }
    assert drawn.split()[:3] == ["[*]", "-->", SiloState.NEW.value]


def test_the_coordinators_sum_inside_its_round() -> None:
    arrows = _arrows(_diagram("The coordinator", 0))
    order = [s.name.lower() for s in SumState]
    steps = list(zip(order, ("propose", "unmask_requests", "result"), order[1:]))
    for step in steps:
        assert step in arrows
    for before, call, _ in steps:
        allowed, _ = ALLOWED[call]
        assert [s.name.lower() for s in allowed] == [before]


def test_the_diagrams_can_be_drawn() -> None:
    """Mermaid ends a statement at a semicolon; every diagram has one beginning."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    drawn = re.findall(r"```mermaid\n(.*?)```", text, re.S)
    assert len(drawn) == 3
    for diagram in drawn:
        assert ";" not in diagram
        assert diagram.count("[*] -->") == 1
        outside = re.sub(r"    note right of \w+\n.*?end note\n", "", diagram, flags=re.S)
        for line in outside.splitlines()[1:]:
            assert re.fullmatch(r"    (\w+|\[\*\]) --> (\w+|\[\*\])(: [^:;]+)?", line)
