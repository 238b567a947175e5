"""The coordinator's half of the secure sum, as state machines without I/O.

`CoordinatorSetup` gathers keys and nonces once per session. `OpenSum` is one sum:

    COLLECTING -propose-> PROPOSED -unmask_requests-> UNMASKING -result-> DONE

The vectors are in `RunningSum`: one running sum and at most `staging` upload buffers, whatever the
number of silos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np

from crypto.derive import Label
from crypto.errors import Refusal, SumFailed, TooFewContribute
from crypto.identity.keys import verify
from crypto.numbers.encoding import FRAME_WORDS, Encoding
from crypto.numbers.prg import Mask, add_masks
from crypto.sum.contribution import is_word, too_few
from crypto.sum.coordinator_setup import CoordinatorSetup
from crypto.sum.dealing import blob_bytes
from crypto.sum.graph import topology
from crypto.sum.opening import Opening
from crypto.sum.records import (
    Endorsement,
    Proposal,
    ShareRelease,
    SumHeader,
    UnmaskRequest,
    UploadRecord,
    survivors_digest,
)
from crypto.sum.running import RunningSum

__all__ = ["ALLOWED", "CoordinatorSetup", "OpenSum", "SumFailed", "SumState"]


class SumState(Enum):
    COLLECTING = "collecting uploads"
    PROPOSED = "waiting for signatures"
    UNMASKING = "waiting for shares"
    DONE = "done"


_S = SumState
_LARGE = 1 << 26  #: bytes of a vector whose buffers matter
#: Call -> the states it is allowed in. What a silo sends in any other state is refused as the
#: attack beside it; what the caller does in any other state is a mistake in the program.
ALLOWED: Mapping[str, tuple[tuple[SumState, ...], str | None]] = {
    "begin_upload": ((_S.COLLECTING,), "late-share"),
    "add_frame": ((_S.COLLECTING,), "late-share"),
    "finish_upload": ((_S.COLLECTING,), "late-share"),
    "abort_upload": ((_S.COLLECTING, _S.PROPOSED, _S.UNMASKING, _S.DONE), None),
    "lost": ((_S.COLLECTING, _S.PROPOSED, _S.UNMASKING, _S.DONE), None),
    "propose": ((_S.COLLECTING,), None),
    "receive_endorsement": ((_S.PROPOSED, _S.UNMASKING), "late-share"),
    "unmask_requests": ((_S.PROPOSED,), None),
    "receive_release": ((_S.UNMASKING,), "late-share"),
    "result": ((_S.UNMASKING,), None),
}


def _staging(encoding: Encoding) -> int:
    """One upload arrives while another is folded. Of large vectors in lanes of 32 bits there is room
    for one beside the running sum.
    """
    return 1 if encoding.bytes > _LARGE and encoding.lane_bits == 32 else 2


class OpenSum:
    """One sum, from its header to its result."""

    def __init__(
        self, header: SumHeader, setup: CoordinatorSetup, staging: int = 0, threads: int = 1
    ) -> None:
        """`staging`: uploads that are taken in at once; 0: as many as memory for three vectors of
        float32 allows beside the model.
        """
        if header.sid != setup.sid:
            raise ValueError("the header is of another session")
        if not set(header.alive) <= set(setup.members):
            raise ValueError("the header names silos that are not members of the session")
        if len(header.alive) < 3:
            raise SumFailed(
                f"a secure sum needs at least 3 silos, and {len(header.alive)} are alive"
            )
        self.header = header
        self.state = SumState.COLLECTING
        try:
            self.topology = topology(
                setup.beacon, setup.members, header.alive, setup.policy, len(setup.roster)
            )
        except ValueError as error:
            raise SumFailed(str(error)) from None
        self.survivors: tuple[str, ...] = ()
        self._roster = setup.roster
        self._threads = threads
        self._running = RunningSum(header.encoding, staging or _staging(header.encoding))
        self._records: dict[str, UploadRecord] = {}
        self._lost: set[str] = set()
        self._endorsements: dict[str, Endorsement] = {}
        self._opening: Opening | None = None

    def _may(self, call: str) -> None:
        states, attack = ALLOWED[call]
        if self.state not in states:
            if attack is not None:
                raise Refusal(attack, f"{call} while the sum is {self.state.value}")
            raise RuntimeError(f"{call} while the sum is {self.state.value}")

    # Step 2: uploads

    @property
    def uploaded(self) -> tuple[str, ...]:
        """Those whose vectors are in the running sum, sorted."""
        return tuple(sorted(self._running.done))

    @property
    def can_begin(self) -> bool:
        """Whether a staging buffer is free."""
        return self.state is SumState.COLLECTING and self._running.has_room

    def begin_upload(self, record: UploadRecord) -> None:
        self._may("begin_upload")
        silo = record.silo
        if silo not in self.header.alive:
            raise Refusal(
                "unknown-silo", f"an upload of {silo}, which takes no part in this sum", silo
            )
        if record.h != self.header.h:
            raise Refusal("replay", f"an upload of {silo} for another sum", silo)
        if silo in self._records:
            raise Refusal("second-sum", f"a second upload of {silo}", silo)
        if not self.can_begin:
            raise RuntimeError("no staging buffer is free; wait for can_begin")
        seeds = len(self.topology.neighbours(silo)) + 1
        wanted = tuple(
            sorted(
                name for name in self.topology.holders if name in self.header.alive and name != silo
            )
        )
        if (
            tuple(holder for holder, _ in record.blobs) != wanted
            or len(record.commitments) != seeds
        ):
            raise Refusal(
                "wrong-shape", f"{silo} did not deal to exactly the holders of this sum", silo
            )
        if any(len(blob) != blob_bytes(seeds) for _, blob in record.blobs):
            raise Refusal(
                "wrong-shape", f"a blob of {silo} does not have {blob_bytes(seeds)} bytes", silo
            )
        word, key = record.word, self._roster[silo]
        if (word is not None) != bool(self.header.contributors):
            raise Refusal(
                "wrong-shape", f"{silo} said what the sum does not ask, or not what it asks", silo
            )
        parts = UploadRecord.signed_parts(record.h, silo, record.blobs, record.commitments, word)
        if not verify(key, record.signature, Label.UPLOAD, *parts) or (
            word and not is_word(key, word, record.h, silo)
        ):
            raise Refusal(
                "key-substitution", f"the upload of {silo} is not signed by its identity", silo
            )
        self._records[silo] = record
        self._running.begin(silo)

    def add_frame(self, silo: str, index: int, words: np.ndarray) -> None:
        """Take one masked frame into the silo's staging buffer. Frames come in order."""
        self._may("add_frame")
        self._running.add(silo, index, words)

    def finish_upload(self, silo: str) -> None:
        """Fold a complete upload into the running sum, and free its buffer."""
        self._may("finish_upload")
        self._running.finish(silo)

    def abort_upload(self, silo: str) -> None:
        """Forget an upload that is not complete. The silo may not try again in this sum."""
        self._may("abort_upload")
        self._running.abort(silo)

    def lost(self, silo: str) -> None:
        """The silo is gone: an unfinished upload is forgotten, and nothing more is expected of
        it.
        """
        self._may("lost")
        self.abort_upload(silo)
        self._lost.add(silo)

    # Step 3: one survivor set

    @property
    def needed(self) -> int:
        """t: signatures, and holders' shares, that the sum cannot do without."""
        return self.topology.parameters.threshold

    @property
    def reachable(self) -> tuple[str, ...]:
        """Holders that are not known to be lost; once survivors are proposed, those among them:
        nobody else signs.
        """
        alive = set(self.survivors or self.header.alive) - self._lost
        return tuple(sorted(name for name in self.topology.holders if name in alive))

    def propose(self) -> dict[str, Proposal]:
        """Close the uploads; for every reachable holder, what it is asked to sign, and the blobs
        addressed to it.

        Raises SumFailed, with nothing opened, when too few arrived.
        """
        self._may("propose")
        self._running.forget_unfinished()
        survivors = self.uploaded
        try:
            self.topology.check_survivors(survivors, 3)
        except Refusal as refusal:
            raise SumFailed(f"the sum cannot be opened: {refusal.detail}") from None
        self.survivors = survivors
        if (contribute := len(self._words())) < (needed := self.header.contributors):
            raise TooFewContribute(too_few(contribute, len(survivors), needed))
        if len(self.reachable) < self.needed:
            raise SumFailed(
                f"only {len(self.reachable)} holders are left, and {self.needed} are needed"
            )
        self._survivors_digest = survivors_digest(survivors)
        self.state = SumState.PROPOSED
        self._running.drop_buffers()  # no more uploads: only the running sum is kept
        return {
            h: Proposal(self.header.h, survivors, dealt, self._words())
            for h, dealt in self._inboxes().items()
        }

    def _words(self) -> tuple[tuple[str, bytes], ...]:
        """The first survivors' words that they contribute, as many as holders want to see."""
        said = ((silo, self._records[silo].word) for silo in self.survivors)
        return tuple((s, word) for s, word in said if word)[: self.header.contributors]

    def _inboxes(self) -> dict[str, tuple[tuple[str, bytes], ...]]:
        """For every reachable holder, what the survivors dealt it."""
        inboxes: dict[str, list[tuple[str, bytes]]] = {name: [] for name in self.reachable}
        for dealer in self.survivors:
            for holder, blob in self._records[dealer].blobs:
                if holder in inboxes:
                    inboxes[holder].append((dealer, blob))
        return {holder: tuple(blobs) for holder, blobs in inboxes.items()}

    def receive_endorsement(self, endorsement: Endorsement) -> None:
        self._may("receive_endorsement")
        silo = endorsement.silo
        if silo not in self.topology.point or silo not in self.survivors:
            raise Refusal(
                "unknown-silo",
                f"a signature of {silo}, which is no holder among the survivors",
                silo,
            )
        if endorsement.h != self.header.h:
            raise Refusal("replay", f"a signature of {silo} for another sum", silo)
        parts = Endorsement.signed_parts(endorsement.h, silo, self._survivors_digest)
        if not verify(self._roster[silo], endorsement.signature, Label.ENDORSE, *parts):
            raise Refusal("split-view", f"{silo} did not sign the proposed survivors", silo)
        self._endorsements[silo] = endorsement

    @property
    def endorsed_enough(self) -> bool:
        return len(self._endorsements) >= self.needed

    # Step 4: shares

    def unmask_requests(self) -> dict[str, UnmaskRequest]:
        """For every reachable holder the certificate; with its blobs, where it did not sign and so
        may lack them.
        """
        self._may("unmask_requests")
        if not self.endorsed_enough:
            raise SumFailed(
                f"{len(self._endorsements)} signatures on the survivors, and {self.needed} are needed"
            )
        certificate = tuple(
            self._endorsements[name] for name in sorted(self._endorsements)[: self.needed]
        )
        self._opening = Opening(self.header.h, self.topology, self.survivors, self._records)
        self.state = SumState.UNMASKING
        return {
            holder: UnmaskRequest(
                self.header.h,
                self.survivors,
                certificate,
                () if holder in self._endorsements else blobs,
                () if holder in self._endorsements else self._words(),
            )
            for holder, blobs in self._inboxes().items()
        }

    def receive_release(self, release: ShareRelease) -> None:
        """Take a holder's shares. A share that is not the one it was dealt names the holder, and
        none is kept.
        """
        self._may("receive_release")
        assert self._opening is not None
        if release.h != self.header.h:
            raise Refusal("replay", f"shares of {release.holder} for another sum", release.holder)
        if release.holder not in self.header.alive:
            raise Refusal(
                "unknown-silo", f"shares of {release.holder}, which takes no part", release.holder
            )
        self._opening.receive(release)

    @property
    def released_enough(self) -> bool:
        return self._opening is not None and self._opening.enough

    # Step 5: the sum

    def result(self) -> tuple[tuple[str, ...], Sequence[np.ndarray]]:
        """The survivors, and the sum of their tensors (flat, float64). Unmasked in place, decoded
        when looked up.
        """
        self._may("result")
        assert self._opening is not None and self._running.total is not None
        if not self._opening.enough:
            raise SumFailed("too few holders released their shares; nothing was opened")
        masks = [Mask(seed, -sign) for seed, sign in self._opening.seeds()]
        total = self._running.total
        for at in range(0, len(total), FRAME_WORDS):
            add_masks(total[at : at + FRAME_WORDS], masks, at, self._threads)
        self.state = SumState.DONE
        self._running.total = None
        return self.survivors, self.header.encoding.decode(total, len(self.survivors))
