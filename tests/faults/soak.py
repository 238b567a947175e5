"""`make soak`: seeded random schedules of faults, the crash matrix, and consortia whose programs serve
(tests.faults.consortium). Each ends with the correct
model or a clear refusal; anything else is kept, with its seed, and ends this with status 1. Goes on
where it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from methods.base import silo_name
from study.prepare import Study, warm
from tests.faults.consortium import Kill, Schedule, drawn
from tests.faults.consortium import play as live
from tests.faults.plays import PLAYS
from tests.faults.steps import ACTIONS, Fault
from tests.faults.waits import WAITS
from tests.faults.world import GRACE, Result, play, tiny

__all__ = ["main", "matrix", "schedule"]

#: Steps of one life in an undisturbed run of two rounds, about: faults fall anywhere in it.
_COORDINATOR_STEPS, _SILO_STEPS = 220, 70


def schedule(seed: int, silos: int = 4) -> tuple[list[Fault], float]:
    """One to five faults, anywhere, and how long it takes until a dead process is started again."""
    rng, away = random.Random(seed), random.Random(f"away {seed}")
    faults = []
    for _ in range(rng.randint(1, 5)):
        coordinator = rng.random() < 0.35
        actor = "coordinator" if coordinator else silo_name(rng.randrange(silos))
        life = 0 if rng.random() < 0.7 else 1
        most = _COORDINATOR_STEPS if coordinator else _SILO_STEPS
        action = rng.choices(ACTIONS, weights=(5, 3, 1, 2, 2))[0]
        faults.append(
            Fault(
                actor,
                life,
                action,
                step=rng.randrange(most),
                seconds=round(rng.uniform(0.05, 2.0), 2),
                # one killed silo in three is away for longer than the grace
                down=0.0 if coordinator else away.choice((0.0, 0.0, GRACE + 1.5)),
            )
        )
    return faults, rng.choice((0.0, 0.1, 0.5))


#: Where a crash is hardest to recover from: what CI plays. `make soak` plays every step there is.
LEAN = [
    Fault("coordinator", 0, "kill", name="midway:after"),
    Fault("coordinator", 0, "kill", name="sum:after"),
    Fault("coordinator", 0, "kill", name="send:sum-unmask", occurrence=1),
    Fault("coordinator", 0, "kill", name="hear:sum-release", occurrence=5),
    Fault("coordinator", 0, "kill", name="checkpoint:before"),
    Fault("silo-001", 0, "kill", name="hear:send", occurrence=1),
    Fault("silo-001", 0, "kill", name="release:after"),
]


#: Two studies of one consortium that run at the same time, and a silo that is killed in both.
AT_ONCE = Schedule((Kill(30, "east", 1.0),), slots=2)


def matrix(folder: Path, study: Study) -> list[Fault]:
    """A kill at every step, by name, that an undisturbed run has: each name's first time, and its
    last.
    """
    done = play(folder, study, [], keep=True)
    if not done.ok:
        raise SystemExit(f"the undisturbed run is not right: {done.why}")
    out = []
    for actor in ("coordinator", "silo-001"):
        names = Counter(
            line.split()[0] for line in (folder / "steps" / f"{actor}.0").read_text().splitlines()
        )
        for name, times in names.items():
            out += [
                Fault(actor, 0, "kill", name=name, occurrence=k) for k in sorted({0, times - 1})
            ]
    return out


def _say(
    label: str, faults: Sequence[Fault | Schedule], result: Result, done: int, total: int
) -> None:
    what = "; ".join(map(str, faults))
    print(
        f"[{done}/{total}] {label}: {'ok' if result.ok else 'WRONG'}: {result.why} ({result.seconds:.1f} s, "
        f"{result.restarts} restarts, {result.missed} missed, {result.spent} given up): {what}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many random schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--matrix",
        choices=("none", "lean", "waits", "full"),
        default="full",
        help="crashes, and the plays",
    )
    parser.add_argument("--method", default="lazymil")
    parser.add_argument(
        "--consortia", type=int, default=0, help="how many schedules with programs that serve"
    )
    parser.add_argument(
        "--seconds", type=float, default=0, help="stop after this many, to go on later"
    )
    parser.add_argument(
        "--done", default="", help="a file of what was played, to go on with; empty: from the start"
    )
    parser.add_argument("--only", default="", help="plays that have this in their names")
    o = parser.parse_args(arguments)
    torch.set_num_threads(1)
    study, began = tiny(o.method), time.monotonic()
    warm(study)
    path = Path(o.done) if o.done else None
    kept = json.loads(path.read_text()) if path is not None and path.exists() else {}
    work = Path(tempfile.mkdtemp(prefix="soak-"))
    plays: dict[str, tuple[list[Fault], float]] = {}
    if o.matrix in ("waits", "full"):
        plays |= {f"wait {name}": (list(p.faults), 0.1) for name, p in WAITS.items()}
    if o.matrix in ("lean", "full"):
        crashes = LEAN if o.matrix == "lean" else matrix(work / "undisturbed", study)
        plays |= {f"crash {f.actor} {f.name} {f.occurrence}": ([f], 0.1) for f in crashes}
        if o.method == "lazymil":  # the plays speak of its exchanges
            plays |= {f"play {name}": (list(p.faults), 0.1) for name, p in PLAYS.items()}
    plays = {label: p for label, p in plays.items() if o.only in label}
    plays |= {f"seed {s}": schedule(s) for s in range(o.first, o.first + o.seeds)}
    for label, (faults, pause) in plays.items():
        if label in kept:
            continue
        if o.seconds and time.monotonic() - began > o.seconds:
            break
        kind, _, name = label.partition(" ")
        folder = work / label.replace(" ", "-")
        told = PLAYS[name] if kind == "play" else WAITS[name] if kind == "wait" else None
        result = told.run(folder) if told else play(folder, study, faults, pause)
        kept[label] = asdict(result)
        _say(label, faults, result, len(kept), len(plays))
        if path is not None:
            path.write_text(json.dumps(kept))
    lives = {f"consortium {s}": drawn(s) for s in range(o.first, o.first + o.consortia)}
    if o.matrix in ("waits", "full") and o.only in "two at once":
        lives = {"two at once": AT_ONCE, **lives}
    for label, consortium in lives.items():
        if label in kept:
            continue
        if o.seconds and time.monotonic() - began > o.seconds:
            break
        result = live(work / label.replace(" ", "-"), consortium)
        kept[label] = asdict(result)
        _say(label, [consortium], result, len(kept), len(plays) + len(lives))
        if path is not None:
            path.write_text(json.dumps(kept))
    plays |= dict.fromkeys(lives, ([], 0.0))
    mine = {label: kept[label] for label in plays if label in kept}
    wrong = [label for label, r in mine.items() if not r["ok"]]
    refused = sum(r["why"] != "correct" for r in mine.values()) - len(wrong)
    print(
        f"{len(mine)} of {len(plays)} played: {len(mine) - len(wrong) - refused} correct, {refused} refused, "
        f"{len(wrong)} wrong{': ' + ', '.join(wrong) if wrong else ''}; {work}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
