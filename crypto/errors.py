"""The one exception a party raises when it is asked for something it must not do, and the names of
the attacks.
"""

from __future__ import annotations

__all__ = ["ATTACKS", "Refusal", "SumFailed", "TooFewContribute"]

#: Every attack that is refused by name. The log line of a refusal starts with one of these.
ATTACKS: frozenset[str] = frozenset(
    {
        "key-substitution",
        "unknown-silo",
        "sybil-majority",
        "split-view",
        "both-shares",
        "replay",
        "round-regression",
        "second-sum",
        "tiny-sum",
        "model-inconsistency",
        "graph-steering",
        "ring-gap",
        "channel-downgrade",
        "undeclared-upload",
        "wrong-shape",
        "range-widening",
        "bad-share",
        "weight-hog",
        "late-share",
        "oversize",
        "hand-picked-cohort",
        "silent-others",
        "few-contributors",
        "bad-field",
        "far-number",
        "oprf-committee",
        "oprf-proof",
        "oprf-quota",
        "oprf-request",
    }
)


class Refusal(Exception):
    """Something was refused, under the name of the attack it would have been.

    `culprit` is the silo (or None, when it can only have been the coordinator) that the evidence
    points at.
    """

    def __init__(self, attack: str, detail: str, culprit: str | None = None) -> None:
        if attack not in ATTACKS:
            raise ValueError(f"{attack!r} is not the name of an attack")
        super().__init__(attack, detail, culprit)
        self.attack = attack
        self.detail = detail
        self.culprit = culprit

    def __str__(self) -> str:
        return f"refused ({self.attack}): {self.detail}"


class SumFailed(Exception):
    """A sum that ended without a result and without anything opened; the message is one sentence
    why.
    """


class TooFewContribute(SumFailed):
    """So few survivors put something real into the sum that it would show them. Asked again, they
    would answer the same.
    """
