"""A user's mistake, said in one sentence that names the key, file or silo and what to do. Never a
stack trace.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BUSY", "Busy", "UserError", "check_choice", "nearest"]

BUSY = 75  #: the exit status that asks to be tried again (EX_TEMPFAIL)


class UserError(Exception):
    """Printed as it is; the command ends with exit status 2."""


class Busy(UserError):
    """What stands in the way may be gone in a while: exit status `BUSY`. A service tries again."""


def check_choice(key: str, value: str, known: Iterable[str]) -> None:
    """Refuses a value of an option that is none of those known, which are listed in their order."""
    names = list(known)
    if value in names:
        return
    close = difflib.get_close_matches(value, names, n=1, cutoff=0.6)
    hint = f' Did you mean "{close[0]}"?' if close else ""
    listed = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    raise UserError(f'Option "{key}" must be {listed}, not "{value}".{hint}')


def nearest(word: str, known: Iterable[str]) -> str:
    """' Did you mean "x"?' for a misspelt name, or the whole list where nothing is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f' Did you mean "{close[0]}"?'
    return f" Known: {', '.join(names)}." if names else ""
