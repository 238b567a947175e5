"""Methods that are not of this package: a file that the user names, or an installed package's.

`METHOD=path/to/mine.py` loads that one file. A package may offer methods as entry points of the
group `sottovoce.methods`, each naming a module. Either way the module keeps the contract of
`methods.base`, and the hash of its file is part of what a consortium agrees on: two machines with
the same name and another file do not meet.

The code that runs is compiled from the very bytes that were hashed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from config.errors import UserError

__all__ = ["GROUP", "blamed", "installed", "load_file", "load_installed"]

GROUP = "sottovoce.methods"
TASKS = ("distant", "sentence", "document", "ner")


@cache
def load_file(path: Path) -> tuple[ModuleType, str]:
    """The module in that file, checked against the contract, and the SHA-256 of the file."""
    if not path.stem.isidentifier():
        raise UserError(
            f'"{path}" cannot be a method\'s file: its name must be letters, digits and "_".'
        )
    try:
        content = path.read_bytes()
    except OSError as e:
        raise UserError(f'The method\'s file "{path}" cannot be read ({e.strerror}).') from None
    digest = hashlib.sha256(content).hexdigest()
    module = ModuleType(f"sottovoce_method_{path.stem}_{digest[:12]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their own module up there
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except UserError:
        raise
    except BaseException as e:
        del sys.modules[module.__name__]
        if isinstance(e, KeyboardInterrupt):
            raise
        raise UserError(f'"{path}" cannot be loaded as a method: {_told(e, path)}') from None
    _check(module, str(path))
    return module, digest


def installed() -> dict[str, EntryPoint]:
    """Name -> entry point of every method that an installed package offers."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in found and found[entry.name].value != entry.value:
            raise UserError(
                f'Two installed packages offer the method "{entry.name}" '
                f"({found[entry.name].value} and {entry.value}); remove one."
            )
        found[entry.name] = entry
    return found


def load_installed(entry: EntryPoint) -> tuple[ModuleType, str]:
    try:
        spec = importlib.util.find_spec(entry.module)
        module = entry.load()
    except Exception as e:
        raise UserError(
            f'The installed method "{entry.name}" ({entry.value}) cannot be loaded: '
            f"{type(e).__name__}: {e}."
        ) from None
    if not isinstance(module, ModuleType) or spec is None or spec.origin is None:
        raise UserError(
            f'The installed method "{entry.name}" ({entry.value}) must name a module that is a file.'
        )
    _check(module, entry.value)
    return module, hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def blamed(method: str, where: str, error: Exception) -> Exception:
    """The error as it is, or, where a method's file from outside raised it, one sentence that names
    the file and the line.
    """
    if not method.endswith(".py") or isinstance(error, UserError):
        return error
    path = Path(method).resolve()
    return UserError(
        f'"{path}": its {where} failed: {_told(error, path)} Correct it and begin a new run; a run '
        "that is resumed goes on with the copy in its folder."
    )


def _told(error: BaseException, path: Path) -> str:
    """What went wrong and in which line of the user's file, in one sentence."""
    lines = [
        f.lineno
        for f in traceback.extract_tb(error.__traceback__)
        if Path(f.filename).name == path.name
    ]
    line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    where = f"line {line}: " if line else ""
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    told = f"{where}{type(error).__name__}: {what}"
    return told if told.endswith((".", "?", "!")) else f"{told}."


def _check(module: ModuleType, where: str) -> None:
    """That the module has what a method's file must have."""
    missing = [
        name for name in ("CITATION", "TASKS", "Options", "build") if not hasattr(module, name)
    ]
    if missing:
        raise UserError(
            f'"{where}" is no method: it has no {" and no ".join(missing)} (docs/methods.md, "The file").'
        )
    if not isinstance(module.CITATION, str) or not (module.__doc__ or "").strip():
        raise UserError(
            f'"{where}" is no method: it must open with a docstring, and CITATION must be a text.'
        )
    tasks = module.TASKS
    if not isinstance(tasks, tuple) or not tasks or not set(tasks) <= set(TASKS):
        raise UserError(f'"{where}": TASKS must be a tuple of {", ".join(TASKS)}, not {tasks!r}.')
    options = module.Options
    if not isinstance(options, type) or not is_dataclass(options):
        raise UserError(f'"{where}": Options must be a frozen dataclass of the method\'s knobs.')
    try:
        defaults = options()
    except TypeError:
        raise UserError(f'"{where}": every field of Options needs a default.') from None
    for field in fields(options):
        if type(getattr(defaults, field.name)) not in (int, float, bool, str):
            raise UserError(
                f'"{where}": the option "{field.name}" must be a number, a text or true/false.'
            )
    if not callable(module.build):
        raise UserError(f'"{where}": build must be a function (task, settings, options) -> Method.')
