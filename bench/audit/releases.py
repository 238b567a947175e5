"""Every single noisy release of a method, attacked by itself: what leaves a silo in one exchange, played
many times on two neighbouring inputs.

One run of the study is listened to. Whatever a silo's ledger is charged for in it, and is not free, is
a release: DP-SGD's update, numbers that a method noises by itself (`methods.base.Release`), a noisy
sum. No list of methods is kept here. Which arrays a release made is found by playing: they change when
its noise is drawn anew.

Each is then played with the real gate of a small silo, the model as it was in the run, fresh noise
every time, with one record and without it. The adversary knows everything else: model, all other
records, both centres, and with DP=silo all other silos' vectors. "Without" is what the event says: the
record's gradients are never sampled, the record is not in the data, or the silo's vector is zeros.
What `bench.audit.distinguish` then proves must not exceed the release's own epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.audit.distinguish import (
    Found,
    could_be_noise,
    judge,
    low_bits,
    off_the_steps,
    unreachable_pairs,
)
from bench.audit.membership import _groups
from bench.audit.plays import (
    VICTIM,
    WHOLE,
    Call,
    OpenLedger,
    Stage,
    as_coded,
    key_of,
    listened,
    named,
    never_sampled,
    noise_of,
    patched,
    step_of,
)
from config.errors import UserError
from methods.dp.coverage import unit_of
from privacy.accountant import total
from privacy.events import Event
from privacy.noise import SecretStream
from silo import noise as sum_noise
from silo.gate import Gate
from silo.memory import MemoryFile
from study.prepare import Study

__all__ = ["Attacked", "attack_releases", "played_records"]

_RECORDS = 8  #: of the small silo that is played
_COLUMNS = 4  #: coordinates whose bits are looked at: those that the record moves most


@dataclass(frozen=True)
class Attacked:
    release: str  #: as the ledger has it
    exchange: str
    event: str
    arrays: tuple[str, ...]  #: the first parts of their names, with where they go
    numbers: int
    moved: float  #: the most that the record changes any of them; 0: nothing could be found
    epsilon_at_most: float  #: of this release alone
    delta: float
    found: tuple[Found, ...]

    @property
    def epsilon_at_least(self) -> float:
        return max(f.epsilon_at_least for f in self.found)

    @property
    def broken(self) -> bool:
        return self.epsilon_at_least > self.epsilon_at_most


def played_records(study: Study) -> list[int]:
    """Those of the small silo whose releases are played."""
    own = study.partition.indices[VICTIM]
    return list(dict.fromkeys(_groups(study)[own].tolist()))[:_RECORDS]


def _arrays_of(stage: Stage, data: Any, releases: set[str]) -> dict[str, list[str]]:
    """Release -> its arrays: those that change with the noise of nothing else. What changes with
    several is training's.
    """

    begin, keys = SecretStream.__init__, set[bytes]()

    def begun(self: SecretStream, key: bytes) -> None:
        keys.add(key)
        begin(self, key)

    def play(anew: str = "") -> dict[str, np.ndarray]:
        return named(stage.play(data, lambda p: key_of("anew" if p == anew else "same", p)))

    with patched(SecretStream, __init__=begun):
        same = play()
    stage.noisy = {p for p in stage.purposes if key_of("same", p) in keys}
    depends: dict[str, set[str]] = {name: set() for name in same}
    for purpose in sorted(stage.purposes):
        for name, array in play(purpose).items():
            if not np.array_equal(array, same[name]):
                depends[name].add(purpose)
    found: dict[str, list[str]] = {}
    for name, on in depends.items():
        if on:
            whose = next(iter(on)) if len(on) == 1 and on <= releases else "training"
            found.setdefault(whose, []).append(name)
    sent = {k: [n for n in v if not n.startswith("kept ")] for k, v in found.items()}
    return {k: sent[k] or found[k] for k in found}


@dataclass(frozen=True)
class _Game:
    """Two ways to play one release; each takes a number of the play and gives all its numbers."""

    present: Callable[[object], np.ndarray]
    absent: Callable[[object], np.ndarray]
    step: float  #: of the encoding that the numbers leave in; 0: they leave as they are


def _attack(
    game: _Game, plays: int, delta: float, multiplier: float = 1.0
) -> tuple[tuple[Found, ...], int, float]:
    drawn: set[str] = set()
    with noise_of(0, drawn):
        centres = [side(0) for side in (game.present, game.absent)]
    with noise_of(1):
        # in units of the noise: a count that is public may scale everything
        units = [
            float(np.median(side(0) - c)) for side, c in zip((game.present, game.absent), centres)
        ]
    whole = drawn <= set(WHOLE)
    if not whole or any(u <= 0 for u in units):
        units = [1.0, 1.0]
    at = [c.astype(np.float64) / u for c, u in zip(centres, units)]
    moved = at[0] - at[1]
    columns = np.argsort(-np.abs(moved), kind="stable")[:_COLUMNS]
    half = (len(moved) + 1) // 2
    partners = np.where(columns < half, np.minimum(columns + half, len(moved) - 1), columns - half)
    scale = 1.0 if whole else _scale(game, centres[1], multiplier)
    scores: list[list[np.ndarray]] = [[], []]
    for k, side in enumerate((game.present, game.absent)):
        for j in range(plays):
            x = side(("play", k, j))
            z = x.astype(np.float64) / units[k]
            odd = 0.0
            if not whole and game.step:
                odd = _fewer_pairs(x.astype(np.float64), centres, scale, game.step)
            scores[k].append(
                np.concatenate([[z @ moved, odd], z[columns], x[columns], x[partners]])
            )
    with_it, without = (np.array(s) for s in scores)
    n = len(columns)
    found = [judge("likelihood ratio", with_it[:, 0], without[:, 0], delta=delta, of=3)]
    if whole:
        off = [off_the_steps(s[:, 2 : 2 + n] - at[1][columns]) * 1.0 for s in (with_it, without)]
        bits = low_bits(*(np.rint(s[:, 2 : 2 + n]).astype(np.int64) for s in (with_it, without)))
    else:
        off = [s[:, 1] for s in (with_it, without)]
        if not game.step:
            pair = columns[0], partners[0]
            off = [
                np.array([_not_noise(r[2 + n], r[2 + 2 * n], centres[1], pair, scale) for r in s])
                for s in (with_it, without)
            ]
        bits = low_bits(*(s[:, 2 + n : 2 + 2 * n].astype(np.float32) for s in (with_it, without)))
    found.append(judge("support", off[0] * 1.0, off[1] * 1.0, delta=delta, of=3))
    found.append(judge("low bits", *bits, delta=delta, of=3))
    most = float(np.abs(centres[0].astype(np.float64) - centres[1]).max())
    return tuple(found), len(moved), most


def _fewer_pairs(x: np.ndarray, centres: list[np.ndarray], scale: float, step: float) -> float:
    """How many pairs more are out of reach of noise around the centre without the record than around
    the other.
    """
    there, not_there = (unreachable_pairs(x, c, scale, step) for c in centres)
    return float(not_there - there)


def _scale(game: _Game, centre: np.ndarray, multiplier: float) -> float:
    """What a standard Gaussian is multiplied by. A float32 shows 24 bits of it. The adversary knows the
    code, and so that it is the charged noise times a round number.
    """
    with noise_of(1):
        seen = float(np.median(game.absent(0).astype(np.float64) - centre))
    exact = multiplier * float(f"{seen / multiplier:.6g}")
    return exact if abs(exact / seen - 1) < 1e-6 else seen


def _not_noise(x: float, y: float, centre: np.ndarray, at: tuple[int, int], scale: float) -> bool:
    """Whether the number that the record moves most, and the one that shares its pair, cannot be the
    centre without the record and noise.
    """
    (first, a), (second, b) = sorted(((at[0], x), (at[1], y)))
    about = (float(centre[first]), float(centre[second]))
    return not could_be_noise((np.float32(a), np.float32(b)), about, scale)


def _games(study: Study, calls: list[Call], call: Call) -> Iterator[tuple[str, list[str], _Game]]:
    stage = Stage(study, calls, call)
    if study.settings.dp == "silo":
        yield "noisy sum", *_sum_game(stage)
        return
    group, own, records = _groups(study), study.partition.indices[VICTIM], played_records(study)
    task = study.task
    declared = study.method.privacy.record if study.method.privacy is not None else None
    release = declared.release if declared is not None else None
    data = task.subset(own[np.isin(group[own], records)])
    for what, names in _arrays_of(stage, data, {release.what} if release else set()).items():

        def numbers(which: Any, play: object, names: list[str] = names) -> np.ndarray:
            said = named(stage.play(which, stage.keys(play)))
            return np.concatenate([np.ravel(said[n]) for n in names])

        def training(play: object, names: list[str] = names) -> np.ndarray:
            said = stage.play(data, stage.keys(play))
            return as_coded(call, said, names)

        if what == "training":
            absent = _unsampled(training, records)
            yield what, names, _Game(training, absent, step_of(call))
            continue
        with noise_of(0):
            full = numbers(data, 0)
            lacking = {
                r: task.subset(own[np.isin(group[own], [x for x in records if x != r])])
                for r in records
            }
            moves = {r: float(np.abs(full - numbers(d, 0)).max()) for r, d in lacking.items()}
        less = lacking[max(moves, key=lambda r: moves[r])]
        yield what, names, _Game(partial(numbers, data), partial(numbers, less), 0.0)


def _unsampled(
    training: Callable[[object], np.ndarray], records: list[int]
) -> Callable[[object], np.ndarray]:
    """The same without the record that moves what leaves most."""

    def without(r: int) -> Callable[[object], np.ndarray]:
        def play(number: object) -> np.ndarray:
            with never_sampled(r, len(records)):
                return training(number)

        return play

    with noise_of(0):
        full = training(0)
        moves = [float(np.abs(full - without(r)(0)).max()) for r in range(len(records))]
    return without(int(np.argmax(moves)))


def _sum_game(stage: Stage) -> tuple[list[str], _Game]:
    """The sum over the honest silos. The others' vectors are known, so they may be zeros."""
    call, study = stage.call, stage.study
    data = study.task.subset(study.partition.indices[VICTIM])
    plain = Gate(
        stage._view(data, lambda p: key_of("plain", p)),
        study.method,
        MemoryFile(None),
        OpenLedger(),
    )
    with noise_of(0):
        for c in stage._before:
            plain.answer(c.index, c.heard, b"", c.encoding)
        said = plain.answer(call.index, call.heard, b"", call.encoding)
    private = [k for k, s in stage.exchange.masked.items() if not s.public_count]
    noise = sum_noise.check(
        study.settings, study.method, stage.exchange, call.encoding, len(call.heard.cohort)
    )
    zeros = {k: np.zeros_like(v) if k in private else v for k, v in said.masked.items()}

    def one(vector: Mapping[str, np.ndarray], key: bytes) -> np.ndarray:
        noised = sum_noise.noised(noise, stage.exchange, vector, key)
        return np.concatenate([np.ravel(noised[k]).astype(np.float64) for k in private])

    def play(vector: Mapping[str, np.ndarray], number: object) -> np.ndarray:
        mine = one(vector, key_of(number, "victim"))
        return mine + sum((one(zeros, key_of(number, i)) for i in range(1, noise.honest)), 0.0)

    names = [f"masked {k}" for k in private]
    return names, _Game(lambda p: play(said.masked, p), lambda p: play(zeros, p), 0.0)


def attack_releases(study: Study, plays: int, only: str = "") -> list[Attacked]:
    """Every release that one run charges a silo for, once: in the first exchange that has it; or one
    of them alone.
    """
    s = study.settings
    if s.dp == "off":
        return []
    calls, attacked = listened(study), list[Attacked]()
    seen: set[tuple[int, str]] = set()
    unit: Any = "silo" if unit_of(s, study.task, study.method) == "silo" else "record"
    for call in calls:
        new = {(call.index, what) for what, _ in call.charged} - seen
        if not new:
            continue
        seen |= new
        exchange = study.method.exchanges[call.index]
        games = list(_games(study, calls, call))
        if lost := {what for _, what in new} - {what for what, _, _ in games}:
            raise UserError(
                f"The audit finds nothing that changes with the noise of {', '.join(sorted(lost))} ({exchange.name}), "
                "which was charged: its noise is left out, or it leaves where the audit does not look."
            )
        for what, names, game in games:
            if only not in ("", what):
                continue
            events = [e for w, e in _charged(study, calls, call) if w == what] or [
                e for _, e in call.charged
            ]
            noise = getattr(events[0], "noise", 1.0)
            found, numbers, moved = _attack(game, plays, s.delta, noise)
            words = "; ".join(dict.fromkeys(e.words for e in events))
            attacked.append(
                Attacked(
                    release=what,
                    exchange=exchange.name,
                    event=words,
                    arrays=tuple(dict.fromkeys(n.split("/")[0] for n in names)),
                    numbers=numbers,
                    moved=moved,
                    epsilon_at_most=total(events, s.delta, unit).epsilon,
                    delta=s.delta,
                    found=found,
                )
            )
    return attacked


def _charged(study: Study, calls: list[Call], call: Call) -> list[tuple[str, Event]]:
    """What the small silo that is played is charged: its training samples at another rate."""
    if study.settings.dp == "silo":
        return list(call.charged)
    stage, group = Stage(study, calls, call), _groups(study)
    own, records = study.partition.indices[VICTIM], played_records(study)
    stage.play(study.task.subset(own[np.isin(group[own], records)]), lambda p: key_of("charge", p))
    return stage.charged
