"""What belongs to one machine and to no study: its folders, its pinned roster, its one thread, and
how a program of ours ends there.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from config.errors import UserError
from config.load import check
from config.settings import Settings
from config.study import StudyFile
from crypto.identity.card import RosterRefused
from crypto.identity.keyfile import KeyFileError
from crypto.identity.roster import Roster
from methods.base import silo_name
from methods.tasks.load import is_built_in
from wire.keyring import Keyring

__all__ = ["Machine", "guarded", "local_settings", "names_of", "one_thread", "pinned_roster"]


@dataclass(frozen=True)
class Machine:
    """A party's folder, and what it sets for itself; nothing where the study's word stands."""

    home: Path
    corpus: str = ""
    encoder: str = ""
    seq2seq: str = ""
    vectors: str = ""
    out: str = ""
    metrics: str = ""
    device: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """What was given, by the names of settings."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "home"}
        return {name: value for name, value in own.items() if value}


def one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # sums of floats depend on it


def pinned_roster(keys: Keyring) -> Roster:
    try:
        return keys.pinned()
    except (RosterRefused, KeyFileError) as e:
        raise UserError(f"The roster of {keys.path}: {e}.") from None


def names_of(roster: Roster) -> dict[str, str]:
    """Number in the protocol -> what people call the silo."""
    return {silo_name(i): card.name for i, card in enumerate(roster.silos)}


def local_settings(study: StudyFile, roster: Roster, machine: Machine) -> tuple[Settings, bool]:
    """The study's settings with what is this machine's, and whether the corpus is one that all
    silos cut alike.
    """
    if not _built_in(study.settings.corpus):
        raise UserError(
            f"{study.path}: corpus may only be a built-in one, for a trial; folders are a machine's own."
        )
    own: dict[str, Any] = machine.settings
    settings = replace(study.with_silos(len(roster.silos)), **own)
    if settings.precision == "auto":  # machines must compute alike, whatever their processors are
        settings = replace(settings, precision="float32")
    check(settings)
    if machine.corpus and _built_in(machine.corpus):
        raise UserError(
            "A machine's own corpus is a folder; a built-in one is named in the study file, for a trial."
        )
    return settings, not machine.corpus


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
            raise UserError(f"Reading or writing failed: {e}.") from None
        except Exception:
            log.exception("ended by an error of the program itself")
            return 1

    return run
