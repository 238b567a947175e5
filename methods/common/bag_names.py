"""Names under which silos speak of the same bag, of which a coordinator learns nothing but which are
equal: by an oblivious function whose key some of the silos hold together.

Two exchanges, before the first round that needs names; later ones only for silos that have none:

* `blind`: a silo sends one blinded point for each of its bags, signed.
* `evaluate`: each holder of a part of the key multiplies all silos' points by its part, with proofs.

What a silo asked for comes back to it alone, with the next exchange that needs names (`replies`).
It checks the proofs, takes the blinding out and keeps the result on its disk (`names_of`). In a
round it sends another hash of it, so that nobody can follow a bag through the run. crypto.oprf has
the arithmetic and what a coordinator that lies can try.

The model hangs on who has names, and that on the coordinator's notes alone: a silo uses what it
kept only where it is told to.

A silo that has no names yet (it came late, a holder was lost halfway) uses names that nobody else
can have: it still chooses within its own bags, and is compared with nobody.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crypto.errors import Refusal
from crypto.oprf.committee import (
    OUTPUT_BYTES,
    SIGNATURE_BYTES,
    Evaluation,
    Request,
    committee_size,
    evaluate,
    finish,
    public_part,
    request,
)
from crypto.oprf.group import BYTES
from crypto.oprf.voprf import PROOF_BYTES
from crypto.sum.params import most_corrupt
from methods.base import (
    Answer,
    Arrays,
    ArraySpec,
    Disclosure,
    Exchange,
    Heard,
    SiloView,
)
from methods.common.bag_names_relay import Relay

__all__ = ["COMMITTEES", "NAME_BYTES", "Naming", "keyed_names", "names_of"]

log = logging.getLogger("silo")

NAME_BYTES = 16
#: Under so many committees a silo has its bags named in a study: each lets a coordinator's friends
#: ask for guesses anew.
COMMITTEES = 3
#: a silo -> the names of its bags that all silos share ("head, relation, tail")
Inputs = Callable[[SiloView[Any, Any]], Sequence[bytes]]

_POINTS = Disclosure(
    name="points",
    channel="sealed",
    shape="32 bytes per bag of the silo: a point, blinded with a secret of the silo's own, once in a run",
    reveals="how many bags the silo has; a blinded point is equally likely for every bag, to whoever sees it",
    privacy="outside the privacy budget: the number of bags is exact",
)
_PARTS = Disclosure(
    name="parts",
    channel="sealed",
    shape="from a silo that holds a part of the names' key: 32 bytes per point that the silos sent, and proofs; "
    "else nothing",
    reveals="nothing of the silo's data: it follows from the others' points and the silo's key",
    privacy="outside the privacy budget: no data of the silo's enters",
)


def _asked(silos: int, queries: int) -> dict[str, ArraySpec]:
    return {
        "points/blinded": ArraySpec((None, BYTES), "uint8", most=queries),
        "points/signature": ArraySpec((None, SIGNATURE_BYTES), "uint8", most=1),
        "points/committee": ArraySpec((None,), "int32", most=silos),
    }


def _evaluated(silos: int, queries: int) -> dict[str, ArraySpec]:
    return {
        "parts/evaluated": ArraySpec((None, BYTES), "uint8", most=silos * queries),
        "parts/proofs": ArraySpec((None, PROOF_BYTES), "uint8", most=silos),
        "parts/key": ArraySpec((None, BYTES), "uint8", most=1),
        "parts/signature": ArraySpec((None, SIGNATURE_BYTES), "uint8", most=1),
    }


@dataclass(frozen=True)
class Naming:
    """The naming of one study's bags. All of it is agreed before the run."""

    silos: int
    queries: int  #: how many names one silo is given in a run, at most
    first: int  #: the first round that needs names
    inputs: Inputs

    @property
    def relay(self) -> Relay:
        return Relay(self.silos, self.first)

    @property
    def unless(self) -> str:
        """For the disclosure of names: what would give them away."""
        size, m = committee_size(self.silos), most_corrupt(self.silos)
        return (
            f"unless all {size} silos that hold the names' key help the coordinator (it is assumed that at most {m} "
            f"do); each silo that helps can have {COMMITTEES * self.queries} guesses tested, its own bags among them"
        )

    def exchanges(self) -> tuple[Exchange, Exchange]:
        blind = Exchange(
            name="blind",
            disclosures=(_POINTS,),
            broadcast=self.relay.say_committee,
            answer=self.ask,
            fold=self.relay.take_questions,
            sealed=_asked(self.silos, self.queries),
            rehearsed=self._rehearsed_question,
            everyone=True,
            skip=self.relay.all_named,
        )
        evaluate = Exchange(
            name="evaluate",
            disclosures=(_PARTS,),
            broadcast=self.relay.pass_questions,
            answer=self.evaluate,
            fold=self.relay.take_parts,
            sealed=_evaluated(self.silos, self.queries),
            rehearsed=self._rehearsed_parts,
            everyone=True,
            patient=True,
            skip=self.relay.nobody_asked,
        )
        return blind, evaluate

    # The silo

    def ask(self, silo: SiloView[Any, Any], heard: Heard) -> Answer:
        committee = _committee_in(heard.common)
        inputs = self.inputs(silo)
        if len(inputs) > self.queries:
            raise Refusal(
                "oprf-quota",
                f"this silo has {len(inputs)} bags to be named, and the study allows {self.queries} a silo "
                '(its option "queries")',
            )
        asked = None
        spent = _spent(silo, inputs, committee)
        if spent:
            log.warning(
                "this silo's bags were named under %d committees; it asks no other", COMMITTEES
            )
        if inputs and not spent and silo.index not in heard.common["named"].tolist():
            asked = request(silo.among, committee, inputs)
        return Answer(
            sealed={
                "points/blinded": _rows(asked.points if asked else (), BYTES),
                "points/signature": _rows([asked.signature] if asked else (), SIGNATURE_BYTES),
                "points/committee": np.array(committee, np.int32),
            },
            notes={"asked": float(len(asked.points) if asked else 0)},
        )

    def evaluate(self, silo: SiloView[Any, Any], heard: Heard) -> Answer:
        """A holder's half. A question that it must not answer it leaves out, and says so in its log;
        where nothing else was asked, it refuses.
        """
        if not heard.private:
            return Answer(sealed=_rows_of({}))
        committee, said = _committee_in(heard.private), heard.private
        public, signature = public_part(silo.among, committee)
        ends = np.cumsum(said["counts"])
        refused: Refusal | None = None
        evaluated: list[bytes] = []
        proofs: list[bytes] = []
        for k, (who, end) in enumerate(zip(said["silos"].tolist(), ends.tolist())):
            points = tuple(p.tobytes() for p in said["points"][end - said["counts"][k] : end])
            asked = Request(who, points, said["signatures"][k].tobytes())
            try:
                parts, proof = evaluate(silo.among, committee, asked, self.queries)
            except Refusal as e:
                log.error("refused (%s): %s", e.attack, e.detail)
                refused, parts, proof = e, tuple(bytes(BYTES) for _ in points), bytes(PROOF_BYTES)
            evaluated += parts
            proofs.append(proof)
        if refused is not None and not any(map(any, proofs)):
            raise refused
        arrays = {"evaluated": evaluated, "proofs": proofs, "key": [public]}
        return Answer(
            sealed=_rows_of({**arrays, "signature": [signature]}),
            notes={"evaluated": float(len(evaluated))},
        )

    # What planning counts

    def _rehearsed_question(self, silo: SiloView[Any, Any], heard: Heard) -> Arrays:
        n = len(self.inputs(silo))
        return {
            "points/blinded": np.zeros((n, BYTES), np.uint8),
            "points/signature": np.zeros((min(n, 1), SIGNATURE_BYTES), np.uint8),
            "points/committee": heard.common["committee"],
        }

    def _rehearsed_parts(self, silo: SiloView[Any, Any], heard: Heard) -> Arrays:
        asked, answers = heard.private, bool(heard.private)
        silos, points = (len(asked["silos"]), len(asked["points"])) if answers else (0, 0)
        lengths = {"evaluated": points, "proofs": silos, "key": answers, "signature": answers}
        # not zeros: a proof of zeros is a question that was refused
        return {
            name: np.ones((int(lengths[name.partition("/")[2]]), spec.shape[1] or 0), np.uint8)
            for name, spec in _evaluated(1, 1).items()
        }


def names_of(
    naming: Naming, silo: SiloView[Any, Any], heard: Heard
) -> tuple[np.ndarray, Arrays | None]:
    """The names of the silo's bags for this round, (bags, 16) uint8, in the order of its inputs; and
    what the silo is to remember, where that is new.
    """
    inputs, said = naming.inputs(silo), heard.private
    committee = tuple(map(int, said.get("names/committee", ())))
    kept = _kept(silo, inputs, committee)
    if "names/parts" in said:
        if _spent(silo, inputs, committee):
            raise Refusal("oprf-committee", f"names under more than {COMMITTEES} committees")
        values = finish(silo.among, committee, inputs, _evaluations(committee, said))
        had = _committees(silo.memory)
        memory = {
            "names/values": _rows(values, OUTPUT_BYTES),
            "names/of": _fingerprint(silo, inputs),
            "names/committee": np.array(committee, np.int32),
            "names/committees": np.array([had + 1 if kept is None else had], np.int32),
        }
        return keyed_names(silo.secret, heard.round, values), memory
    if kept is not None:
        return keyed_names(silo.secret, heard.round, [v.tobytes() for v in kept]), None
    alone = silo.among.own(b"names of a silo without names", heard.round.to_bytes(8, "big"))
    return keyed_names(alone, heard.round, inputs), None


def _evaluations(committee: tuple[int, ...], said: Arrays) -> list[Evaluation]:
    return [
        Evaluation(
            holder,
            tuple(p.tobytes() for p in said["names/parts"][j]),
            proof=said["names/proofs"][j].tobytes(),
            public=said["names/keys"][j].tobytes(),
            signature=said["names/signatures"][j].tobytes(),
        )
        for j, holder in enumerate(committee)
    ]


def keyed_names(key: bytes, round: int, values: Sequence[bytes]) -> np.ndarray:
    """HMAC-SHA256 of each value under the key and the round, cut to 16 bytes: (bags, 16) uint8.

    Key and prefix are the same for all bags, so they are hashed once and the states copied: with
    `hmac.digest` for every bag, names took a twentieth of a scoring exchange.
    """
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\x00")
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in block))
    outer = hashlib.sha256(bytes(b ^ 0x5C for b in block))
    inner.update(b"sottovoce lazymil bag\x00" + round.to_bytes(8, "big"))
    digests = bytearray()
    for value in values:
        message, name = inner.copy(), outer.copy()
        message.update(value)
        name.update(message.digest())
        digests += name.digest()[:NAME_BYTES]
    return np.frombuffer(bytes(digests), dtype=np.uint8).reshape(-1, NAME_BYTES)


def _kept(
    silo: SiloView[Any, Any], inputs: Sequence[bytes], committee: tuple[int, ...]
) -> np.ndarray | None:
    """What this silo was given for just these inputs, in this run, under this committee."""
    memory = silo.memory
    if "names/of" not in memory or (memory["names/of"] != _fingerprint(silo, inputs)).any():
        return None
    same = committee == tuple(map(int, memory["names/committee"]))
    return memory["names/values"] if same else None


def _spent(silo: SiloView[Any, Any], inputs: Sequence[bytes], committee: tuple[int, ...]) -> bool:
    """Whether names under this committee would be one committee too many."""
    return _committees(silo.memory) >= COMMITTEES and _kept(silo, inputs, committee) is None


def _committees(memory: Arrays) -> int:
    """Under how many committees this silo has had names."""
    return int(memory.get("names/committees", [0])[0])


def _fingerprint(silo: SiloView[Any, Any], inputs: Sequence[bytes]) -> np.ndarray:
    framed = (len(x).to_bytes(8, "big") + x for x in inputs)
    whole = hashlib.sha256(silo.among.context + b"".join(framed))
    return np.frombuffer(whole.digest(), np.uint8)


def _committee_in(said: Arrays) -> tuple[int, ...]:
    return tuple(map(int, said["committee"]))


def _rows(items: Sequence[bytes], width: int) -> np.ndarray:
    return np.frombuffer(b"".join(items), np.uint8).reshape(-1, width)


def _rows_of(parts: Mapping[str, Sequence[bytes]]) -> dict[str, np.ndarray]:
    return {
        name: _rows(parts.get(name.partition("/")[2], ()), spec.shape[1] or 0)
        for name, spec in _evaluated(1, 1).items()
    }
