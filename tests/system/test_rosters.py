"""A coordinator, or a former silo, against the roster that every silo pinned: real sockets, each
refused by name.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from config.errors import UserError
from config.load import load
from config.site import read_site
from coordinator.process import doors
from crypto.derive import Label
from crypto.identity.card import make_card
from crypto.identity.keys import Identity
from crypto.sum.records import KeyList, KeyOffer, agreement
from methods.dp.coverage import large_delta
from silo.home import Home
from silo.program import rules_of, silo_study
from silo.redial import Redial
from silo.rules import Hours, Rules
from study.agreement import study_hash
from study.prepare import prepare
from tests.conftest import lines, sottovoce, summary, wait_for
from tests.consortium import Consortium
from tests.system.liar import Liar, refused
from tests.system.puppets import Puppet
from tests.system.stage import RUN
from wire import messages as m
from wire.counter import ByteCounter
from wire.dealer import Cut, Dealer
from wire.keyring import Keyring, read_roster
from wire.keys import CurveKeys
from wire.router import Router

Make = Callable[..., Liar]
Log = pytest.LogCaptureFixture


def test_a_coordinators_own_roster_convinces_no_silo(make: Make, caplog: Log) -> None:
    """Its roster has a silo it made up, and its own key under a real one's name; it can sign
    neither for the others.
    """
    liar = make()
    victim, posed = liar.names[:2]
    pinned = read_roster(liar.stage.path / "silos" / victim / "roster.json")
    pinned.verify()
    ghost, mine = Identity.generate(), Identity.generate()
    invented = {**liar.stage.roster, "silo-004": ghost.public}
    swapped = {**liar.stage.roster, posed: mine.public}
    for roster, name, identity, attack in (
        (invented, "silo-004", ghost, "unknown-silo"),
        (swapped, posed, mine, "key-substitution"),
    ):
        honest = [o for o in liar.offers().key_list().offers if o.silo != name]
        agreed = agreement(liar.stage.policy.digest, roster)
        public, commitment = bytes(31) + b"\x09", bytes(32)
        parts = KeyOffer.signed_parts(RUN, agreed, name, public, commitment)
        false = KeyOffer(name, public, commitment, identity.sign(Label.OFFER, *parts))
        with refused(attack, caplog):
            liar.step(
                victim, "keys", KeyList(tuple(sorted((*honest, false), key=lambda o: o.silo)))
            )
    liar.enrol().all_is_well()


def test_a_coordinator_cannot_count_a_revoked_silo_in(make: Make, caplog: Log) -> None:
    """Five were enrolled; the fifth was revoked, and its key is in the coordinator's hands."""
    liar = make(4, start=False, revoked=1)
    gone = Keyring.load(liar.stage.path / "silos" / "silo-004")
    assert "silo-004" not in liar.stage.roster
    liar.stage.start()
    puppet = Puppet("silo-004", gone.identity, liar.stage.roster, liar.stage.policy)
    offers = (*liar.offers().key_list().offers, puppet.begin(RUN))
    with refused("unknown-silo", caplog):
        liar.step(liar.names[0], "keys", KeyList(offers))
    # Under the name of one that stayed it fares no better.
    puppet = Puppet("silo-001", gone.identity, liar.stage.roster, liar.stage.policy)
    offers = tuple(
        puppet.begin(RUN) if o.silo == "silo-001" else o for o in liar.offers().key_list().offers
    )
    with refused("key-substitution", caplog):
        liar.step(liar.names[0], "keys", KeyList(offers))
    liar.enrol().all_is_well()


def test_revoked_and_unknown_keys_do_not_get_through_the_door(tmp_path: Path, caplog: Log) -> None:
    consortium = Consortium(tmp_path, ("north", "east", "south", "west"))
    consortium.enact(consortium.roster.revoke("west", "it left"))
    hub = consortium.rings["hub"]
    allowed, revoked = doors(hub.pinned())
    router = Router(hub.curve, allowed, ByteCounter(), revoked)
    address = f"tcp://127.0.0.1:{router.bind('127.0.0.1', 0)}"
    dealers = [
        Dealer(address, consortium.rings[n].curve, hub.curve.public) for n in ("west", "south")
    ]
    dealers.append(Dealer(address, CurveKeys.generate(), hub.curve.public))
    try:
        with caplog.at_level(logging.WARNING, "wire"):
            for dealer in dealers:
                with contextlib.suppress(Cut):  # who is refused may hear of it before it has spoken
                    dealer.send(m.Hello("0", b""))
            event = wait_for(lambda: router.receive(0.1), 20)
            assert event.silo == "silo-002"  # its place in the roster, and not the fourth any more
            wait_for(
                lambda: "refused (revoked-key): a connection with a key of west" in caplog.text, 20
            )
            wait_for(lambda: "refused (unknown-silo)" in caplog.text, 20)
        assert router.receive(0.2) is None
        ends = [_end_of(dealer) for dealer in (dealers[0], dealers[2])]
        # a stranger is told no more
        assert all(end.refused for end in ends) and str(ends[0]) == str(ends[1])
        # Who listens with another key than the pinned one refuses nobody: it cannot read what it is
        # sent.
        mistaken = Dealer(address, consortium.rings["south"].curve, CurveKeys.generate().public)
        dealers.append(mistaken)
        assert not _end_of(mistaken).refused
        # A probe is answered on its own connection and opens no route for its sender.
        asking = Dealer(address, consortium.rings["north"].curve, hub.curve.public)
        dealers.append(asking)
        asking.send(m.Probe("0"))
        wait_for(lambda: router.receive(0.05) is None and asking.receive(0.05), 20)
        assert router.connected == {"silo-002"}
    finally:
        for dealer in dealers:
            dealer.close()
        router.close()


def _end_of(dealer: Dealer) -> Cut:
    with pytest.raises(Cut) as end:
        dealer.receive(20)
    return end.value


def test_a_silo_that_is_not_let_in_stops_after_an_hour_of_nothing_else() -> None:
    now = [0.0]
    redial = Redial("silo-001", "hub:5555", 7200.0, lambda: now[0])

    def cut(at: float, refused: bool = True) -> None:
        now[0] = at
        redial.cut(Cut("refused", refused))

    for at in range(0, 3600, 30):
        cut(at)
    cut(3599, refused=False)  # somebody who can only forge refusals now and then stops nobody
    cut(3601)
    redial.heard()
    cut(3700)
    cut(7250)  # an hour after 3601, but the word between them counts
    with pytest.raises(UserError, match="not let the key of silo-001 in: it was revoked, or"):
        cut(7300)
    redial.heard()
    cut(14000, refused=False)
    with pytest.raises(UserError, match="No coordinator at hub:5555 for 7200 s"):
        cut(14501, refused=False)


def test_keys_are_rotated_and_revoked_between_runs(tmp_path: Path) -> None:
    """Real programs: version 2 revokes west and has new keys of north. South has not pinned it yet,
    then has.
    """
    consortium = Consortium(tmp_path, ("north", "east", "south", "west"))
    first = consortium.roster
    coming = consortium.rings["north"].rotate()
    second = first.revoke("west", "it left").rotate(coming.card)
    for name in ("hub", "north", "east", "south"):
        second = consortium.rings[name].sign(second)
    for name in ("hub", "north", "east"):
        consortium.rings[name].pin(second)
    consortium.study(method="fedavg", corpus="distant:sentences=600", rounds=1, epochs=1, minimum=3)
    try:
        port, study = consortium.hub()

        def theirs(name: str) -> str:
            site = read_site(consortium.site(name, port))
            return silo_study(site, Home(tmp_path / name), rules_of(site.limits)).hash.hex()

        consortium.silo("north", port, study)
        consortium.silo("east", port, study)
        consortium.silo("west", port, theirs("west"))  # it has not heard of version 2
        assert theirs("south") != study
        outdated = consortium.silo("south", port, theirs("south"))
        assert outdated.wait(120) == 2
        assert (
            "did not let south in: it has another roster and another common secret"
            in consortium.log("south")
        )
        # What a doctor says of a machine beside a running coordinator, with a program of the same
        # silo running.
        checked = sottovoce("doctor", "--config", str(tmp_path / "east.toml"))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert (
            "ok    reach" in checked.stdout
            and "ok    clock" in checked.stdout
            and "fail" not in checked.stdout
        )
        consortium.rings["south"].pin(second)
        consortium.silo("south", port, study)
        for name in ("hub", "north", "east", "south"):
            assert consortium.processes[name].wait(120) == 0, consortium.everything()
        assert "refused (revoked-key): a connection with a key of west" in consortium.log("hub")
        assert summary(consortium.run)["silos"] == 3
        assert lines(consortium.run / "rounds.jsonl")[0]["survivors"] == [
            "silo-000",
            "silo-001",
            "silo-002",
        ]
        # Once more: the study is finished, and says so.
        again = consortium.start("again", "coordinator", "--config", str(tmp_path / "study.toml"), "--home",
                                 str(tmp_path / "hub"), "--out", str(tmp_path))  # fmt: skip
        assert again.wait(120) == 0 and "this study is finished" in consortium.said("again")
    finally:
        consortium.close()


# The silo's own rules


def test_rules_win_over_the_study(
    consortium: Consortium, capsys: pytest.CaptureFixture[str]
) -> None:
    from cli.main import main

    def refused_with(sentence: str, more: str = "", **study: object) -> None:
        consortium.study(
            **({"method": "fedavg", "corpus": "distant:sentences=600", "rounds": 5} | study)
        )
        file = consortium.site("north", 9, more)
        with pytest.raises(SystemExit) as ended:
            main(["silo", "--config", str(file), "--accept", "0" * 64])
        said = capsys.readouterr().err
        assert ended.value.code == 2 and sentence in said, said
        assert len(said.strip().splitlines()) == 1

    refused_with("allows only lazymil, fedatt", '[limits]\nmethods = ["lazymil", "fedatt"]\n')
    refused_with("The study has 5 rounds, and this silo allows 4", "[limits]\nmaximum_rounds = 4\n")
    refused_with(
        "wants sums over at least 4 silos, and the roster has 3",
        "[limits]\nminimum_survivors = 4\n",
    )
    refused_with("epsilon is infinite, and this silo allows 3", "[limits]\nmaximum_epsilon = 3\n")
    private: dict[str, object] = {"dp": "record", "epsilon": 1.0, "delta": 0.3}
    refused_with(
        "states its epsilon at delta 0.3, and this silo allows 1e-05 (maximum_delta)",
        "[limits]\nmaximum_epsilon = 1\n",
        **private,
    )
    refused_with("maximum_delta must be between 0 and 1", "[limits]\nmaximum_delta = 1.5\n")
    refused_with(
        'hours must be as in "18:00-06:00", not "evenings"', '[limits]\nhours = "evenings"\n'
    )
    refused_with('unknown key "limits.method". Did you mean "methods"?', "[limits]\nmethod = 3\n")
    refused_with("limits.maximum_rounds must be a whole number", '[limits]\nmaximum_rounds = "4"\n')
    refused_with('"out" belongs to one machine', out="runs")
    refused_with('"silos" is how many the roster has', silos=3)
    refused_with("every sum is masked", secagg=False)
    refused_with("needs at least 4", minimum=4)
    refused_with("--accept names another study than this one")
    consortium.site("north", 9, coordinatr="x")
    with pytest.raises(SystemExit):
        main(["silo", "--config", str(consortium.path / "north.toml")])
    assert 'unknown key "coordinatr". Did you mean "coordinator"?' in capsys.readouterr().err
    assert not (consortium.path / "north" / "consents.jsonl").exists()


def test_consent_is_kept_and_is_for_one_study(consortium: Consortium) -> None:
    home = Home(consortium.path / "north")
    assert not home.agreed_to("a" * 64)
    home.agree("a" * 64, "A test", "--accept")
    assert home.agreed_to("a" * 64) and not home.agreed_to("b" * 64)
    assert (home.path / "consents.jsonl").stat().st_mode & 0o077 == 0


def test_hours_and_budgets() -> None:
    def at(hour: int, minute: int = 0) -> time.struct_time:
        return time.struct_time((2026, 1, 1, hour, minute, 0, 0, 1, 0))

    night, day = Hours.parse("18:00-06:00"), Hours.parse("09:30-17:00")
    assert (
        night.holds(at(18))
        and night.holds(at(2))
        and not night.holds(at(6))
        and not night.holds(at(17, 59))
    )
    assert day.holds(at(9, 30)) and not day.holds(at(17)) and not day.holds(at(9, 29))
    assert night.seconds_until(at(17)) == 3600 and night.seconds_until(at(3)) == 0
    assert day.seconds_until(at(18)) == 15 * 3600 + 1800

    from config.settings import Settings

    noisy = Settings(dp="record", epsilon=8.0)
    assert Rules(maximum_epsilon=3.0).applied(noisy).epsilon == 3.0
    assert Rules(maximum_epsilon=9.0).applied(noisy).epsilon == 8.0
    assert Rules().maximum_epsilon == math.inf and Rules().applied(noisy) == noisy
    Rules().check(noisy, 3)
    with pytest.raises(UserError, match="this silo allows 1e-05"):
        Rules(maximum_epsilon=1.0).check(Settings(dp="record", epsilon=1.0, delta=0.3), 3)
    Rules(maximum_delta=0.3).check(Settings(dp="record", epsilon=1.0, delta=0.3), 3)
    assert large_delta(noisy, 90_000) == "" and large_delta(Settings(dp="off"), 0) == ""
    assert "not below 1/200000" in large_delta(noisy, 200_000)


def test_a_card_names_no_strange_party() -> None:
    for name in ("", "North", "a b", "../x", "n" * 41):
        with pytest.raises(Exception, match="is not a name"):
            make_card(name, "silo", Identity.generate(), CurveKeys.generate().public.decode())


@pytest.mark.parametrize("method", ["fedavg", "fedner"])
def test_a_machine_with_its_own_corpus_holds_all_of_it(method: str) -> None:
    corpus = {"fedavg": "distant:sentences=600", "fedner": "ner:sentences=30,dev=12,test=12"}[
        method
    ]
    settings = load(None, {"method": method, "corpus": corpus, "silos": "3"})
    mine, hub = prepare(settings, 1), prepare(settings, -1)
    assert mine.partition.sizes == (0, mine.task.train_size(), 0) and hub.partition.sizes == (
        0,
        0,
        0,
    )
    assert study_hash(mine.settings, mine.task.agreement()) == study_hash(
        hub.settings, hub.task.agreement()
    )
    assert mine.task.size(mine.task.subset(mine.partition.indices[1])) == mine.task.train_size()
