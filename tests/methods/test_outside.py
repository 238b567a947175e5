"""Methods from outside of the package: files and entry points, each mistake one sentence that names
its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import methods
from bench.papers import PAPERS
from bench.papers.jobs import Job, run_key
from bench.papers.table import with_methods
from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load
from study.agreement import study_hash
from study.prepare import Study, prepare
from tests.conftest import sottovoce

GOOD = '''"""Takes FedAvg and calls it mine."""

from dataclasses import dataclass

from sottovoce import COVERED, Method, Settings, Task, averaged, plain

CITATION = "nobody, nowhere"
TASKS = ("distant", "sentence")


@dataclass(frozen=True)
class Options:
    warmth: float = 0.5
    eager: bool = False


def build(task: Task, settings: Settings, options: Options) -> Method:
    return averaged("another name", CITATION, task, objective=plain, privacy=COVERED)
'''
TINY = {"corpus": "distant:sentences=400", "silos": "4", "rounds": "1", "epochs": "1"}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A method's file: `GOOD` with each text replaced by another."""

    def make(*changes: tuple[str, str], name: str = "mine.py") -> Path:
        text = GOOD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    return make


def _prepared(path: Path, **more: str) -> Study:
    return prepare(load(None, {**TINY, "method": str(path), **more}))


def test_a_file_is_a_method_under_its_own_name(write: Write) -> None:
    path = write()
    about = methods.describe(str(path))
    assert (about.name, about.summary) == ("mine", "Takes FedAvg and calls it mine.")
    assert about.options == {"warmth": 0.5, "eager": False} and len(about.digest) == 64
    study = _prepared(path)
    assert study.method.name == "mine"  # whatever it calls itself
    assert study.method.digest == about.digest == study.agreement["method file"]
    assert _prepared(path, **{"options.warmth": "2"}).settings.options["warmth"] == 2


def test_what_is_agreed_on_is_the_files_content_not_its_place(write: Write) -> None:
    def hash_of(path: Path) -> bytes:
        study = _prepared(path)
        return study_hash(study.settings, study.agreement)

    same = hash_of(write(name="a/mine.py"))
    assert hash_of(write(name="b/mine.py")) == same
    assert hash_of(write(("nowhere", "elsewhere"), name="c/mine.py")) != same


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ([("CITATION =", "CITED ="), ("CITATION, task", "CITED, task")], "it has no CITATION"),
        ([("TASKS =", "TASK ="), ("class Options", "class Knobs"), ("options: Options", "options")],
         "it has no TASKS and no Options"),
        ([("def build", "def make")], "it has no build"),
        ([('"""Takes FedAvg and calls it mine."""', "")], "must open with a docstring"),
        ([('"nobody, nowhere"', "None")], "CITATION must be a text"),
        ([('("distant", "sentence")', '("distant", "images")')], "TASKS must be a tuple of"),
        ([('("distant", "sentence")', '"distant"')], "TASKS must be a tuple of"),
        ([("@dataclass(frozen=True)\n", "")], "Options must be a frozen dataclass"),
        ([("warmth: float = 0.5", "warmth: float")], "every field of Options needs a default"),
        ([("warmth: float = 0.5", "warmth: tuple = ()")],
         'the option "warmth" must be a number, a text or true/false'),
        ([("def build(task", "build = 3\ndef _build(task")], "build must be a function"),
        ([("def build(task", "def build(task(")], "line 17: SyntaxError: "),
        ([("0.5", "(0.5")], r"line 13: SyntaxError: '\(' was never closed"),
        ([("import COVERED,", "import NOTHING,")], "line 5: ImportError: "),
        ([("CITATION =", "raise SystemExit(3)\nCITATION =")], "line 7: SystemExit: 3"),
    ],
)  # fmt: skip
def test_a_breach_of_the_contract_is_one_sentence_with_the_file(
    changes: list[tuple[str, str]], sentence: str, write: Write
) -> None:
    path = write(*changes)
    with pytest.raises(UserError, match=sentence) as refused:
        methods.find(str(path))
    said = str(refused.value)
    assert f'"{path}"' in said and "\n" not in said and re.search(r"[^.?!][.?]$", said)


def test_a_build_that_gives_something_else_is_refused(write: Write) -> None:
    path = write(("return averaged(", "return dict(a="), (', objective=plain, privacy=COVERED', ""),
                 ('"another name", CITATION, task', "3"))  # fmt: skip
    with pytest.raises(UserError, match='The method "mine": its build returned dict, not a Method'):
        _prepared(path)


def test_a_weight_that_nobody_would_check_is_refused(write: Write) -> None:
    path = write(
        ("from dataclasses import dataclass", "from dataclasses import dataclass, replace"),
        ("return averaged(", "m = averaged("),
        (
            "privacy=COVERED)\n",
            "privacy=COVERED)\n    return replace(m, exchanges=(replace(m.exchanges[0], weight_cap=9.0),))\n",
        ),
    )
    with pytest.raises(UserError, match='"mine": its exchange "train" has a weight_cap'):
        _prepared(path)


def test_names_that_cannot_be(write: Write, tmp_path: Path) -> None:
    for path, sentence in (
        (write(name="fedavg.py"), 'has the name of a method of this package, "fedavg"'),
        (write(name="my-own.py"), 'its name must be letters, digits and "_"'),
        (tmp_path / "absent.py", r"cannot be read \(No such file or directory\)"),
    ):
        with pytest.raises(UserError, match=sentence) as refused:
            methods.find(str(path))
        assert str(path) in str(refused.value)
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(UserError, match=r'folder.py" cannot be read \(Is a directory\)'):
        methods.find(str(tmp_path / "folder.py"))
    with pytest.raises(UserError, match="named by its file: METHOD=path/to/mine.py"):
        methods.find("zzzz")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("knob", "sentence"),
    [
        ("warmth=high", "Option \"warmth\" must be a number, not 'high'."),
        ("eager=1", 'Option "eager" must be true or false, not 1.'),
        ("warmt=1", 'The method "mine" has no option "warmt". Did you mean "warmth"?'),
    ],
)
def test_options_of_a_file_are_checked_like_those_of_the_package(
    knob: str, sentence: str, write: Write, tmp_path: Path
) -> None:
    words = [f"{k.upper()}={v}" for k, v in TINY.items()]
    done = sottovoce("simulate", f"METHOD={write()}", *words, f"OUT={tmp_path}", "--set", knob)
    assert (done.returncode, done.stderr.strip()) == (2, sentence)


def test_it_is_for_its_own_tasks(write: Write) -> None:
    with pytest.raises(UserError, match='"mine" is for distant and sentence, and the corpus "ner"'):
        _prepared(write(), corpus="ner")


# Tables and comparisons


def test_kept_runs_belong_to_the_files_content(write: Write) -> None:
    def key(path: Path) -> str:
        return run_key((f"METHOD={path}", "ROUNDS=1"))

    same = key(write(name="a/mine.py"))
    assert key(write(name="b/mine.py")) == same and str(Path("a/mine.py")) not in same
    other = write(("nowhere", "elsewhere"), name="c/mine.py")
    assert key(other) != same
    jobs = [Job("mine", "", 0, (f"METHOD={p}",)).key for p in (write(name="d/mine.py"), other)]
    assert jobs[0] != jobs[1]
    assert run_key(("METHOD=fedavg", "ROUNDS=1")) == "METHOD=fedavg ROUNDS=1"


def test_a_file_has_a_row_of_its_own_in_a_papers_table(write: Write) -> None:
    path = write()
    chosen = with_methods(PAPERS["fedcmc"], ["fedavg", str(path)])
    assert chosen.methods == ("fedavg",) and chosen.variants == {"mine": (f"METHOD={path}",)}
    with pytest.raises(UserError, match="Two files in METHODS have one name"):
        with_methods(PAPERS["fedcmc"], [str(path), str(write(name="b/mine.py"))])


# Installed packages


def _install(site: Path, package: str, entries: str, **modules: str) -> dict[str, str]:
    """What pip leaves of a package, and the environment in which Python finds it."""
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sottovoce.methods]\n{entries}\n")
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text, "utf-8")
    return {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "80"}


@pytest.mark.slow
def test_an_installed_method_is_listed_and_runs_under_its_name(tmp_path: Path) -> None:
    env = _install(tmp_path / "site", "ours", "warm = ours_warm", ours_warm=GOOD)
    listed = sottovoce("methods", env=env)
    assert listed.returncode == 0 and re.search(r"\bwarm\b", listed.stdout), listed.stderr
    words = [f"{k.upper()}={v}" for k, v in TINY.items()]
    done = sottovoce("simulate", "METHOD=warm", *words, f"OUT={tmp_path / 'runs'}", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'method = "warm"' in (tmp_path / "runs/latest/config.toml").read_text()
    near = sottovoce("plan", "METHOD=warn", env=env)
    assert near.returncode == 2 and 'Did you mean "warm"?' in near.stderr
    assert sottovoce("plan", "METHOD=warm").returncode == 2  # without that package


def test_the_hash_of_an_installed_method_is_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n, text in enumerate((GOOD, GOOD.replace("nowhere", "elsewhere"), GOOD)):
        site = tmp_path / str(n)
        _install(site, f"ours{n}", f"warm{n} = ours_warm{n}", **{f"ours_warm{n}": text})
        monkeypatch.syspath_prepend(str(site))
    first, second, third = (methods.find(f"warm{n}").digest for n in range(3))
    assert first == third != second and len(first) == 64
    (tmp_path / "warm.py").write_text(GOOD, "utf-8")  # a file that is named has the same hash
    assert methods.find(str(tmp_path / "warm.py")).digest == first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ("warm = ours_gone", r'installed method "warm" \(ours_gone\) cannot be loaded: ModuleNot'),
        (
            "warm = ours_warm:build",
            r'installed method "warm" \(ours_warm:build\) must name a module',
        ),
        ("warm = ours_bare", '"ours_bare" is no method: it has no CITATION and no TASKS'),
    ],
)
def test_a_broken_package_is_one_sentence(entries: str, sentence: str, tmp_path: Path) -> None:
    env = _install(tmp_path, "ours", entries, ours_warm=GOOD, ours_bare='"""Nothing."""\n')
    done = sottovoce("plan", "METHOD=warm", env=env)
    assert done.returncode == 2 and re.search(sentence, done.stderr), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_two_packages_with_one_name_are_refused(tmp_path: Path) -> None:
    _install(tmp_path, "ours", "warm = ours_warm", ours_warm=GOOD)
    env = _install(tmp_path, "theirs", "warm = theirs_warm", theirs_warm=GOOD)
    done = sottovoce("plan", "METHOD=warm", env=env)
    assert done.returncode == 2
    assert 'Two installed packages offer the method "warm"' in done.stderr
    assert "ours_warm" in done.stderr and "theirs_warm" in done.stderr
    assert (
        sottovoce("plan", "METHOD=fedavg", "CORPUS=distant:sentences=400", env=env).returncode == 0
    )


def _broken(tmp_path: Path, build: str) -> Path:
    file = tmp_path / "broken.py"
    file.write_text(
        '"""A method with a mistake."""\n'
        "from dataclasses import dataclass, replace\n"
        "from sottovoce import COVERED, State, averaged, plain, weighted_mean\n"
        'CITATION, TASKS = "nobody", ("sentence",)\n'
        "@dataclass(frozen=True)\n"
        "class Options:\n    beta: float = 0.0\n"
        "def build(task, settings, options):\n" + build
    )
    return file


@pytest.mark.parametrize(
    ("build", "says"),
    [
        ("    return nonsense\n", r'broken.py": its build failed: line 9: NameError'),
        (
            "    def fold(state, folded):\n        return State(meen)\n"
            '    made = averaged("x", "y", task, objective=plain, privacy=COVERED)\n'
            "    return replace(made, exchanges=(replace(made.exchanges[0], fold=fold),))\n",
            r'broken.py": its fold failed: line 10: NameError.* begin a new run',
        ),
        (
            "    def fold(state, folded):\n"
            "        return State({k: v[:1] for k, v in state.model.items()})\n"
            '    made = averaged("x", "y", task, objective=plain, privacy=COVERED)\n'
            "    return replace(made, exchanges=(replace(made.exchanges[0], fold=fold),))\n",
            r'its fold returned ".*" as 1\S*, and the model has \d+\S*; correct it',
        ),
        (
            "    def objective(silo, heard):\n        raise RuntimeError('mine')\n"
            '    return averaged("x", "y", task, objective=objective, privacy=COVERED)\n',
            r'broken.py": its answer failed: line 10: RuntimeError: mine',
        ),
    ],
)
def test_a_mistake_in_its_code_names_the_file_and_the_line(
    tmp_path: Path, build: str, says: str
) -> None:
    words = {
        "method": str(_broken(tmp_path, build)),
        "corpus": "sentence:sentences=60,dev=20,test=20",
        "silos": "3",
        "rounds": "1",
        "runner": "inprocess",
    }
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError, match=says):
        run_inprocess(tmp_path / "run", prepare(load(None, words)))
