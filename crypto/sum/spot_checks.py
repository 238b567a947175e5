"""How many signatures of a large session a silo checks itself, and why that is enough.

Among n members, a silo that checked every signature would spend n verifications twice, and n silos
n squared. Beyond `Policy.holders_up_to` members each draws k of the others, anew for the offers and
for the reveals, by its own operating system's dice, after it has the whole list. It checks those.
Whoever it shares keys with in a sum, neighbours and holders, it checks by name before that sum
begins, without dice.

Let the list it was shown have the id sid, and let m silos of the roster be corrupt. A reveal is a
signature on sid by a silo that has checked k offers of that very list. If fewer than g of the others
had truly signed sid, all k drawn reveals would be good with probability at most (g / (n-1))**k. With
g = (n-1) * 2**(-security / k) that is 2**-security. So at least g - m honest silos drew k offers
each. A forged offer is in none of their draws with probability (1 - k/(n-1))**(g-m), and there are
at most n that could be forged. k is the least with

    n * (1 - k/(n-1))**(g-m)  <=  2**-security

so that all offers of the list are genuine but for twice 2**-security. A nonce is the only one that
fits the commitment of a genuine offer, whoever shows it.

That every honest silo that was shown the list has found nothing, and not just some of them, follows
from two rules of `silo_setup`. Dice are thrown once: a silo that has found something refuses every
later list of that setup. And so its nonce is never shown, without which nobody goes on.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache
from random import SystemRandom

from crypto.sum.params import Policy, most_corrupt

__all__ = ["drawn", "spot_checks"]

_dice = SystemRandom()


@lru_cache(maxsize=64)
def spot_checks(members: int, roster: int, policy: Policy) -> int:
    """k: how many of the others a silo checks. All of them, where no smaller number is enough."""
    others, corrupt = members - 1, most_corrupt(roster, policy)
    if members <= policy.holders_up_to:
        return others
    for k in range(1, others):
        signed = math.ceil(others * 2.0 ** (-policy.security / k))
        missed = (signed - corrupt) * math.log2(1 - k / others)
        if signed > corrupt and math.log2(members) + missed <= -policy.security:
            return k
    return others


def drawn(names: Collection[str], own: str, roster: int, policy: Policy) -> set[str]:
    """Whose signatures this silo checks, of a session of these members."""
    others = sorted(set(names) - {own})
    return {own, *_dice.sample(others, spot_checks(len(others) + 1, roster, policy))}
