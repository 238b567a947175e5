"""Writes vectors.json: every derivation with its inputs, so that another implementation could be
written against it.

`python -m tests.crypto.make_vectors` (only when the protocol changes; the version label in
crypto/derive.py then changes too). `test_vectors.py` computes all of it again and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from crypto import derive
from crypto.derive import Label
from crypto.identity import keys
from crypto.numbers import prg, rotation, shamir
from crypto.numbers.encoding import Encoding
from crypto.sum import dealing, graph, params, records, seal
from tests.crypto.world import World, dice, vectors

PATH = Path(__file__).with_name("vectors.json")


def _primitives() -> dict[str, Any]:
    seed, h, secret = bytes(range(16)), bytes(range(32)), bytes(range(100, 132))
    identity = keys.Identity(bytes(range(32)))
    return {
        "frame": {"offer, 'ab', 'c'": derive.frame(Label.OFFER, b"ab", b"c").hex()},
        "digest": {label.value: derive.digest(label, b"ab", b"c").hex() for label in Label},
        "derive": {label.value: derive.derive(secret, label, b"ab", b"c").hex() for label in Label},
        "name_list": derive.name_list(("silo-000", "silo-001")).hex(),
        "identity": {
            "seed": bytes(range(32)).hex(),
            "public": identity.public.hex(),
            "signature of endorse, 'x'": identity.sign(Label.ENDORSE, b"x").hex(),
        },
        "mask": {
            "seed": seed.hex(),
            "key": prg.mask_key(seed).hex(),
            "first words": prg.keystream(seed, 4).tolist(),
            "words from 131072": prg.keystream(seed, 131076)[131072:].tolist(),
        },
        "edge seed": {
            "pair secret": secret.hex(),
            "h": h.hex(),
            "r": derive.derive(secret, Label.EDGE, h, length=16).hex(),
        },
        "ratchet": {"before": secret.hex(), "after": derive.derive(secret, Label.RATCHET).hex()},
        "seal": seal.seal_blob(secret, h, "silo-000", "silo-001", b"content", b"public").hex(),
        "seed commitment": dealing.seed_commitment(h, "silo-000", 3, seed).hex(),
        "share tag": dealing.share_tags(h, "silo-000", "silo-001", [(3, bytes(range(17)))])[
            0
        ].hex(),
        "shamir": {
            "secrets": [seed.hex(), ("ff" * 16)],
            "coefficients": bytes(range(64)).hex(),
            "threshold": 3,
            "shares": [
                row.hex()
                for row in shamir.split([seed, b"\xff" * 16], 3, 5, lambda n: bytes(range(n)))
            ],
        },
    }


def _encodings() -> list[dict[str, Any]]:
    values = [[0.5, -0.25, 1.0, -1.0, 9.0, 0.1, -0.1], [0.003, -0.004]]
    made = []
    for lane in (32, 21, 16):
        for rounding, turn in (("nearest", False), ("stochastic", False), ("nearest", True)):
            if turn and lane != 16:
                continue  # a rotation is float32 arithmetic: its last bits differ between machines
            encoding = Encoding(lane, 10, (7, 2), (1.0, 0.01), rounding, turn)
            words = np.concatenate(
                [
                    f.copy()
                    for f in encoding.encode([np.array(v, np.float32) for v in values], b"seed")
                ]
            )
            made.append(
                {
                    "encoding": encoding.to_record(),
                    "tensors": values,
                    "seed": b"seed".hex(),
                    "steps": encoding.steps,
                    "words": words.tolist(),
                    "decoded": [np.round(t, 9).tolist() for t in encoding.decode(words, 1)],
                }
            )
    return made


def _graph() -> dict[str, Any]:
    source = graph.beacon(bytes(32), {"a": bytes(32), "b": bytes(range(32))})
    names = [f"s{i:02d}" for i in range(20)]
    policy = params.Policy(
        complete_up_to=5, security=8, correctness=4, ring_corrupt=0.1, dropout=0.2, holders_up_to=12
    )
    made = graph.topology(source, names, tuple(names), policy, 20)
    return {
        "beacon": source.hex(),
        "policy digest": params.Policy().digest.hex(),
        "ring": list(made.ring),
        "holders": list(made.holders),
        "neighbours of s00": list(made.neighbours("s00")),
        "cohort of 4 in round 7": list(graph.draw_cohort(source, names, 7, 4)),
        "rotation signs": rotation.signs(bytes(32), 1, 20).tolist(),
    }


def _session() -> dict[str, Any]:
    """Three silos with fixed coins, from the first key to the sum: every message in hexadecimal."""
    world = World(3, seed="vectors").enrol()
    encoding = Encoding(21, 3, (4,), (1.0,))
    header = world.header(encoding)
    opened = world.begin(header)
    data = vectors(world.names, (4,))
    uploads = {}
    for name in world.names:
        record, frames = world.silos[name].upload(data[name], b"rounding")
        words = next(frames)
        opened.begin_upload(record)
        opened.add_frame(name, 0, words)
        opened.finish_upload(name)
        uploads[name] = {
            "blobs": {holder: blob.hex() for holder, blob in record.blobs},
            "commitments": [c.hex() for c in record.commitments],
            "signature": record.signature.hex(),
            "masked": words.tolist(),
        }
    survivors, total = world.finish(opened)
    return {
        "coins": "draw i (from 1) of source s is the first bytes of SHAKE-128(s + '/' + i); see world.dice",
        "first draw": dice("vectors/silo-000")(16).hex(),
        "sid": world.setup.sid.hex(),
        "agreement": records.agreement(world.policy.digest, world.roster).hex(),
        "h": header.h.hex(),
        "survivors digest": records.survivors_digest(survivors).hex(),
        "inputs": {name: data[name][0].tolist() for name in world.names},
        "uploads": uploads,
        "sum": total[0].tolist(),
    }


def _contribution() -> dict[str, Any]:
    """The same sum where two must contribute, and the first silo does: what is new in it."""
    world = World(3, seed="vectors").enrol()
    header = world.header(Encoding(21, 3, (4,), (1.0,)), contributors=2)
    world.begin(header)
    record, _ = world.silos["silo-000"].upload(
        vectors(world.names, (4,))["silo-000"], b"rounding", contributes=True
    )
    assert record.word is not None
    said = {"word": record.word.hex(), "signature": record.signature.hex()}
    return {"contributors": 2, "h": header.h.hex(), "uploads": {"silo-000": said}}


def make() -> dict[str, Any]:
    return {
        "primitives": _primitives(),
        "encodings": _encodings(),
        "graph": _graph(),
        "session": _session(),
        "contribution": _contribution(),
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(make(), indent=1) + "\n")
