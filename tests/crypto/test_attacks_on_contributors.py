"""Attacks on who contributes to a sum, on the state machines; over sockets:
tests/system/test_attacks_on_contributors.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crypto.sum.silo
from crypto.derive import Label
from crypto.errors import Refusal, TooFewContribute
from crypto.sum.contribution import is_word, word_of
from crypto.sum.coordinator import OpenSum
from crypto.sum.coordinator_kept import freeze, thaw
from crypto.sum.params import Policy, least_contributors
from crypto.sum.records import (
    Endorsement,
    Proposal,
    SumHeader,
    UnmaskRequest,
    UploadRecord,
    survivors_digest,
)
from crypto.sum.silo_kept import KeptAnswer
from tests.crypto.attacks import SIZES, Patch, dealt, encoding, refused
from tests.crypto.world import RUN, World, plain, vectors

N, NEEDED = 10, 5  # three may be corrupt


def begun(world: World, number: int = NEEDED) -> OpenSum:
    return world.begin(world.header(encoding(len(world.names)), contributors=number))


def uploaded(world: World, contributors: Collection[str], dead: Collection[str] = ()) -> OpenSum:
    opened, data = begun(world), vectors(world.names, SIZES)
    for name in world.names:
        if name not in dead:
            world.upload(opened, name, data[name], contributes=name in contributors)
    return opened


def words(opened: OpenSum) -> tuple[tuple[str, bytes], ...]:
    return tuple((s, w) for s in opened.uploaded if (w := opened._records[s].word))


def proposal(opened: OpenSum, holder: str, said: tuple[tuple[str, bytes], ...]) -> Proposal:
    survivors = opened.uploaded
    return Proposal(opened.header.h, survivors, dealt(opened, holder, survivors), said)


def signed_by_all(world: World, opened: OpenSum) -> tuple[Endorsement, ...]:
    """What holders that do not look would sign."""
    h, digest = opened.header.h, survivors_digest(opened.uploaded)
    parts = {n: Endorsement.signed_parts(h, n, digest) for n in world.names}
    return tuple(
        Endorsement(h, n, world.identities[n].sign(Label.ENDORSE, *p)) for n, p in parts.items()
    )


def test_too_few_words_are_signed_by_no_holder() -> None:
    world = World(N).enrol()
    opened = uploaded(world, world.names[:4])
    for name in world.names:
        refused(
            "few-contributors",
            partial(world.silos[name].endorse, proposal(opened, name, words(opened))),
        )
    # a refusal changes nothing: with a word more it signs
    late = (*words(opened), ("silo-007", _word(world, opened.header, "silo-007")))
    world.silos["silo-009"].endorse(proposal(opened, "silo-009", late))


def _word(world: World, header: SumHeader, name: str) -> bytes:
    return word_of(world.identities[name], header.h, name)


def test_words_of_another_sum_another_silo_or_nobody_do_not_count() -> None:
    world = World(N).enrol()
    earlier = words(uploaded(world, world.names))
    opened = uploaded(world, world.names)
    good, h = words(opened), opened.header.h
    assert len(good) == N
    fifth = good[4]
    stranger = ("zz-mallory", _word(world, opened.header, "silo-009"))
    endorsed = signed_by_all(world, opened)[4].signature  # a signature on something else
    for false in (
        earlier[4],
        (fifth[0], bytes([fifth[1][0] ^ 1]) + fifth[1][1:]),
        (fifth[0], good[3][1]),
        (fifth[0], bytes(64)),
        (fifth[0], endorsed),
        stranger,
    ):
        said = (*good[:4], false)
        assert not is_word(world.roster.get(false[0], bytes(32)), false[1], h, false[0])
        refused(
            "few-contributors",
            partial(world.silos["silo-000"].endorse, proposal(opened, "silo-000", said)),
        )
    twice = (*good[:4], good[3])
    refused(
        "few-contributors",
        lambda: world.silos["silo-000"].endorse(proposal(opened, "silo-000", twice)),
    )
    world.silos["silo-000"].endorse(proposal(opened, "silo-000", good[:5]))


def test_the_word_of_one_that_is_no_survivor_does_not_count() -> None:
    """It said so, and is then left out of the sum."""
    world = World(N).enrol()
    opened = uploaded(world, world.names[:5])
    survivors = world.names[1:]
    asked = Proposal(
        opened.header.h, survivors, dealt(opened, "silo-009", survivors), words(opened)
    )
    refused("few-contributors", lambda: world.silos["silo-009"].endorse(asked))


def test_a_holder_that_did_not_sign_looks_for_itself(monkeypatch: Patch) -> None:
    """Asked for its shares with a certificate of others, it wants to see the same words."""
    world = World(N).enrol()
    opened = uploaded(world, world.names[:1])
    h, everyone, silo = opened.header.h, opened.uploaded, world.silos["silo-000"]
    blobs = dealt(opened, "silo-000", everyone)
    request = UnmaskRequest(h, everyone, signed_by_all(world, opened), blobs, words(opened))
    refused("few-contributors", lambda: silo.release(request))
    refused("few-contributors", lambda: silo.release(replace(request, words=())))
    assert not world.journals["silo-000"].get(silo.payload(opened.header))
    monkeypatch.setattr(crypto.sum.silo, "check_words", lambda *_: None)
    assert silo.release(request).self_shares


def test_a_holder_that_signed_needs_no_words_again() -> None:
    world = World(N).enrol()
    opened = uploaded(world, world.names)
    asked = proposal(opened, "silo-000", words(opened)[:NEEDED])
    world.silos["silo-000"].endorse(asked)
    request = UnmaskRequest(opened.header.h, opened.uploaded, signed_by_all(world, opened), ())
    assert world.silos["silo-000"].release(request).self_shares


def test_what_is_kept_for_a_restart_was_seen_to_have_contributors() -> None:
    """Before the words are seen nothing is kept, so a restarted silo has nothing to say; after it,
    a certificate is enough.
    """
    world = World(N).enrol()
    opened = uploaded(world, world.names)
    kept: list[KeptAnswer] = []
    silo = world.silos["silo-000"]
    few = proposal(opened, "silo-000", words(opened)[:4])
    refused("few-contributors", lambda: silo.endorse(few, kept.append))
    assert not kept
    silo.endorse(proposal(opened, "silo-000", words(opened)), kept.append)
    again = KeptAnswer.from_record(msgpack.unpackb(msgpack.packb(kept[0].to_record())))
    request = UnmaskRequest(opened.header.h, opened.uploaded, signed_by_all(world, opened), ())
    assert again.say(request, world.roster, world.journals["silo-000"]).self_shares


@pytest.mark.parametrize("claimed", [0, 1, 4, 6, 4096])
def test_the_number_is_the_silos_own(claimed: int) -> None:
    world = World(N).enrol()
    refused("few-contributors", lambda: begun(world, claimed) if claimed else _undemanded(world))


def _undemanded(world: World) -> None:
    """The method demands contributors, and the header does not ask for any."""
    header = world.header(encoding(N))
    world.silos["silo-000"].begin(header, header.broadcast, SIZES, contributors=True)


def test_a_header_that_asks_where_the_method_does_not() -> None:
    """Whether a silo contributes is nobody's business then."""
    world = World(N).enrol()
    header = world.header(encoding(N), contributors=NEEDED)
    refused(
        "few-contributors",
        lambda: world.silos["silo-000"].begin(header, header.broadcast, SIZES),
    )


def test_what_is_not_asked_for_is_not_said() -> None:
    world = World(4).enrol()
    opened = begun(world, 0)
    record, _ = world.silos["silo-000"].upload(vectors(world.names, SIZES)["silo-000"], b"", True)
    assert record.word is None and "word" not in record.to_record()
    assert "contributors" not in opened.header.to_record()


def test_uploads_whose_word_is_missing_false_or_stripped_are_refused_by_the_coordinator() -> None:
    world = World(4).enrol()
    opened = begun(world, 3)
    data = vectors(world.names, SIZES)
    record, _ = world.silos["silo-000"].upload(data["silo-000"], b"", True)
    other, _ = world.silos["silo-001"].upload(data["silo-001"], b"", False)
    assert other.word == b"" and UploadRecord.from_record(other.to_record()) == other
    assert record.word is not None and UploadRecord.from_record(record.to_record()) == record
    refused("wrong-shape", lambda: opened.begin_upload(replace(record, word=None)), "silo-000")
    for word in (b"", bytes(64), bytes([record.word[0] ^ 1]) + record.word[1:]):
        refused(
            "key-substitution", partial(opened.begin_upload, replace(record, word=word)), "silo-000"
        )
    # signed as a whole by a silo whose word is none: it would make holders refuse
    parts = UploadRecord.signed_parts(
        record.h, "silo-000", record.blobs, record.commitments, bytes(64)
    )
    signature = world.identities["silo-000"].sign(Label.UPLOAD, *parts)
    refused(
        "key-substitution",
        lambda: opened.begin_upload(replace(record, word=bytes(64), signature=signature)),
        "silo-000",
    )
    opened.begin_upload(record)


@pytest.mark.parametrize("word", [None, 3, "x", bytes(63), bytes(65)])
def test_words_of_the_wrong_shape(word: object) -> None:
    record = {"h": bytes(32), "survivors": ["a", "b"], "blobs": []}
    for words in ([["a", word]], word, [["a", bytes(64), 1]], [["b", bytes(64)], ["a", bytes(64)]]):
        with pytest.raises(Refusal):
            Proposal.from_record({**record, "words": words})


def test_the_coordinator_knows_before_it_asks(monkeypatch: Patch) -> None:
    world = World(N).enrol()
    opened = uploaded(world, world.names[:4])
    with pytest.raises(TooFewContribute, match="4 of 10 silos had enough .* at least 5 must"):
        opened.propose()


def test_a_sum_that_survived_a_crash_shows_holders_the_words_again() -> None:
    world = World(N).enrol()
    opened = uploaded(world, world.names)
    proposals = opened.propose()
    for name in world.names[:8]:
        opened.receive_endorsement(world.silos[name].endorse(proposals[name]))
    opened.unmask_requests()
    record, masked = freeze(opened, world.setup)
    again = thaw(msgpack.unpackb(msgpack.packb(record)), masked, world.roster, RUN, world.policy)
    requests = again.unmask_requests()
    assert not requests["silo-000"].words and len(requests["silo-009"].words) == NEEDED
    for name, request in requests.items():
        again.receive_release(world.silos[name].release(request))
    survivors, _ = again.result()
    assert survivors == world.names


def test_m_plus_two_by_the_rosters_policy() -> None:
    strict, cohorts = Policy(), Policy(corrupt_among="cohort")
    assert [least_contributors(n, strict, n) for n in (3, 4, 5, 10, 30)] == [2, 3, 3, 5, 11]
    assert least_contributors(5, strict, 10) == 5  # whoever is named alive
    # a draw may fall on more than m: as many as must survive
    assert [least_contributors(n, cohorts, 30) for n in (3, 8, 9)] == [3, 6, 6]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_an_opened_sum_has_m_plus_two_signed_contributors(data: st.DataObject) -> None:
    """Whoever contributes, dies or is left out, and whatever words are shown to each holder."""
    n = data.draw(st.integers(3, 12))
    world = World(n, seed=str(data.draw(st.integers(0, 99)))).enrol()
    needed = least_contributors(n, world.policy, n)
    inputs = vectors(world.names, SIZES)
    opened = world.begin(world.header(encoding(n), contributors=needed))
    contribute = data.draw(st.sets(st.sampled_from(world.names)))
    dead = data.draw(st.sets(st.sampled_from(world.names), max_size=max(0, n // 4)))
    for name in world.names:
        if name not in dead:
            world.upload(opened, name, inputs[name], contributes=name in contribute)
    survivors = tuple(name for name in world.names if name not in dead)
    there = [name for name in survivors if name in contribute]
    if len(survivors) < opened.topology.parameters.n_min:
        return
    signed = 0
    for name in survivors:
        shown = data.draw(st.sets(st.sampled_from(survivors)))
        said = tuple((s, opened._records[s].word or bytes(64)) for s in sorted(shown))
        try:
            world.silos[name].endorse(
                Proposal(opened.header.h, survivors, dealt(opened, name, survivors), said)
            )
            signed += 1
            assert len(shown & contribute) >= needed
        except Refusal as refusal:
            assert refusal.attack == "few-contributors" and len(shown & contribute) < needed
    if len(there) < needed:
        assert not signed
        with pytest.raises(TooFewContribute):
            opened.propose()
        return
    # those that refused hear the whole truth, and the sum is that of the survivors
    proposals = opened.propose()
    for name in survivors:
        try:
            opened.receive_endorsement(world.silos[name].endorse(proposals[name]))
        except Refusal as refusal:  # it signed before
            assert refusal.attack == "split-view"
            parts = Endorsement.signed_parts(opened.header.h, name, survivors_digest(survivors))
            signature = world.identities[name].sign(Label.ENDORSE, *parts)
            opened.receive_endorsement(Endorsement(opened.header.h, name, signature))
    for name, request in opened.unmask_requests().items():
        opened.receive_release(world.silos[name].release(request))
    said_survivors, total = opened.result()
    assert said_survivors == survivors and len(there) >= needed
    assert (total[0] == plain(encoding(n), inputs, survivors)[0]).all()
