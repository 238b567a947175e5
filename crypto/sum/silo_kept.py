"""A holder's answer to the request for its shares, ready before the request may come.

A holder signs a survivor set only when its shares for that set are on its disk: once t have signed,
t can release, whoever is killed in between and restarted. What is kept is what it would say and
nothing that would let it say more; the certificate is checked when it is asked for, so that a set
that did not gather t signatures is never opened.

The journal's note binds a payload (round and exchange) to one sum and one survivor set, and is on
disk before anything is said. Whoever asks again, with a certificate of the same set, hears the same
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from crypto.derive import Label
from crypto.errors import Refusal
from crypto.identity.keys import verify
from crypto.sum import fields
from crypto.sum.graph import Topology
from crypto.sum.records import Endorsement, ShareRelease, UnmaskRequest, survivors_digest
from crypto.sum.silo_limits import Journal

__all__ = ["KeptAnswer", "begun", "check_certificate", "check_survivors"]


def begun(payload: str) -> str:
    """The journal's key of the last sum over a payload that this silo took part in."""
    return f"begun/{payload}"


def check_survivors(
    made: Topology, silo: str, survivors: tuple[str, ...], dealers: Set[str], floor: int
) -> None:
    """Whether this silo may help to open a sum over these survivors, from what these dealt it."""
    if silo not in made.point:
        raise Refusal("graph-steering", "this silo is no holder in this sum")
    made.check_survivors(survivors, floor)
    if silo not in survivors:
        # Whoever opens a sum is then in it, and joins no second over the payload: two opened
        # sums differ by all of these. Opened by bystanders, a second sum could be over all
        # members of the first but one.
        raise Refusal(
            "second-sum",
            "the survivors are without this silo, which opens only sums that it is in",
        )
    if not dealers <= set(survivors):
        raise Refusal(
            "both-shares", "shares are asked for of a silo that is not among the survivors"
        )


def check_certificate(
    request: UnmaskRequest, holders: Sequence[str], threshold: int, roster: Mapping[str, bytes]
) -> None:
    """Whether so many different holders of the sum, survivors themselves, signed the request's
    survivors.
    """
    known, signers = frozenset(holders).intersection(request.survivors), set()
    signed = survivors_digest(request.survivors)
    for endorsement in request.endorsements:
        name = endorsement.silo
        if endorsement.h != request.h or name not in known or name not in roster:
            continue
        parts = Endorsement.signed_parts(request.h, name, signed)
        if verify(roster[name], endorsement.signature, Label.ENDORSE, *parts):
            signers.add(name)
    if len(signers) < threshold:
        raise Refusal(
            "split-view",
            f"{len(signers)} valid signatures on the survivor set, fewer than {threshold}",
        )


@dataclass(frozen=True)
class KeptAnswer:
    round: int
    payload: str  #: the journal's key: the run, round and exchange that are summed
    survivors: tuple[str, ...]
    holders: tuple[str, ...]  #: whose signatures count
    threshold: int
    release: ShareRelease

    @property
    def note(self) -> str:
        """What the journal says of the payload when this is given."""
        return f"{self.release.h.hex()} {survivors_digest(self.survivors).hex()}"

    def answers(self, request: UnmaskRequest) -> bool:
        return (request.h, request.survivors) == (self.release.h, self.survivors)

    def say(
        self, request: UnmaskRequest, roster: Mapping[str, bytes], journal: Journal
    ) -> ShareRelease:
        """The answer, noted. For whoever has forgotten the sum; refused where the payload was
        opened otherwise.
        """
        check_certificate(request, self.holders, self.threshold, roster)
        if journal.get(begun(self.payload)) != self.release.h.hex():
            raise Refusal(
                "second-sum", "this silo has begun another sum over the same payload since"
            )
        noted = journal.get(self.payload)
        if noted not in (None, self.note):
            raise Refusal(
                "second-sum", "shares were released for another sum over the same payload"
            )
        if noted is None:
            journal.put(self.payload, self.note)
        return self.release

    def to_record(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "payload": self.payload,
            "survivors": list(self.survivors),
            "holders": list(self.holders),
            "threshold": self.threshold,
            "release": self.release.to_record(),
        }

    @classmethod
    def from_record(cls, record: Any) -> KeptAnswer:
        r = fields.only(
            "kept answer",
            record,
            "round",
            "payload",
            "survivors",
            "holders",
            "threshold",
            "release",
        )
        return cls(
            fields.whole("a round", r["round"]),
            fields.text("a payload", r["payload"], most=256),
            fields.names("the survivors", r["survivors"]),
            fields.names("the holders", r["holders"]),
            fields.whole("a threshold", r["threshold"]),
            ShareRelease.from_record(r["release"]),
        )
