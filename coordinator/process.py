"""The coordinator as a process: keys, socket, signals, exit status."""

from __future__ import annotations

import hashlib
import logging
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zmq

from config.errors import Busy
from config.parent import forks
from config.settings import Settings
from coordinator import checkpoint, reopen
from coordinator.evaluation import Apart, Inline, scorer
from coordinator.exchange import Interrupted, RoundFailed, WaitedInVain
from coordinator.loop import run_study
from coordinator.network import NetworkCarrier
from coordinator.prometheus import CoordinatorMetrics
from coordinator.runlog import RunLog
from coordinator.scores import first_unscored
from coordinator.turns import Slots
from crypto.identity.roster import Roster
from methods.base import Method, silo_name
from methods.tasks.base import Task
from models.device import cards, slots_of, use_device
from report import events
from report.files import silo_names
from study.agreement import cohort_source, sum_assumption
from study.public_start import start_publicly
from study.sizes import upload_bytes
from wire.backlog import ALLOWANCE
from wire.counter import ByteCounter
from wire.crowd import raise_file_limit
from wire.keyring import Keyring
from wire.messages import FAILED as FAILED_RUN
from wire.messages import INTERRUPTED as INTERRUPTED_RUN
from wire.prometheus import MetricsServer, address_of
from wire.router import UNREAD, Router

__all__ = ["FAILED", "INTERRUPTED", "WAITED", "RoundFailed", "WaitedInVain", "doors", "serve"]

log = logging.getLogger("coordinator")
INTERRUPTED = 130
NOTHING: Mapping[str, str] = {}
FAILED = 3  #: the run could not be completed with the silos that are left
WAITED = 4  #: silos were waited for, and the stated time is up


def doors(roster: Roster) -> tuple[dict[bytes, str], dict[bytes, str]]:
    """Whose transport keys open a connection, by the name of the silo; and whose did once."""
    allowed = {card.curve.encode(): silo_name(i) for i, card in enumerate(roster.silos)}
    return allowed, {r.curve.encode(): r.name for r in roster.revoked}


def serve(
    run: Path,
    keys: Keyring,
    *,
    settings: Settings,
    task: Task,
    method: Method,
    study: bytes,
    slots: int = 0,
    host: str = "127.0.0.1",
    bound: Callable[[int], None] = lambda port: None,
    enrol_seconds: float = 60.0,
    agreed: Mapping[str, str] = NOTHING,
    grace: float = 0.0,
    patience: float = 0.0,
    expected: tuple[str, ...] = (),
    simulated: bool = False,
) -> int:
    """Run all rounds and leave a complete run directory. `bound` is called with the port once it is
    open. `agreed`: further named hashes that every silo must match, beside the task's own.

    `grace`: seconds for a silo whose connection ended to come back into the exchange it was in;
    `patience`: seconds for which a round that lacks silos waits. Both are 0 where silos are not
    restarted. `expected`: the silos to wait for before the first round; empty: all. `simulated`:
    small cohorts are drawn from the run's seed and not from the silos' nonces. Raises RoundFailed
    when too few silos are left; what is finished is kept.
    """
    stop = {"asked": False}

    def ask(*_: Any) -> None:
        stop["asked"] = True

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    server, router, runlog = None, None, RunLog(run)
    start_publicly(run, settings, task)
    task.keep_features_in(run / "features")
    # Forked before anything is open here: what it inherits would outlive this process.
    score = scorer(method, task, settings.seed)
    evaluator = (
        Apart(score, lambda: stop["asked"], device=settings.device) if forks() else Inline(score)
    )
    use_device(settings.device)  # after the fork above: none may follow
    try:
        if settings.metrics:
            figures = CoordinatorMetrics(settings.rounds, settings.silos, silo_names(run))
            runlog.observer = figures.observe
            try:
                server = MetricsServer(figures, *address_of(settings.metrics))
            except OSError as e:
                where = f"METRICS={settings.metrics}"
                raise Busy(
                    f"{where} cannot be listened on ({e.strerror}); give another port."
                ) from None
            log.info("figures for Prometheus on port %d", server.port)
        raise_file_limit()
        roster = keys.pinned()
        allowed, revoked = doors(roster)
        identities = {silo_name(i): card.identity for i, card in enumerate(roster.silos)}
        unread = min(UNREAD, upload_bytes(method) + ALLOWANCE)
        router = Router(keys.curve, allowed, ByteCounter(), revoked, unread)
        try:
            port = router.bind(host, settings.port)
        except zmq.ZMQError as e:
            raise Busy(
                f"The coordinator cannot listen on {host}:{settings.port} ({e.strerror}); "
                "give another PORT, or 0 for any free one."
            ) from None
        folder = run / "checkpoint"
        resume, midway, opened = (
            checkpoint.read(folder),
            checkpoint.read_midway(folder),
            reopen.read(folder),
        )
        if resume is not None:
            runlog.truncate_rounds(first_unscored(run, resume))
        finished = resume.finished if resume is not None else 0
        runlog.event(events.Listening(port=port, round=finished))
        bound(port)
        run_id = hashlib.sha256(f"run:{run.name}".encode() + study).digest()
        content = {**task.agreement(), **method.agreement, **agreed}
        carrier = NetworkCarrier(
            router,
            settings,
            identities=identities,
            run_id=run_id,
            study=study,
            runlog=runlog,
            slots=Slots(slots) if slots else _slots(settings),
            should_stop=lambda: stop["asked"] or evaluator.look(),
            content=content,
            grace=grace,
            patience=patience,
            folder=folder,
            cohort_source=cohort_source(settings) if simulated else b"",
        )
        try:
            if opened is not None and opened.round == finished:
                carrier.reopen(enrol_seconds, opened)
            if finished < settings.rounds:
                carrier.enrol(
                    enrol_seconds,
                    finished,
                    resume.figures.get("members", ()) if resume else expected,
                )
            else:  # a crash at the very end: whoever comes is only told that the run is over
                carrier.members.wait(
                    min(grace, 5.0), lambda: carrier.members.here >= set(carrier.members.names)
                )
            runlog.disclosures(method, settings.secagg, sum_assumption(settings))
            run_study(
                method,
                task,
                settings=settings,
                carrier=carrier,
                runlog=runlog,
                resume=resume,
                evaluator=evaluator,
                should_stop=lambda: stop["asked"],
                midway=midway,
            )
            runlog.event(events.Finished())
            return 0
        except Interrupted:
            carrier.stop(INTERRUPTED_RUN)
            runlog.event(events.Interrupted())
            return INTERRUPTED
        except RoundFailed as e:
            carrier.stop(FAILED_RUN)
            runlog.event(events.Failed(why=str(e)))
            raise
    finally:
        evaluator.close()
        if router is not None:
            router.close()
        if server is not None:
            server.close()


def _slots(settings: Settings) -> Slots:
    """Of a simulation: silos of other machines have cards that nobody here knows."""
    spread = cards() if settings.launcher == "local" else 1
    return Slots(slots_of(settings.slots), spread)
