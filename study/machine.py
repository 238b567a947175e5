"""What belongs to one machine and to no study: its folders, its pinned roster, its one thread, and
how a program of ours ends there.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from config.errors import Busy, UserError
from config.load import check
from config.settings import FOLDER, OWN, Settings
from config.study import StudyFile
from corpora.holding import Holding, read_mapping
from crypto.identity.card import RosterRefused
from crypto.identity.keyfile import KeyFileError
from crypto.identity.roster import Roster
from methods import tasks_of, uses_public
from methods.base import silo_name
from methods.tasks.load import is_built_in
from wire.keyring import Keyring

__all__ = [
    "Machine",
    "guarded",
    "local_settings",
    "names_of",
    "one_thread",
    "own_holding",
    "pinned_roster",
    "roster_stamp",
]

Holds = Literal["train", "held-out", "nothing"]


@dataclass(frozen=True)
class Machine:
    """A party's folder, and what it sets for itself; nothing where the study's word stands."""

    home: Path
    corpus: str = ""
    encoder: str = ""
    seq2seq: str = ""
    vectors: str = ""
    public: str = ""  #: a coordinator's: public text to train on before the first round
    out: str = ""
    metrics: str = ""
    device: str = ""
    mapping: str = ""  #: a file: this party's names of classes, and the study's

    @property
    def settings(self) -> dict[str, str]:
        """What was given, by the names of settings."""
        not_settings = ("home", "mapping")
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in not_settings}
        return {name: value for name, value in own.items() if value}


def one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # sums of floats depend on it


def pinned_roster(keys: Keyring) -> Roster:
    try:
        return keys.pinned()
    except (RosterRefused, KeyFileError) as e:
        raise UserError(f"The roster of {keys.path}: {e}.") from None


def roster_stamp(home: Path) -> int:
    """Another number where another roster was pinned, for programs that serve for weeks."""
    try:
        return (home / "roster.json").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def names_of(roster: Roster) -> dict[str, str]:
    """Number in the protocol -> what people call the silo."""
    return {silo_name(i): card.name for i, card in enumerate(roster.silos)}


def local_settings(study: StudyFile, roster: Roster, machine: Machine) -> Settings:
    """The study's settings with what is this machine's."""
    if not _built_in(study.settings.corpus):
        raise UserError(
            f"{study.path}: corpus may only be a built-in one, for a trial; folders are a machine's own."
        )
    said = study.settings.public
    if said not in ("", OWN, FOLDER) and not is_built_in(said):
        raise UserError(
            f'{study.path}: public may be "{OWN}", "{FOLDER}" or a built-in corpus, for a trial; which folder '
            "it is, the coordinator says with --public."
        )
    if machine.public and said != FOLDER:
        raise UserError(
            f'--public: {study.path} does not say public = "{FOLDER}", so nobody agreed.'
        )
    own: dict[str, Any] = machine.settings
    if study.data is not None:
        if odd := [silo for silo in study.data.tags if roster.card(silo) is None]:
            raise UserError(f"{study.path}: data.tags names {odd[0]}, which is not in the roster.")
        if machine.corpus:
            own = {**own, "corpus": f"{_task_of(study)}:{machine.corpus}"}
            if is_built_in(own["corpus"]):
                raise UserError(f"corpus: there is no folder {machine.corpus} on this machine.")
    settings = replace(study.with_silos(len(roster.silos)), **own)
    if settings.precision == "auto":  # machines must compute alike, whatever their processors are
        settings = replace(settings, precision="float32")
    check(settings)
    if machine.corpus and _built_in(machine.corpus):
        raise UserError(
            "A machine's own corpus is a folder; a built-in one is named in the study file, for a trial."
        )
    return settings


def own_holding(
    study: StudyFile, machine: Machine, silo: str = "", scores: bool = True
) -> Holding | None:
    """What this party has of the study's data; None: a built-in corpus, which all cut alike.

    `silo`: its name; empty: the coordinator, which needs its folder only where it `scores`.
    """
    data = study.data
    if data is None:
        if machine.corpus:
            raise UserError(
                f"{study.path} names no classes, so it is not on anybody's own data: a study that is has "
                f"[data] with its classes. `sottovoce corpus {machine.corpus}` lists those of a folder."
            )
        if machine.mapping:
            raise UserError("A mapping is for own data, and this study is on a built-in corpus.")
        return None
    task = _task_of(study)
    if silo and not machine.corpus:
        raise UserError(
            f"{study.path} is on own data: name this silo's folder, corpus, in its file."
        )
    if not silo and scores and not machine.corpus:
        raise UserError(f"{study.path} is on own data: give a folder to score on with --corpus.")
    holds: Holds = "train" if silo else "held-out" if machine.corpus else "nothing"
    if holds == "nothing" and uses_public(study.settings.method, study.settings.options):
        raise UserError(
            f"{study.settings.method_name} reads a public set: give the folder that has it with --corpus."
        )
    return Holding(
        task,
        data.classes,
        holds,
        data.none,
        data.tags.get(silo, ()),
        read_mapping(Path(machine.mapping)) if machine.mapping else {},
    )


def _task_of(study: StudyFile) -> str:
    """The task of a study on own data, whose [data] must fit it."""
    data = study.data
    assert data is not None
    possible = tasks_of(study.settings.method)
    if data.task not in ("", *possible) or (not data.task and len(possible) > 1):
        raise UserError(
            f"{study.path}: data.task must be {' or '.join(possible)} for {study.settings.method_name}."
        )
    task = data.task or possible[0]
    if data.none and (task in ("ner", "document") or (task == "distant" and data.none != "NA")):
        raise UserError(
            f'{study.path}: data.none is for sentence relations (of distant supervision it is "NA"), '
            f"and this study is of the task {task}."
        )
    if data.tags and task != "ner":
        raise UserError(f"{study.path}: [data.tags] is for entities, not for the task {task}.")
    return task


def _built_in(corpus: str) -> bool:
    return not corpus or is_built_in(corpus)


def guarded(
    program: Callable[..., int], log: logging.Logger, *passed: type[Exception]
) -> Callable[..., int]:
    """The program, as an operator sees it end. An error of our own goes to the log without its
    message, which may have somebody's data in it. `passed`: errors that the caller takes itself.
    """

    passes: tuple[type[Exception], ...] = (UserError, *passed)

    @functools.wraps(program)
    def run(*arguments: Any, **named: Any) -> int:
        try:
            return program(*arguments, **named)
        except passes:
            raise
        except OSError as e:
            raise Busy(f"Reading or writing failed: {e}.") from None
        except Exception:
            log.exception("ended by an error of the program itself")
            return 1

    return run
