"""What a silo keeps on its disk of its shares, for whoever asks again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crypto.errors import Refusal
from crypto.sum.coordinator import OpenSum
from crypto.sum.records import UnmaskRequest
from crypto.sum.silo_kept import KeptAnswer, begun
from crypto.sum.silo_limits import MemoryJournal
from silo.kept_shares import KeptShares
from tests.crypto.attacks import run_to_proposal
from tests.crypto.world import World


def _kept(opened: OpenSum, world: World) -> tuple[list[KeptAnswer], UnmaskRequest]:
    """What four silos keep when they sign, and the certified request to the first."""
    kept: list[KeptAnswer] = []
    for name, proposal in opened.propose().items():
        opened.receive_endorsement(world.silos[name].endorse(proposal, kept.append))
    return kept, opened.unmask_requests()["silo-000"]


def test_a_release_is_said_to_the_same_question_only_and_until_the_round_is_over(
    tmp_path: Path,
) -> None:
    path, world, journal = tmp_path / "release.msgpack", World(4).enrol(), MemoryJournal()
    (mine, *_), request = _kept(run_to_proposal(world)[0], world)

    def restarted() -> KeptShares:
        return KeptShares(path, journal, world.roster)

    restarted().keep(mine)  # killed before the journal's note of it, or before it was asked
    with pytest.raises(Refusal, match="begun another sum"):  # of which the journal knows
        restarted().again(request)
    for payload in (mine.payload, "a later round"):
        journal.put(begun(payload), request.h.hex())
    assert path.stat().st_mode & 0o077 == 0
    assert restarted().again(replace(request, survivors=world.names[1:])) is None
    assert restarted().again(replace(request, h=bytes(32))) is None
    with pytest.raises(Refusal, match="0 valid signatures"):
        restarted().again(replace(request, endorsements=()))
    assert journal.get(mine.payload) is None
    assert restarted().again(request) == mine.release
    assert journal.get(mine.payload) == mine.note
    assert restarted().again(request) == mine.release  # as often as it is asked
    journal.put(mine.payload, "others")  # had another sum over that payload been opened meanwhile
    with pytest.raises(Refusal, match="another sum over the same payload"):
        restarted().again(request)
    journal.put(mine.payload, mine.note)
    again = restarted()
    again.keep(replace(mine, payload="another exchange of the round"))
    assert restarted().again(request) == mine.release
    again.keep(replace(mine, payload="a later round", round=mine.round + 1))
    assert again.again(request) is not None  # the later round's, of the same sum in this test
    assert {k.payload for k in restarted()._kept.values()} == {"a later round"}
    again.forget()
    assert again.again(request) is None and restarted().again(request) is None


def test_a_file_of_releases_that_was_cut_short_is_as_good_as_none(tmp_path: Path) -> None:
    path, world = tmp_path / "release.msgpack", World(4).enrol()
    (mine, *_), request = _kept(run_to_proposal(world)[0], world)
    KeptShares(path, MemoryJournal(), world.roster).keep(mine)
    whole = path.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert KeptShares(path, MemoryJournal(), world.roster).again(request) is None
