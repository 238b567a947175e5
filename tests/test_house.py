"""The rules of the house that no linter knows: the size of a module, and the number of parameters
that go by position.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 350
MOST_BY_POSITION = 6

#: The C kernel takes positions only, and stands in for this function, argument by argument.
KERNEL = {"pack", "pack_numpy"}


def _files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = [name for name in listed.stdout.split() if (ROOT / name).exists()]
    assert len(found) > 250  # or the rules would hold for nothing
    return found


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for name in _files():
        yield name, ast.parse((ROOT / name).read_text("utf-8"))


def _decorators(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    return [ast.unparse(decorator) for decorator in node.decorator_list]


def _is_command(function: ast.FunctionDef) -> bool:
    """Typer reads a command's options off its signature. Nobody calls it by position."""
    return any("typer." in ast.unparse(a.annotation) for a in function.args.args if a.annotation)


def _by_position(function: ast.FunctionDef) -> list[str]:
    named = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    return named[1:] if named[:1] in (["self"], ["cls"]) else named


def _long_signatures(tree: ast.Module) -> list[str]:
    return [
        f"line {node.lineno}: {node.name} takes {len(_by_position(node))} by position"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and len(_by_position(node)) > MOST_BY_POSITION
        and node.name not in KERNEL
        and not _is_command(node)
    ]


def _records(tree: ast.Module) -> set[str]:
    """Data classes with more fields than may be given by position."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in decorator for decorator in _decorators(node))
        and sum(isinstance(line, ast.AnnAssign) for line in node.body) > MOST_BY_POSITION
    }


def _long_calls(tree: ast.Module, records: set[str]) -> list[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        f"line {call.lineno}: {ast.unparse(call.func)} is given {len(call.args)} by position"
        for call in calls
        if len(call.args) > MOST_BY_POSITION and ast.unparse(call.func).split(".")[-1] in records
    ]


def test_no_module_is_too_long() -> None:
    lengths = {name: len((ROOT / name).read_text("utf-8").splitlines()) for name in _files()}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_many_parameters_go_by_name() -> None:
    trees = dict(_trees())
    records = set().union(*map(_records, trees.values())) | {"cls"}
    found = {
        name: wrong
        for name, tree in trees.items()
        if (wrong := [*_long_signatures(tree), *_long_calls(tree, records)])
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("def f(a, b, c, d, e, f): ...", False),
        ("def f(a, b, c, d, e, f, g): ...", True),
        ("def f(a, b, *, c, d, e, f, g): ...", False),
        ("class C:\n def f(self, a, b, c, d, e, f): ...", False),
        ("class C:\n def f(self, a, b, c, d, e, f, g): ...", True),
        ("def f(a: Annotated[str, typer.Option()], b, c, d, e, f, g): ...", False),
    ],
)
def test_the_rule_sees_what_it_should(source: str, wrong: bool) -> None:
    assert bool(_long_signatures(ast.parse(source))) is wrong


def test_records_are_not_filled_by_position() -> None:
    fields = "\n".join(f" f{i}: int" for i in range(7))
    tree = ast.parse(f"@dataclass(frozen=True)\nclass R:\n{fields}\nR(1, 2, 3, 4, 5, 6, 7)")
    assert _records(tree) == {"R"} and len(_long_calls(tree, {"R"})) == 1
