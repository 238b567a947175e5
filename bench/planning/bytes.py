"""What a run will put on the wire, counted before it: the messages of every exchange, with blanks
for secrets.

Nothing is trained, masked or signed. A method's own broadcasts and declarations give the arrays;
the records of the secure sum are built blank, in their true lengths and from the true graph; every
message goes through the wire's own encoder into the wire's own counter. So what is counted here and
what is counted in the run can differ only where a silo's answer has a length of its own
(`Exchange.rehearsed`), where silos are lost, or where a sum is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.planning import blanks
from bench.planning.blanks import HASH
from bench.planning.tally import Wire, pieces
from coordinator.cohorts import select
from coordinator.exchange import Call, call_ranges, message_bytes
from coordinator.rundir import shared_secret
from crypto.numbers.encoding import Encoding
from crypto.sum.graph import topology
from crypto.sum.params import policy_for
from crypto.sum.records import SumHeader
from methods.base import (
    Arrays,
    ArraySpec,
    Broadcast,
    Exchange,
    Folded,
    Heard,
    SiloView,
    State,
    silo_name,
)
from methods.common.contribution import contributors_of
from methods.dp.coverage import why_free
from privacy.events import DpSgd, Event, Free, NearGaussianSum, NonPrivate, to_record
from study.prepare import Study
from wire import messages as m
from wire.bundle import laid_out
from wire.counter import ByteCounter
from wire.messages import VERSION

__all__ = ["Rehearsal", "blank_fold", "rehearse"]


@dataclass(frozen=True)
class Rehearsal:
    """A whole run's traffic in the form of traffic.jsonl, and the arrays alone as rounds.jsonl has
    them.
    """

    traffic: list[dict[str, Any]]
    cohorts: list[tuple[int, ...]]
    arrays_up: int
    arrays_down: int
    encodings: tuple[Encoding, ...]  #: of the exchanges that have a masked part
    #: Per round and exchange: the most that one silo sends and receives in it, for what a slow line
    #: can carry.
    busiest: list[list[tuple[int, int]]]

    @property
    def participations(self) -> int:
        return max(1, sum(map(len, self.cohorts)))


def _blank(spec: ArraySpec, weight: bool) -> np.ndarray:
    shape = tuple(n or 0 for n in spec.shape)
    return np.ones(shape, spec.dtype) if weight else np.zeros(shape, spec.dtype)


def _enrol(wire: Wire, study: Study, names: Sequence[str]) -> None:
    settings = study.settings
    keys = m.SumStep("keys", blanks.keys(names).to_record())
    nonces = m.SumStep("nonces", blanks.nonces(names).to_record())
    hello = m.Hello(VERSION, HASH, study.agreement)
    for name in names:
        wire.counter.connection(name)
        wire.up(name, hello)
        wire.down(name, m.Welcome(HASH, 0))
        if settings.secagg:
            wire.up(name, m.SumStep("offer", blanks.offer(name).to_record()))
            wire.down(name, keys)
            wire.up(name, m.SumStep("reveal", blanks.reveal(name).to_record()))
            wire.down(name, nonces)


def _charges(study: Study, exchange: Exchange) -> list[dict[str, Any]]:
    """What a silo's ledger says of one answer, as long as it will be: the figures are blanks, the
    words are not.
    """
    dp = study.settings.dp
    free = {d.name: why_free(study.method, exchange, d.name, dp) for d in exchange.disclosures}
    events: list[tuple[str, Event]] = (
        [("training", DpSgd(1.2345, 0.123, 100))] if dp == "record" else []
    )
    if dp == "silo" and exchange.masked:
        events = [("noisy sum", NearGaussianSum(1.234, 1e-16, 1e-7))]
    events += [(name, Free(why) if why else NonPrivate()) for name, why in free.items()]
    blank: float | str = "inf" if any(isinstance(e, NonPrivate) for _, e in events) else 1.5
    return [
        {
            "disclosure": name,
            "exchange": exchange.name,
            "event": event.words,
            "mechanism": {} if isinstance(event, Free) else to_record(event),
            "epsilon_after": blank,
            "rdp_epsilon_after": blank,
            "delta": 1e-5,
            "unit": "record",
        }
        for name, event in events
    ]


def _exchange(
    wire: Wire, study: Study, call: Call, sealed: Mapping[int, Arrays], number: int
) -> None:
    """Every message of one exchange in which nobody is lost, in the order of
    coordinator/gather.py.
    """
    exchange, masked, secagg = call.exchange, bool(call.exchange.masked), study.settings.secagg
    names = tuple(sorted(silo_name(i) for i in call.cohort))
    encoding = call.encoding() if masked else None
    header, graph = {}, None
    policy = policy_for(study.settings.fraction, study.settings.silos)
    contributors = contributors_of(study.settings, len(names))
    contributors *= exchange.contributors and secagg
    if encoding is not None and secagg:
        made = SumHeader(
            sid=HASH,
            round=call.round,
            exchange=exchange.name,
            number=number,
            broadcast=HASH,
            alive=names,
            encoding=encoding,
            weight_cap=float(exchange.weight_cap),
            contributors=contributors,
        )
        header = made.to_record()
        everybody = [silo_name(i) for i in range(study.settings.silos)]
        graph = topology(
            HASH,
            everybody,
            names,
            policy,
            len(everybody),
        )
    coded = encoding.to_record() if encoding is not None else {}
    common, common_bytes = laid_out(call.broadcast.common)
    ready = m.Ready(number, _charges(study, exchange))
    proposals = blanks.proposals(graph, names, contributors) if graph is not None else {}
    for i in call.cohort:
        name = silo_name(i)
        private, private_bytes = laid_out(call.broadcast.private.get(i, {}))
        announced = m.Broadcast(
            number=number,
            round=call.round,
            exchange=call.index,
            cohort=list(call.cohort),
            common=common,
            private=private,
            header=header,
            encoding=coded,
        )
        wire.down(name, announced)
        for stream, size in (("common", common_bytes), ("private", private_bytes)):
            for k, piece in enumerate(pieces(size)):
                wire.down(name, m.Chunk(number, stream, k), piece, "broadcast")
        wire.down(name, m.Go(number))
        wire.up(name, ready)
        if sealed[i] or masked:
            wire.down(name, m.Send(number))
        if sealed[i]:
            layout, size = laid_out(sealed[i])
            wire.up(name, m.SealedStart(number, layout), channel="sealed")
            for k, piece in enumerate(pieces(size)):
                wire.up(name, m.Chunk(number, "sealed", k), piece, "sealed")
        if encoding is not None:
            record = (
                blanks.upload(graph, name, names, bool(contributors)).to_record()
                if graph is not None
                else {}
            )
            wire.up(name, m.SumStart(number, record), channel="masked")
            for k in range(encoding.frames):
                wire.up(name, m.Chunk(number, "masked", k), 8 * encoding.frame_words(k), "masked")
        if graph is not None and name in proposals:
            wire.down(name, m.SumStep("propose", proposals[name].to_record()))
            wire.up(name, m.SumStep("endorse", blanks.endorsement(name).to_record()))
            wire.down(name, m.SumStep("unmask", blanks.request(graph, names).to_record()))
            wire.up(name, m.SumStep("release", blanks.release(name, names).to_record()))
        wire.down(name, m.Closed(number, True))


def _answers(
    study: Study, views: Mapping[int, SiloView], exchange: Exchange, call: Call
) -> dict[int, Arrays]:
    if exchange.rehearsed is not None:
        said = call.broadcast
        return {
            i: exchange.rehearsed(
                views[i], Heard(call.round, call.cohort, said.common, said.private.get(i, {}))
            )
            for i in call.cohort
        }
    blank = {name: _blank(spec, False) for name, spec in exchange.sealed.items()}
    return dict.fromkeys(call.cohort, blank)


def _folded(call: Call, sealed: Mapping[int, Arrays]) -> Folded:
    total = {
        name: _blank(spec, spec.public_count).astype(np.float64) * len(call.cohort)
        for name, spec in call.exchange.masked.items()
    }
    return Folded(call.round, tuple(sorted(call.cohort)), total, sealed)


def _call(study: Study, state: State, round: int, index: int, cohort: tuple[int, ...]) -> Call:
    """An exchange as the loop would carry it (coordinator/loop.py)."""
    settings, exchange = study.settings, study.method.exchanges[index]
    return Call(
        round,
        index,
        exchange=exchange,
        broadcast=exchange.broadcast(state, round, cohort),
        cohort=cohort,
        ranges=call_ranges(settings, study.method, exchange, len(cohort)),
        lane_bits=settings.bits,
        exact=settings.dp == "silo",
    )


def rehearse(study: Study) -> Rehearsal:
    """The traffic of the whole run, with everybody present to its end."""
    settings, method = study.settings, study.method
    counter = ByteCounter()
    wire, names = Wire(counter), [silo_name(i) for i in range(settings.silos)]
    views: dict[int, SiloView] = {}
    if any(e.rehearsed for e in method.exchanges):
        secret = shared_secret(settings)
        views = {
            i: SiloView(i, study.task, study.task.subset(ix), settings, secret)
            for i, ix in enumerate(study.partition.indices)
        }
    if settings.runner == "processes":
        _enrol(wire, study, names)
    traffic = list(counter.drain())
    first = method.init(0)
    known: dict[Any, list[dict[str, Any]]] = {}
    cohorts, busiest, arrays = [], [], {"up": 0, "down": 0}
    encodings: dict[int, Encoding] = {}
    state, everybody = first, tuple(range(settings.silos))
    for round in range(settings.rounds):
        chosen = select(settings, round, everybody)
        cohorts.append(chosen)
        state, peaks = State(first.model, state.memory), []
        for index, exchange in enumerate(method.exchanges):
            cohort = everybody if exchange.everyone else chosen
            if exchange.skip(state, round, cohort):
                peaks.append((0, 0))
                continue
            call = _call(study, state, round, index, cohort)
            sealed = _answers(study, views, exchange, call)
            folded = (
                _folded(call, sealed)
                if index + 1 < len(method.exchanges)
                else Folded(round, cohort, {}, sealed)
            )
            for direction, size in message_bytes(call, folded).items():
                arrays[direction] += size
            if exchange.masked:
                encodings[index] = call.encoding()
            if settings.runner == "processes":
                key = (index, cohort, _shape(call.broadcast, sealed))
                if key not in known:
                    counter.round = round
                    _exchange(wire, study, call, sealed, time.time_ns() // 1_000_000)
                    known[key] = list(counter.drain())
                lines = [line | {"round": round} for line in known[key]]
                traffic += lines
                peaks.append(_busiest(lines))
            # what a last fold makes is a state of the same shapes
            if index + 1 < len(method.exchanges):
                state = exchange.fold(state, folded)
        if settings.runner == "processes":
            counter.round = round
            for name in names:
                wire.down(name, m.RoundOver(round))
            traffic += counter.drain()
        busiest.append(peaks)
    if settings.runner == "processes":
        for name in names:
            wire.down(name, m.Stop("the run is over"))
        traffic += counter.drain()
    return Rehearsal(
        traffic, cohorts, arrays["up"], arrays["down"], tuple(encodings.values()), busiest
    )


def blank_fold(study: Study, state: State) -> State:
    """A round's folds over blank answers: what the coordinator computes by itself. A method that
    distils does so.
    """
    cohort = select(study.settings, 0, range(study.settings.silos))
    for index, exchange in enumerate(study.method.exchanges):
        if exchange.skip(state, 0, cohort):
            continue
        call = _call(study, state, 0, index, cohort)
        blank = {name: _blank(spec, False) for name, spec in exchange.sealed.items()}
        state = exchange.fold(state, _folded(call, dict.fromkeys(cohort, blank)))
    return state


def _shape(said: Broadcast, sealed: Mapping[int, Arrays]) -> tuple[Any, ...]:
    """What decides the bytes of an exchange beside its method and cohort."""
    own = tuple((i, tuple(a.shape for a in arrays.values())) for i, arrays in said.private.items())
    answers = tuple((i, tuple(a.shape for a in arrays.values())) for i, arrays in sealed.items())
    return tuple(a.shape for a in said.common.values()), own, answers


def _busiest(lines: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    sums: dict[str, dict[str, int]] = {"up": {}, "down": {}}
    for line in lines:
        table = sums[line["direction"]]
        table[line["silo"]] = table.get(line["silo"], 0) + line["wire_bytes"]
    return max(sums["up"].values(), default=0), max(sums["down"].values(), default=0)
