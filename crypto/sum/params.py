"""How many neighbours, holders and signatures: computed from n, for a stated corruption, dropout
and security.

`python -m crypto.sum.params` prints the table for n = 3 … 1000.

Up to 64 silos the graph is complete and everybody holds shares. m, the most corrupt, is the largest
number below a third of the *roster* (not of those a coordinator names alive: it would name the
corrupt ones and one victim), and t is the least with 2t > n + m, so no two survivor sets can both
be certified. These need no probability.

Beyond 64, silos stand on a ring in an order nobody could choose, and each is joined to the w = k/2
on either side. Walking round the ring, an honest survivor is joined to the next unless all w places
between are empty of honest survivors, and a ring falls apart only where it is cut twice. So a silo
checks that every stretch of w places holds at least `gap` survivors; a cut then needs `gap` corrupt
silos in one stretch, and w and gap are the least with

    n(n-1)/2 * P[a stretch of w holds >= gap corrupt silos]**2  <= 2**-security     (privacy)
    n * P[a stretch of w holds > w - gap dropped silos]         <= 2**-correctness  (the sum succeeds)

(the square: the counts in two disjoint stretches are negatively associated, so both being high is
no likelier than if they were independent; the adversary chooses who drops, hence the union over all
pairs of stretches). Both tails are hypergeometric (a random order of a fixed number of corrupt or
dropped silos) and computed exactly, in integers. Beyond 256 silos a committee of 256, drawn like
the ring, holds the shares; the most corrupt among them is the least m with P[more than m of the
committee corrupt] <= 2**-security, by the same tail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from crypto.derive import Label, digest

__all__ = [
    "Parameters",
    "Policy",
    "assumption",
    "cohort_floor",
    "least_contributors",
    "least_honest",
    "least_survivors",
    "most_corrupt",
    "parameters",
    "policy_for",
]


@dataclass(frozen=True)
class Policy:
    """What is assumed of the world. Agreed in the consortium; signed into every key offer, so all
    have the same.
    """

    corrupt: float = 1 / 3  #: corrupt silos are fewer than this share of the roster
    #: "roster": all corrupt silos of the roster may be in one sum, so a sum needs more silos than
    #: that. "cohort": whoever is in a sum, fewer than the share *of that sum* are corrupt. Cohorts
    #: that all corrupt silos together would outnumber need it, and it is a weaker promise: a draw
    #: from everybody's nonces decides who is in a cohort, and may fall on many corrupt ones.
    corrupt_among: str = "roster"
    ring_corrupt: float = 0.2  #: the same beyond `complete_up_to`, where degrees are probabilistic
    dropout: float = 0.1  #: share of silos that may drop in one sum, in a ring
    security: int = 40  #: privacy of a ring fails with probability at most 2**-security
    correctness: int = 20  #: a sum within `dropout` fails with probability at most 2**-correctness
    complete_up_to: int = 64
    holders_up_to: int = 256

    def __post_init__(self) -> None:
        if (
            not 0 < self.corrupt <= 0.5
            or not 0 <= self.ring_corrupt <= 0.5
            or not 0 <= self.dropout < 1
        ):
            raise ValueError(
                "shares of corrupt and dropped silos must be below a half and below one"
            )
        if (
            min(self.security, self.correctness) < 1
            or self.complete_up_to < 3
            or self.holders_up_to < 3
        ):
            raise ValueError("security, correctness and graph limits are too small")
        if self.corrupt_among not in ("roster", "cohort"):
            raise ValueError(
                f"corrupt silos are counted among the roster or the cohort, not {self.corrupt_among!r}"
            )

    @property
    def digest(self) -> bytes:
        values = (self.corrupt, self.ring_corrupt, self.dropout, self.security, self.correctness)
        text = "/".join(float(v).hex() for v in (*values, self.complete_up_to, self.holders_up_to))
        return digest(Label.POLICY, text.encode(), self.corrupt_among.encode())


def policy_for(fraction: float, silos: int) -> Policy:
    """The policy of a study in which this share of so many silos takes part in a round.

    The corrupt are counted among the whole roster wherever a round has silos enough to outnumber
    them all (of ten silos, from five on): then it does not matter whom a coordinator names. Only
    smaller rounds are left with the weaker promise. Their size is pinned (`cohort_floor`), and who
    is in them is drawn (`graph.draw_cohort`).
    """
    strict = Policy()
    try:
        parameters(max(int(fraction * silos), 1), strict, silos, ring=False)
    except ValueError:
        # where all take part and are too few, the strict count is what says so
        return strict if fraction >= 1.0 else Policy(corrupt_among="cohort")
    return strict


def most_corrupt(silos: int, policy: Policy = Policy()) -> int:  # noqa: B008  (frozen)
    """m: so many silos of a roster may side with the coordinator."""
    return _below(silos, policy.corrupt)


def cohort_floor(cohort: int, policy: Policy) -> int:
    """The fewest silos that a sum of a round of `cohort` may begin with: all but the share that may
    drop. 0 where the roster is counted, and the least survivors are the floor.
    """
    if policy.corrupt_among == "roster":
        return 0
    return max(3, math.floor((1 - Fraction(policy.dropout).limit_denominator(1000)) * cohort))


@dataclass(frozen=True)
class Parameters:
    n: int
    degree: int  #: neighbours of each silo; n - 1 when the graph is complete
    holders: int  #: silos that keep shares
    corrupt: int  #: m: the most corrupt holders that the threshold allows for
    threshold: int  #: t: shares that rebuild a seed, and signatures that certify a survivor set
    n_min: int  #: the least survivors
    #: the least survivors in every stretch of degree/2 places of the ring; 0 when complete
    gap: int

    @property
    def complete(self) -> bool:
        return self.degree == self.n - 1

    @property
    def stretch(self) -> int:
        return self.degree // 2


@lru_cache(maxsize=4096)
def parameters(
    n: int,
    policy: Policy = Policy(),  # noqa: B008  (frozen)
    roster: int | None = None,
    ring: bool = True,
) -> Parameters:
    """The parameters of a sum over n silos, of a roster of `roster` (n, unless given).

    With `ring` false the graph is complete and everybody holds shares, whatever n.
    """
    if n < 3:
        raise ValueError(f"a secure sum needs at least 3 silos, not {n}")
    counted = n if roster is None or policy.corrupt_among == "cohort" else max(roster, n)
    # A committee is drawn from a session's members; where a coordinator named the n, everybody
    # holds.
    holders = min(n, policy.holders_up_to) if ring else n
    corrupt = _below(counted, policy.corrupt)
    if holders < n:
        corrupt = _committee_corrupt(n, holders, _share(policy.ring_corrupt, counted), policy)
    threshold = (holders + corrupt) // 2 + 1
    # Even with every corrupt silo among the survivors, two honest ones hide behind each other.
    everywhere = _below(counted, policy.corrupt)
    n_min = max(3, threshold, everywhere + 2)
    if threshold > holders or n_min > n:
        raise ValueError(
            f"{everywhere} silos may be corrupt, and a sum over {n} of {counted} would not outnumber them;"
            f" at least {everywhere + 2} are needed"
        )
    found = (
        _ring(n, _share(policy.ring_corrupt, counted), policy)
        if ring and n > policy.complete_up_to
        else None
    )
    if found is None:
        return Parameters(
            n=n,
            degree=n - 1,
            holders=holders,
            corrupt=corrupt,
            threshold=threshold,
            n_min=n_min,
            gap=0,
        )
    stretch, gap = found
    return Parameters(
        n=n,
        degree=2 * stretch,
        holders=holders,
        corrupt=corrupt,
        threshold=threshold,
        n_min=n_min,
        gap=gap,
    )


def assumption(n: int, policy: Policy, roster: int) -> str:
    """What has to be true for a sum over n silos to hide its parts, in words. A ring or a committee
    promises less.
    """
    try:
        p = parameters(n, policy, roster)
        sparse = not p.complete or p.holders < n
    except ValueError:  # no secure sum is possible over so few, and none is made
        sparse = False
    third = Fraction(policy.corrupt).limit_denominator(1000) == Fraction(1, 3)
    share = f"at most {policy.ring_corrupt:.0%}" if sparse else f"fewer than {policy.corrupt:.0%}"
    share = "fewer than a third" if third and not sparse else share
    if policy.corrupt_among == "roster":
        most = _below(roster, policy.corrupt)
        here = f" (of {roster}: {f'at most {most}' if most else 'none'})" if not sparse else ""
        return f"the coordinator colludes with {share} of all silos of the study{here}"
    return (
        f"the coordinator colludes with {share} of the participants of any one round, who are drawn from nonces of "
        "all silos"
    )


def least_honest(n: int, policy: Policy, roster: int) -> int:
    """Of the survivors of any sum over n silos that is opened, how many at least are not
    corrupt.
    """
    counted = n if policy.corrupt_among == "cohort" else max(roster, n)
    return parameters(n, policy, roster).n_min - _below(counted, policy.corrupt)


def least_survivors(cohort: int, policy: Policy, roster: int) -> int:
    """The fewest survivors of any sum that silos open, in rounds of `cohort` silos, whoever the
    coordinator names.
    """
    if policy.corrupt_among == "cohort":
        return parameters(cohort_floor(cohort, policy), policy).n_min
    return max(3, _below(roster, policy.corrupt) + 2)


def least_contributors(n: int, policy: Policy, roster: int) -> int:
    """How many survivors of a sum over n silos must have put something real into it: m + 2, so that
    two of them are honest and hide behind each other.

    Where the corrupt are counted in the cohort, a draw may fall on more than m of them. There it is
    as many as must survive: whoever can read a silo out of the contributors can then read it out of
    the sum too, and no fewer corrupt silos are enough.
    """
    if policy.corrupt_among == "cohort":
        return parameters(n, policy, roster).n_min
    return _below(max(roster, n), policy.corrupt) + 2


def _share(share: float, n: int) -> int:
    return math.floor(Fraction(share).limit_denominator(1000) * n)


def _below(n: int, share: float) -> int:
    """The largest whole number strictly below share * n; a share of 1/3 means exactly a third."""
    exact = Fraction(share).limit_denominator(1000) * n
    return max(math.ceil(exact) - 1, 0)


def _committee_corrupt(n: int, holders: int, bad: int, policy: Policy) -> int:
    for m in range(holders):
        if at_most(tail(n, min(bad, n), holders, m + 1), policy.security):
            return m
    return holders


def _ring(n: int, bad: int, policy: Policy) -> tuple[int, int] | None:
    """(w, gap): the shortest stretch that is both private and likely to succeed; None: a complete
    graph instead.
    """
    dead = _share(policy.dropout, n)
    pairs = n * (n - 1) // 2
    for w in range(2, (n - 1) // 2):
        gap = next(
            (
                g
                for g in range(1, w + 1)
                if at_most(pairs * tail(n, min(bad, n), w, g) ** 2, policy.security)
            ),
            None,
        )
        if gap is not None and at_most(n * tail(n, dead, w, w - gap + 1), policy.correctness):
            return w, gap
    return None


def tail(n: int, marked: int, drawn: int, least: int) -> Fraction:
    """P[at least `least` marked among `drawn` of n without replacement, `marked` of them marked],
    exactly.
    """
    ways = sum(
        math.comb(marked, i) * math.comb(n - marked, drawn - i)
        for i in range(max(least, 0), min(marked, drawn) + 1)
    )
    return Fraction(ways, math.comb(n, drawn))


def at_most(probability: Fraction, bits: int) -> bool:
    return probability * 2**bits <= 1


def _table() -> None:
    policy = Policy()
    print(
        f"corrupt < 1/3 (ring and committee: {policy.ring_corrupt:.0%}), dropout {policy.dropout:.0%} in a ring,"
        f" privacy 2^-{policy.security}, success 2^-{policy.correctness}"
    )
    print(
        f"{'n':>5} {'k':>5} {'holders':>8} {'m':>4} {'t':>4} {'n_min':>6} {'gap':>4}  dropouts tolerated"
    )
    sizes = [
        *range(3, 17),
        20,
        24,
        32,
        40,
        50,
        64,
        65,
        80,
        100,
        128,
        150,
        200,
        256,
        300,
        400,
        500,
        700,
        1000,
    ]
    for n in sizes:
        p = parameters(n, policy)
        tolerated = n - p.n_min if p.complete else math.floor(policy.dropout * n)
        print(
            f"{p.n:>5} {p.degree:>5} {p.holders:>8} {p.corrupt:>4} {p.threshold:>4} {p.n_min:>6} {p.gap:>4}"
            f"  {tolerated}{'' if p.complete else ' (2^-' + str(policy.correctness) + ')'}"
        )


if __name__ == "__main__":
    _table()
