"""No attack is forgotten: the names in the code, the tests that play them and the table in
docs/secagg.md agree.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crypto.errors import ATTACKS
from tests.conftest import ROOT
from tests.system.attacks import GAINED, REFUSED

for _path in sorted(Path(__file__).parent.glob("test_attacks_on_*.py")):
    importlib.import_module(f"tests.system.{_path.stem}")


def _named() -> Iterator[tuple[str, str]]:
    """(file, name) wherever the code refuses something by name."""
    for package in ("crypto", "wire", "silo", "coordinator"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name == "errors.py":
                continue  # the list itself
            tree = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refusal":
                    first = node.args[0]
                    if isinstance(first, ast.Constant) and isinstance(first.value, str):
                        yield path.name, first.value
                elif isinstance(node, ast.Constant) and node.value in ATTACKS:
                    yield (
                        path.name,
                        str(node.value),
                    )  # tables of states; `attack = …` of a bad message


def test_the_code_refuses_what_is_listed_and_nothing_else() -> None:
    named = {name for _, name in _named()}
    assert named == ATTACKS


def test_every_attack_is_played_and_seen_to_succeed_without_its_defence() -> None:
    assert set(REFUSED) == ATTACKS
    assert set(GAINED) == ATTACKS


def _rows() -> dict[str, str]:
    text = (ROOT / "docs" / "secagg.md").read_text("utf-8")
    table = text[text.index("| attack | with its defence gone") :].split("\n\n")[0]
    return {
        match[1]: match[0]
        for line in table.splitlines()
        if (match := re.match(r"\| `([a-z-]+)` \|.*", line))
    }


def _tests(tests: set[str]) -> str:
    """As the table has them: on keys: `test_unknown_silo`."""
    said = sorted(test.removeprefix("test_attacks_on_").split(":") for test in tests)
    return ", ".join(f"{module.replace('_', ' ')}: `{name}`" for module, name in said)


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_the_table_in_the_docs_names_the_tests(attack: str) -> None:
    cells = [cell.strip() for cell in _rows()[attack].strip("|").split("|")]
    assert cells[2:] == [_tests(REFUSED[attack]), _tests(GAINED[attack])]
    assert len(cells[1]) > 20
