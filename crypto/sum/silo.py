"""The silo's half of the secure sum, as a state machine without I/O.

`silo_states.TRANSITIONS` lists everything that is allowed; everything else is refused by name. A
refusal changes nothing: the machine stays where it was. Whatever a restart must not forget (the
last sum's number and round; that shares were released for a payload) goes to the journal before the
call returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from crypto.derive import Label, derive
from crypto.errors import Refusal
from crypto.identity.keys import Identity
from crypto.numbers.prg import Mask, masked
from crypto.sum.contribution import check_words, word_of
from crypto.sum.dealing import deal, release_shares
from crypto.sum.graph import Topology, beacon, topology
from crypto.sum.records import (
    Endorsement,
    KeyList,
    KeyOffer,
    NonceList,
    NonceReveal,
    Proposal,
    ShareRelease,
    SumHeader,
    UnmaskRequest,
    UploadRecord,
    survivors_digest,
)
from crypto.sum.silo_kept import KeptAnswer, check_certificate, check_survivors
from crypto.sum.silo_limits import Journal, Limits, MemoryJournal
from crypto.sum.silo_notes import RunNotes
from crypto.sum.silo_setup import SiloSetup
from crypto.sum.silo_states import ILLEGAL, TRANSITIONS, Call, SiloState

__all__ = [
    "ILLEGAL",
    "TRANSITIONS",
    "Call",
    "Journal",
    "Limits",
    "MemoryJournal",
    "SiloState",
    "SiloSum",
]


class SiloSum:
    """One silo in one session. A restarted silo makes a new one, with the same journal, and joins a
    new session.
    """

    def __init__(
        self,
        silo: str,
        identity: Identity,
        *,
        roster: Mapping[str, bytes],
        run_id: bytes,
        limits: Limits,
        journal: Journal,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if roster.get(silo) != identity.public:
            raise Refusal(
                "key-substitution",
                f"the roster does not have this silo's own key under {silo}",
                silo,
            )
        if len(set(roster.values())) != len(roster):
            raise Refusal("sybil-majority", "two silos of the roster have the same identity key")
        self.silo = silo
        self.state = SiloState.NEW
        self.limits = limits
        self.sid: bytes | None = None
        self.members: tuple[str, ...] = ()
        self.complaints: list[str] = []  #: dealers whose blobs for the current sum did not open
        self._identity, self._roster, self._random = identity, dict(roster), random
        self._notes = RunNotes(journal, run_id)
        self._setup = SiloSetup(silo, identity, self._roster, run_id, limits, random)
        self._pairs: dict[str, bytes] = {}
        self._round = 0
        self._beacon = b""
        self._close()

    def _close(self) -> None:
        self._header: SumHeader | None = None
        self._topology: Topology | None = None
        self._own_shares: list[bytes] = []
        self._uploaded = False
        self._ready: KeptAnswer | None = None

    def awaits(self, h: bytes) -> bool:
        """Whether this sum is open here and its shares were not released."""
        return (
            self._header is not None
            and self._header.h == h
            and self.state is not SiloState.RELEASED
        )

    def _may(self, call: Call) -> SiloState:
        """The state that `call` leads to, or a refusal."""
        if (after := TRANSITIONS.get((self.state, call))) is None:
            raise Refusal(ILLEGAL[self.state, call], f"{call.value} while {self.state.value}")
        return after

    # Once per session

    def offer(self) -> KeyOffer:
        """Step 1: a fresh X25519 key and a commitment to a nonce."""
        after = self._may(Call.OFFER)
        offer = self._setup.offer()
        self.state = after
        return offer

    def receive_keys(self, keys: KeyList) -> NonceReveal:
        """Step 2: check everybody's key against the roster, derive the pair secrets, show the
        nonce.
        """
        after = self._may(Call.KEYS)
        self._setup.check_list(keys)
        # Before its nonce is shown: whoever has seen all nonces knows what they draw, and may end the
        # setup there. Before signatures are checked: of a large session it draws whose.
        self._notes.count_session(self.limits.max_sessions)
        reveal, pairs = self._setup.agree(keys)
        self._pairs, self.sid = pairs, self._setup.sid
        self.state = after
        return reveal

    def receive_nonces(self, nonces: NonceList) -> None:
        """Step 3: everybody agreed on the session id, and nobody chose a nonce after seeing
        another's.
        """
        after = self._may(Call.NONCES)
        assert self.sid is not None
        shown = self._setup.nonces(nonces)
        self.members = tuple(sorted(shown))
        self._beacon = beacon(self.sid, shown)
        self.state = after

    # Each sum

    def begin(
        self,
        header: SumHeader,
        broadcast: bytes,
        expected: Sequence[int],
        caps: Sequence[float] | None = None,
        weight_cap: float = 1.0,
        *,
        contributors: bool = False,
    ) -> None:
        """Step 1 of a sum. `broadcast` is this silo's own hash of what it received; the others are
        what the method declares: tensor sizes, clip caps, the cap on weights, and whether the sum
        must hide behind signed contributors. Abandons a sum that is still open.
        """
        after = self._may(Call.BEGIN)
        if header.sid != self.sid:
            raise Refusal("replay", "the header is of another session")
        self.limits.check_order(header, *self._notes.last(), self._round)
        self.limits.check_alive(header, self.silo, self.members, self._beacon)
        if self._notes.released(self.payload(header)):
            raise Refusal(
                "second-sum", f"shares were released for round {header.round}, {header.exchange}"
            )
        if header.broadcast != broadcast:
            raise Refusal(
                "model-inconsistency", "the header's broadcast is not the one that arrived here"
            )
        self.limits.check_header(header, expected, caps, weight_cap)
        self.limits.check_headroom(header, len(self._roster))
        self.limits.check_contributors(header, contributors, len(self._roster))
        try:
            made = topology(
                self._beacon, self.members, header.alive, self.limits.policy, len(self._roster)
            )
        except ValueError as error:
            raise Refusal("sybil-majority", str(error)) from None
        # whose keys this sum uses: of a large session, setup checked only some
        self._setup.check({*made.neighbours(self.silo), *made.holders} & set(header.alive))
        # Before this sum exists here: what was kept for an earlier one over the payload is void
        # from now on.
        self._notes.note_begun(header)
        self._close()
        self._ratchet(header.round)
        self._header, self._topology = header, made
        self.complaints = []
        self.state = after

    def upload(
        self,
        tensors: Sequence[np.ndarray],
        rounding_seed: bytes | None = None,
        contributes: bool = False,
    ) -> tuple[UploadRecord, Iterator[np.ndarray]]:
        """Step 2: the record, and the masked frames (one reused buffer: send each before taking the
        next).

        `rounding_seed` decides stochastic rounding; fresh randomness unless a reproducible run
        gives its own. `contributes` is signed where the sum asks for contributors.
        """
        after = self._may(Call.UPLOAD)
        header, made = self._current()
        seed = self._random(32) if rounding_seed is None else rounding_seed
        frames = header.encoding.encode(tensors, seed)
        neighbours = made.neighbours(self.silo)
        seeds = [
            self._random(16),
            *(derive(self._pairs[v], Label.EDGE, header.h, length=16) for v in neighbours),
        ]
        wanted = {
            name: self._pairs[name]
            for name in header.alive
            if name in made.point and name != self.silo
        }
        blobs, commitments, self._own_shares = deal(
            header.h,
            self.silo,
            seeds=seeds,
            holders=made.holders,
            threshold=made.parameters.threshold,
            secrets=wanted,
            random=self._random,
        )
        said = word_of(self._identity, header.h, self.silo) if contributes else b""
        word = said if header.contributors else None
        parts = UploadRecord.signed_parts(header.h, self.silo, blobs, commitments, word)
        signature = self._identity.sign(Label.UPLOAD, *parts)
        record = UploadRecord(header.h, self.silo, blobs, commitments, signature, word)
        signs = [1, *(1 if self.silo < v else -1 for v in neighbours)]
        masks = [Mask(seed, sign) for seed, sign in zip(seeds, signs)]
        self._uploaded = True
        self.state = after
        return record, masked(frames, masks, self.limits.threads)

    def endorse(
        self, proposal: Proposal, keep: Callable[[KeptAnswer], None] = lambda kept: None
    ) -> Endorsement:
        """Step 3: sign one survivor set, once. `keep` gets what this holder will say when it is
        certified: whoever is killed after it signed can still say this, and nothing else.
        """
        after = self._may(Call.ENDORSE)
        header, _ = self._current()
        ready = self._answer(proposal)
        keep(ready)
        self._ready = ready
        self.state = after
        parts = Endorsement.signed_parts(header.h, self.silo, survivors_digest(proposal.survivors))
        return Endorsement(header.h, self.silo, self._identity.sign(Label.ENDORSE, *parts))

    def release(
        self, request: UnmaskRequest, keep: Callable[[KeptAnswer], None] = lambda kept: None
    ) -> ShareRelease:
        """Step 4: with t signatures on one set, this holder's shares of what that set needs, once.

        `keep` is called, before anything else, for a holder that did not sign and so has kept
        nothing yet.
        """
        after = self._may(Call.RELEASE)
        header, made = self._current()
        if self._ready is not None and self._ready.survivors != request.survivors:
            raise Refusal("split-view", "another survivor set than the one this silo signed")
        self._check_set(request)
        check_certificate(request, made.holders, made.parameters.threshold, self._roster)
        ready = self._ready or self._answer(request)
        # since this sum began: an answer from before a restart
        if self._notes.released(ready.payload):
            raise Refusal(
                "second-sum", f"shares were released for round {header.round}, {header.exchange}"
            )
        if self._ready is None:
            keep(ready)
        # On disk before anything is said: a restart must not release for this payload again.
        self._notes.journal.put(ready.payload, ready.note)
        self.state = after
        return ready.release

    def _answer(self, asked: Proposal | UnmaskRequest) -> KeptAnswer:
        """What this holder has to say when the survivors are certified."""
        self._check_set(asked)
        header, made = self._current()
        h, survivors = asked.h, asked.survivors
        check_words(h, survivors, asked.words, header.contributors, self._roster)
        own, edges, bad = release_shares(
            h,
            self.silo,
            survivors=survivors,
            neighbours=made.neighbours,
            blobs=dict(asked.blobs),
            secrets=self._pairs,
            own_shares=self._own_shares,
        )
        self.complaints = bad
        released = ShareRelease(h, self.silo, tuple(own), tuple(edges))
        holders, threshold = tuple(sorted(made.holders)), made.parameters.threshold
        return KeptAnswer(
            header.round, self.payload(header), survivors, holders, threshold, released
        )

    def _check_set(self, asked: Proposal | UnmaskRequest) -> None:
        header, made = self._current()
        if asked.h != header.h:
            raise Refusal("replay", "a message of another sum")
        dealers = {sender for sender, _ in asked.blobs}
        check_survivors(made, self.silo, asked.survivors, dealers, self.limits.floor)
        if not self._uploaded:
            raise Refusal("split-view", "this silo is named a survivor and has not uploaded")

    def abandon(self) -> None:
        """The coordinator gave the sum up. Only while nothing was released."""
        self.state = self._may(Call.ABANDON)
        self._close()

    def end_round(self, round: int | None = None) -> None:
        """Move the pair secrets past the round (the last begun one, unless given): what is past
        cannot be opened.
        """
        after = self._may(Call.END_ROUND)
        if round is not None:
            self._ratchet(round + 1)
        elif self._header is not None:
            self._ratchet(self._header.round + 1)
        self._close()
        self.state = after

    def _ratchet(self, round: int) -> None:
        for name, secret in self._pairs.items():
            for _ in range(self._round, round):
                secret = derive(secret, Label.RATCHET)
            self._pairs[name] = secret
        self._round = max(self._round, round)

    def _current(self) -> tuple[SumHeader, Topology]:
        assert self._header is not None and self._topology is not None
        return self._header, self._topology

    def payload(self, header: SumHeader) -> str:
        """The journal's key of what a sum is over."""
        return self._notes.payload(header)
