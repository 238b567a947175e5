"""A silo as a process: one socket, one loop around `silo.session`, its keys, its journal, its
log.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import BUSY, Busy, UserError
from config.settings import Settings
from crypto.errors import Refusal
from crypto.identity.statements import Signer
from crypto.oprf.peers import Peers
from crypto.sum.params import Policy, policy_for
from crypto.sum.silo import Limits, SiloSum
from crypto.sum.silo_notes import RunNotes
from methods.base import Method, SiloView
from methods.dp.coverage import unit_of
from models.device import device_words, use_device
from silo.gate import Gate
from silo.home import Home, features_in
from silo.journal import FileJournal
from silo.kept_shares import KeptShares
from silo.ledger import Ledger, budget_of
from silo.memory import MemoryFile
from silo.prometheus import SiloMetrics
from silo.record import Record
from silo.redial import SILENT, Redial
from silo.round_file import RoundFile
from silo.rules import NO_RULES, OUTSIDE_HOURS, Rules
from silo.session import Session, State
from study.agreement import cohort_source, rounding_seed, study_hash
from study.sizes import broadcast_bytes
from wire.backlog import ALLOWANCE
from wire.dealer import Cut, Dealer
from wire.messages import VERSION, Broadcast, Hello, Refused
from wire.prometheus import MetricsServer, address_of
from wire.stored import give_back, keep_freed

__all__ = ["AGAIN", "open_ledger", "serve"]

#: the coordinator stopped before the study was finished: whoever watches this process starts it
#: again
AGAIN = BUSY
NOTHING: Mapping[str, str] = {}
_ALONE = nullcontext()
_LOOK = 30.0  #: seconds between two looks at the clock, outside of a silo's hours

log = logging.getLogger("silo")


def open_ledger(
    home: Path,
    name: str,
    view: SiloView,
    method: Method,
    most: float = math.inf,
    study: bytes = b"",
) -> Ledger:
    """The silo's own, in its folder; or, where LEDGER names one, the ledger of this corpus and silo
    there.

    A LEDGER folder serves simulations, whose partition may change from run to run: there it must be
    the same records. `most`: the silo's own bound on epsilon. `study`: the hash of what is charged.
    """
    settings, corpus = view.settings, view.task.corpus_hash.encode()
    held = hashlib.sha256(corpus + np.asarray(view.data.indices, np.int64).tobytes())
    path, shared = home / "ledger.jsonl", bool(settings.ledger)
    if shared:
        path = Path(settings.ledger) / f"{hashlib.sha256(corpus).hexdigest()[:16]}-{name}.jsonl"
    budget = budget_of(settings)
    budget = replace(budget, epsilon=min(budget.epsilon, most))
    unit = unit_of(settings, view.task, method)
    return Ledger(path, budget, held.hexdigest()[:32], shared, unit, study.hex())


def _join_once(journal: FileJournal, study: bytes, run: bytes) -> None:
    """One run of a study, across restarts too: two runs would give two sums over the same rounds.

    A run in which no sum was begun does not count, but for its setups. An operator who wants another
    one gives the silo a new journal.
    """
    key = f"run/{study.hex()}"
    earlier = journal.get(key)
    if earlier == run.hex():
        return
    # crypto.sum.silo's note of the last sum
    if earlier is not None and journal.get(f"last/{earlier}") is not None:
        raise Refusal(
            "second-sum",
            "this silo took part in another run of this study; journal.jsonl remembers it",
        )
    if earlier is not None:
        RunNotes(journal, run).count_on_from(RunNotes(journal, bytes.fromhex(earlier)))
    journal.put(key, run.hex())


def _last_number(journal: FileJournal, study: bytes) -> int:
    """Of the last sum heard of in this study's run: a coordinator whose clock is behind counts on
    from there.
    """
    run = journal.get(f"run/{study.hex()}")
    last = journal.get(f"last/{run}") if run is not None else None
    return int(last.split(" ")[0]) if last is not None else 0


def _drawn_cohorts(settings: Settings, policy: Policy, simulated: bool) -> dict[str, Any]:
    """What a silo holds a coordinator to in rounds that the corrupt silos could outnumber."""
    if policy.corrupt_among == "roster":
        return {}
    return {
        "cohort": settings.cohort_size,
        # The draw is among the members: with honest silos left out, it falls on corrupt ones.
        "min_roster_share": 1 - policy.dropout,
        "cohort_source": cohort_source(settings) if simulated else b"",
    }


def serve(
    home: Home,
    *,
    address: str,
    settings: Settings,
    task: Any,
    data: Any,
    method: Method,
    simulated: bool = False,
    rules: Rules = NO_RULES,
    agreed: Mapping[str, str] = NOTHING,
    silent: float = SILENT,
    record: Record | None = None,
    work: Path | None = None,
    turn: AbstractContextManager[object] = _ALONE,
) -> int:
    """Take part until the coordinator says stop. Returns an exit status.

    `address` may name several, with commas between: where the coordinator is, or may be restarted.
    A connection that ends is dialled again, for `silent` seconds without a word (silo.redial).

    `simulated`: privacy noise and small cohorts come from the run's seed, so that both runners give
    the same model. Everywhere else they come from the operating systems, and nobody can subtract
    the noise or foresee the cohorts. `rules`: this
    silo's own, which win over the study's. `agreed`: further named hashes that every party must
    match, beside the task's own (the roster, the disclosures). `record`: what this silo writes down
    for its own officer. `work`: where the study's journal and memory are; None: in the silo's
    folder. `turn`: held while it works, where silos share a process.
    """
    use_device(settings.device, home.index)
    keep_freed()
    keys, identities, coordinator = home.keys, home.identities, home.roster.coordinator
    index, name = home.index, home.name
    work = work or home.path
    journal = FileJournal(work / "journal.jsonl")
    content = {**task.agreement(), **method.agreement, **agreed}
    study = study_hash(settings, content, task.name)

    def new_party(run: bytes) -> SiloSum:
        _join_once(journal, study, run)
        policy = policy_for(settings.fraction, settings.silos)
        limits = Limits(
            min_survivors=max(settings.minimum, rules.minimum_survivors),
            lane_bits=frozenset({settings.bits}),
            policy=policy,
            **_drawn_cohorts(settings, policy, simulated),
        )
        return SiloSum(
            name, keys.identity, roster=identities, run_id=run, limits=limits, journal=journal
        )

    secret_bytes = None if simulated else lambda round, purpose: secrets.token_bytes(32)
    peers = Peers(
        index,
        keys.identity,
        list(identities.values()),
        run=lambda: bytes.fromhex(journal.get(f"run/{study.hex()}") or ""),
        journal=journal,
    )
    signer = Signer(name, keys.identity, identities)
    view = SiloView(
        index,
        task,
        data,
        settings,
        home.secret,
        secret_bytes=secret_bytes,
        signer=signer,
        peers=peers,
    )
    features = features_in(work, study)

    @contextmanager
    def working() -> Iterator[None]:
        with turn:
            task.keep_features_in(features)
            yield

    ledger = open_ledger(home.path, name, view, method, rules.maximum_epsilon, study)
    limit = broadcast_bytes(method, task)
    give_back(limit)  # the model whose size was asked for
    session = Session(
        gate=Gate(view, method, MemoryFile(work / "memory.safetensors", study.hex()), ledger),
        new_party=new_party if settings.secagg else None,
        rounding_seed=lambda round, exchange: rounding_seed(settings, index, round, exchange),
        broadcast_limit=limit,
        hello=Hello(VERSION, study, content),
        rules=rules.during(settings),
        kept_shares=KeptShares(work / "release.msgpack", journal, identities),
        last_number=lambda: _last_number(journal, study),
        folder=work,
        round_file=RoundFile(None if simulated else work / "round.safetensors"),
    )
    dealer = Dealer(address, keys.curve, coordinator.curve.encode(), limit + ALLOWANCE)
    where = device_words()
    log.info("%s, process %d, computes on %s, dials %s", home.called, os.getpid(), where, address)
    # The silos of a simulation share their settings, and so would share one port: there only the
    # coordinator tells.
    figures, server = (
        (None, None)
        if simulated or not settings.metrics
        else _metrics(home.called, settings.metrics)
    )
    redial = Redial(home.called, address, silent)

    outside_hours = False  # whether its hours stood against the last round that was asked for

    def greet() -> None:
        for said in session.greet():
            if record is not None:
                record.sending(*said)
            dealer.send(*said)

    try:
        while session.state is not State.STOPPED:
            try:
                with working():
                    if record is not None:
                        record.dialled()
                    greet()
                while session.state is not State.STOPPED:
                    wait = 3600.0
                    if outside_hours:  # it looks at its clock, and says when they begin
                        wait = min(_LOOK, rules.closed_for(time.localtime()))
                        if not wait:
                            outside_hours, wait = False, 3600.0
                            log.info("this silo's hours begin")
                            with turn:
                                greet()
                    if (word := dealer.receive(timeout=wait)) is None:
                        continue
                    outside_hours = outside_hours and not isinstance(word[0], Broadcast)
                    redial.heard()
                    with working():
                        began = time.monotonic()
                        if figures is not None:
                            figures.heard(*word)
                        if record is not None:
                            record.heard(*word)
                        for message, payload in session.hear(*word):
                            if record is not None:
                                record.sending(message, payload)
                            dealer.send(message, payload)
                            if isinstance(message, Refused) and message.attack == OUTSIDE_HOURS:
                                outside_hours = True
                            if figures is not None:
                                figures.sent(message, payload, time.monotonic() - began)
                    del word
            except Cut as e:
                session.cut()
                log.warning("%s: %s; dialling again", dealer.address, e)
                if record is not None:
                    record.cut(dealer.stood)
                redial.cut(e)
                dealer.redial()
        if session.turned_away:
            raise UserError(f"The coordinator did not let {home.called} in: {session.turned_away}.")
        log.info("%s ends: the coordinator said stop", home.called)
        if not session.finished:
            return AGAIN
        with working():
            task.forget_features()
        ledger.settle()
        return 0
    finally:
        if server is not None:
            server.close()
        if record is not None:
            record.flush()
        dealer.close()
        journal.close()
        ledger.close()


def _metrics(name: str, address: str) -> tuple[SiloMetrics, MetricsServer]:
    figures = SiloMetrics(name)
    try:
        server = MetricsServer(figures, *address_of(address))
    except OSError as e:
        raise Busy(
            f"METRICS={address} cannot be listened on ({e.strerror}); give another port."
        ) from None
    log.info("figures for Prometheus on port %d", server.port)
    return figures, server
