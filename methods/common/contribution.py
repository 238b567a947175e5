"""Whether a silo's part of a sum is one behind which others can hide, in the words of a method.

What a coordinator tells each silo alone (`Broadcast.private`) is not in the sum's context. It could
give one silo everything and the others nothing. An exchange in which it could declares
`contributors`, and its answers say `contributes` (crypto/sum/contribution.py has the rest).
"""

from __future__ import annotations

from config.errors import UserError
from methods.base import Disclosure

__all__ = ["FROM_RELEASED", "check_floor", "contribution_disclosure", "enough"]

#: Why the word is free under DP=record.
FROM_RELEASED = "computed from noisy values that were released, and from what the coordinator said"


def enough(part: float, whole: float, floor: float) -> bool:
    """Whether this part of what a silo has reaches the floor, a share of it; nothing never does."""
    return part > 0 and part >= floor * whole


def check_floor(method: str, floor: float) -> None:
    if not 0.0 <= floor <= 1.0:
        raise UserError(
            f'Option "floor" of {method} is a share of a silo\'s bags, from 0 to 1, not {floor:g}.'
        )


def contribution_disclosure(of: str) -> Disclosure:
    """`of`: what the silo must have trained on."""
    return Disclosure(
        name="contributes",
        channel="signed",
        shape=f"one yes or no: whether the silo trained on {of}",
        reveals="whether it did; a sum is opened only if so many silos did that at least two of them are "
        "honest",
        privacy="nothing beyond what the coordinator knows: it was told the values, and chose the winners",
    )
