"""Every state against every message, for both machines. The grids below are written out, not taken
from the code.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from crypto.errors import ATTACKS, Refusal
from crypto.numbers.encoding import Encoding
from crypto.sum.coordinator import OpenSum, SumState
from crypto.sum.records import Proposal, ShareRelease
from crypto.sum.silo_states import ILLEGAL, TRANSITIONS, Call, SiloState
from tests.crypto.world import World, vectors

SIZES = (5,)
ENCODING = Encoding(32, 4, SIZES, (1.0,))

#: rows: states; columns: calls. A state's name is where a legal call leads; anything else is the
#: refusal's name.
CALLS = (
    "offer",
    "receive_keys",
    "receive_nonces",
    "begin",
    "upload",
    "endorse",
    "release",
    "end_round",
    "abandon",
)
K, G, U, L = "key-substitution", "graph-steering", "undeclared-upload", "late-share"
SILO = {
    "new": ("OFFERED", K, G, U, U, L, L, U, U),
    "offered": (K, "KEYED", G, U, U, L, L, U, U),
    "keyed": (K, K, "READY", U, U, L, L, U, U),
    "ready": (K, K, G, "OPEN", U, L, L, "READY", "READY"),
    "open": (K, K, G, "OPEN", "UPLOADED", "second-sum", "second-sum", "READY", "READY"),
    "uploaded": (K, K, G, "OPEN", "replay", "ENDORSED", "RELEASED", "READY", "READY"),
    "endorsed": (K, K, G, "OPEN", L, "split-view", "RELEASED", "READY", "READY"),
    "released": (K, K, G, "OPEN", "second-sum", "split-view", "both-shares", "READY", "second-sum"),
}


class Scene:
    """A world of four brought as far as one silo's state needs, with a valid message of every kind
    at hand.
    """

    def __init__(self, state: str) -> None:
        world = World(4)
        self.silo = world.silos["silo-001"]
        self.inputs = vectors(world.names, SIZES)
        others = [silo for silo in world.silos.values() if silo is not self.silo]
        reached = list(SILO)[: list(SILO).index(state) + 1]
        # The others and the coordinator always go all the way; the silo under test stops in its
        # state. Where it stopped before a message could be made with its help, a twin with the same
        # coins stands in for it.
        twin = World(4)
        everyone = {name: twin.silos[name] for name in twin.names}
        twin.enrol()
        self.keys, self.nonces = twin.setup.key_list(), twin.setup.nonce_list()
        self.world = twin
        self.header = twin.header(ENCODING)
        self.next = twin.header(ENCODING, exchange="next")
        if "offered" in reached:
            self.silo.offer()
        if "keyed" in reached:
            self.silo.receive_keys(self.keys)
        if "ready" in reached:
            self.silo.receive_nonces(self.nonces)
        if "open" in reached:
            self.begin()
        assert len(others) == 3
        opened = OpenSum(self.header, twin.setup)
        uploads = state in ("uploaded", "endorsed", "released")
        for name, silo in everyone.items():
            silo.begin(self.header, self.header.broadcast, SIZES)
            if name == self.silo.silo and not uploads:
                opened.lost(name)
                continue
            record, frames = (self.silo if name == self.silo.silo else silo).upload(
                self.inputs[name]
            )
            opened.begin_upload(record)
            opened.add_frame(name, 0, next(frames))
            opened.finish_upload(name)
        proposals = opened.propose()
        for name, silo in everyone.items():
            if name != self.silo.silo:
                opened.receive_endorsement(silo.endorse(proposals[name]))
        opened._lost.clear()
        dealt = opened._inboxes().get(self.silo.silo, ())
        self.proposal = Proposal(self.header.h, opened.survivors, dealt)
        requests = opened.unmask_requests()
        self.request = requests.get(self.silo.silo) or requests["silo-000"]
        if state in ("endorsed", "released"):
            self.silo.endorse(self.proposal)
        if state == "released":
            self.silo.release(self.request)
        assert self.silo.state.value == state

    def begin(self) -> None:
        self.silo.begin(self.header, self.header.broadcast, SIZES)

    def call(self, name: str) -> None:
        silo = self.silo
        {
            "offer": silo.offer,
            "receive_keys": lambda: silo.receive_keys(self.keys),
            "receive_nonces": lambda: silo.receive_nonces(self.nonces),
            "begin": lambda: silo.begin(self.next, self.next.broadcast, SIZES),
            "upload": lambda: silo.upload(self.inputs[silo.silo]),
            "endorse": lambda: silo.endorse(self.proposal),
            "release": lambda: silo.release(self.request),
            "end_round": silo.end_round,
            "abandon": silo.abandon,
        }[name]()


@pytest.mark.parametrize("state", list(SILO))
@pytest.mark.parametrize("call", CALLS)
def test_silo(state: str, call: str) -> None:
    scene = Scene(state)
    outcome = SILO[state][CALLS.index(call)]
    if outcome.isupper():
        scene.call(call)
        assert scene.silo.state is SiloState[outcome]
    else:
        with pytest.raises(Refusal) as refused:
            scene.call(call)
        assert refused.value.attack == outcome
        assert scene.silo.state.value == state


def test_the_table_is_complete() -> None:
    assert set(ILLEGAL.values()) <= ATTACKS
    for state in SiloState:
        for call in Call:
            assert (state, call) in TRANSITIONS or (state, call) in ILLEGAL


# The coordinator

OK = "ok"
ERR = "program error"
C_CALLS = (
    "begin_upload", "add_frame", "finish_upload", "abort_upload", "lost", "propose", "receive_endorsement",
    "unmask_requests", "receive_release", "result",
)  # fmt: skip
COORDINATOR = {
    "COLLECTING": (OK, OK, OK, OK, OK, OK, L, ERR, L, ERR),
    "PROPOSED": (L, L, L, OK, OK, ERR, OK, OK, L, ERR),
    "UNMASKING": (L, L, L, OK, OK, ERR, OK, ERR, OK, OK),
    "DONE": (L, L, L, OK, OK, ERR, L, ERR, L, ERR),
}


class CoordinatorScene:
    """Three of four silos have uploaded and answered everything since; the fourth is about to."""

    def __init__(self, state: str, call: str) -> None:
        world = World(4).enrol()
        inputs = vectors(world.names, SIZES)
        header = world.header(ENCODING)
        self.sum = sum_ = world.begin(header)
        self.late = world.names[3]
        for name in world.names[:3]:
            world.upload(sum_, name, inputs[name])
        self.record, frames = world.silos[self.late].upload(inputs[self.late])
        self.words = next(frames).copy()
        if state == "COLLECTING" and call in ("add_frame", "finish_upload"):
            sum_.begin_upload(self.record)
            if call == "finish_upload":
                sum_.add_frame(self.late, 0, self.words)
        if state != "COLLECTING":
            sum_.begin_upload(self.record)
            sum_.add_frame(self.late, 0, self.words)
            sum_.finish_upload(self.late)
            proposals = sum_.propose()
        else:
            proposals = dict.fromkeys(world.names, Proposal(header.h, world.names, ()))
        self.endorsements = {
            name: world.silos[name].endorse(proposals[name]) for name in world.names
        }
        self.release = None
        if state != "COLLECTING":
            for name in world.names[:3]:
                sum_.receive_endorsement(self.endorsements[name])
        if state in ("UNMASKING", "DONE"):
            requests = sum_.unmask_requests()
            releases = {name: world.silos[name].release(requests[name]) for name in requests}
            for name in world.names[:3]:
                sum_.receive_release(releases[name])
            self.release = releases[self.late]
        else:
            from crypto.sum.records import ShareRelease

            self.release = ShareRelease(header.h, self.late, (), ())
        if state == "DONE":
            sum_.result()
        assert sum_.state is SumState[state]

    def call(self, name: str) -> None:
        s = self.sum
        {
            "begin_upload": lambda: s.begin_upload(self.record),
            "add_frame": lambda: s.add_frame(self.late, 0, self.words),
            "finish_upload": lambda: s.finish_upload(self.late),
            "abort_upload": lambda: s.abort_upload(self.late),
            "lost": lambda: s.lost(self.late),
            "propose": s.propose,
            "receive_endorsement": lambda: s.receive_endorsement(self.endorsements[self.late]),
            "unmask_requests": s.unmask_requests,
            "receive_release": lambda: s.receive_release(cast(ShareRelease, self.release)),
            "result": s.result,
        }[name]()


@pytest.mark.parametrize("state", list(COORDINATOR))
@pytest.mark.parametrize("call", C_CALLS)
def test_coordinator(state: str, call: str) -> None:
    scene = CoordinatorScene(state, call)
    outcome = COORDINATOR[state][C_CALLS.index(call)]
    if outcome == OK:
        scene.call(call)
    elif outcome == ERR:
        with pytest.raises(RuntimeError):
            scene.call(call)
    else:
        with pytest.raises(Refusal) as refused:
            scene.call(call)
        assert refused.value.attack == outcome
        assert scene.sum.state is SumState[state]


def test_result_without_enough_shares_opens_nothing() -> None:
    from crypto.errors import SumFailed

    world = World(4).enrol()
    inputs = vectors(world.names, SIZES)
    opened = world.begin(world.header(ENCODING))
    for name in world.names:
        world.upload(opened, name, inputs[name])
    proposals = opened.propose()
    with pytest.raises(SumFailed, match="0 signatures"):
        opened.unmask_requests()
    for name in world.names:
        opened.receive_endorsement(world.silos[name].endorse(proposals[name]))
    requests = opened.unmask_requests()
    assert opened._running.total is not None
    before = opened._running.total.copy()
    for name in world.names[:2]:
        opened.receive_release(world.silos[name].release(requests[name]))
    with pytest.raises(SumFailed, match="nothing was opened"):
        opened.result()
    assert opened._running.total is not None and np.array_equal(before, opened._running.total)
