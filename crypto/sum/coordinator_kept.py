"""A sum whose shares are being asked for, as something that survives a crash of the coordinator.

Between asking and having, the coordinator must not forget: shares are released once. What is kept
is what it has seen anyway (signed uploads, signatures, the running sum under its masks), so it
tells whoever reads it nothing new. A thawed sum asks the same holders the very same questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crypto.errors import Refusal
from crypto.sum import fields
from crypto.sum.coordinator import OpenSum, SumState
from crypto.sum.coordinator_setup import CoordinatorSetup
from crypto.sum.opening import Opening
from crypto.sum.params import Policy
from crypto.sum.records import (
    Endorsement,
    KeyList,
    NonceList,
    SumHeader,
    UploadRecord,
    survivors_digest,
)

__all__ = ["freeze", "thaw"]


def freeze(opened: OpenSum, setup: CoordinatorSetup) -> tuple[dict[str, Any], np.ndarray]:
    """Everything but the roster and the policy, which whoever restarts has; and the masked
    words.
    """
    if opened.state is not SumState.UNMASKING or opened._running.total is None:
        raise RuntimeError("only a sum that waits for shares is kept")
    record = {
        "keys": setup.key_list().to_record(),
        "nonces": setup.nonce_list().to_record(),
        "header": opened.header.to_record(),
        "survivors": list(opened.survivors),
        "uploads": [opened._records[silo].to_record() for silo in sorted(opened._records)],
        "endorsements": [
            opened._endorsements[silo].to_record() for silo in sorted(opened._endorsements)
        ],
    }
    return record, opened._running.total


def thaw(
    record: Any, words: np.ndarray, roster: Mapping[str, bytes], run_id: bytes, policy: Policy
) -> OpenSum:
    """The sum again, waiting for shares. Everything is checked as when it first arrived; Refusal if
    it does not fit.
    """
    names = ("keys", "nonces", "header", "survivors", "uploads", "endorsements")
    r = fields.only("kept sum", record, *names)
    setup = CoordinatorSetup(roster, run_id, policy)
    for offer in KeyList.from_record(r["keys"]).offers:
        setup.receive_offer(offer)
    setup.key_list()
    for reveal in NonceList.from_record(r["nonces"]).reveals:
        setup.receive_reveal(reveal)
    setup.nonce_list()
    header = SumHeader.from_record(r["header"])
    if (
        header.sid != setup.sid
        or words.shape != (header.encoding.words,)
        or words.dtype != np.dtype("<u8")
    ):
        raise Refusal("wrong-shape", "the kept sum is not of the kept session")
    opened = OpenSum(header, setup)
    opened.survivors = tuple(r["survivors"])
    opened._survivors_digest = survivors_digest(opened.survivors)
    uploads = [UploadRecord.from_record(u) for u in r["uploads"]]
    opened._records = {upload.silo: upload for upload in uploads}
    opened._running.done = list(opened.survivors)
    opened._running.total = header.encoding.room()
    opened._running.total[:] = words
    opened.state = SumState.PROPOSED
    for endorsement in r["endorsements"]:
        opened.receive_endorsement(Endorsement.from_record(endorsement))
    if not set(opened.survivors) <= opened._records.keys() or not opened.endorsed_enough:
        raise Refusal("wrong-shape", "the kept sum lacks uploads or signatures")
    opened._opening = Opening(header.h, opened.topology, opened.survivors, opened._records)
    return opened
