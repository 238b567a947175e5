"""What naming bags costs: `python -m bench.speed.names [--silos 10] [--bags 5000]`.

The whole pass of methods.common.bag_names, with the real arithmetic and the arrays as they travel,
in one process and on one core. Seconds are of the processor, for one silo; every silo does its part
at the same time as the others. Bytes are of the arrays, without framing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from config.settings import Settings
from crypto.oprf.committee import committee_size
from methods.base import Answer, Arrays, Folded, Heard, SiloView, State
from methods.common.bag_names import Naming, names_of
from report.units import human_bytes

__all__ = ["main", "measure"]

_Made = TypeVar("_Made")


def _timed(work: Callable[[], _Made]) -> tuple[_Made, float]:
    began = time.process_time()
    made = work()
    return made, time.process_time() - began


def _bytes(arrays: Arrays) -> int:
    return sum(a.nbytes for a in arrays.values())


def measure(silos: int, bags: int, asking: int) -> dict[str, float]:
    """Seconds and bytes of one pass in which `silos` silos take part. Blinding and finishing are
    timed at the first `asking` of them; all of them blind, and one holder's work is timed whole.
    """
    nothing: Any = SimpleNamespace()
    settings = Settings(silos=silos)
    views: list[SiloView[Any, Any]] = [
        SiloView(i, nothing, nothing, settings, b"bench") for i in range(silos)
    ]
    # half of the bags are shared with the next silo
    naming = Naming(
        silos,
        bags,
        first=0,
        inputs=lambda silo: [b"bag %d" % (silo.index * bags // 2 + i) for i in range(bags)],
    )
    blind, evaluate = naming.exchanges()
    everybody, state = tuple(range(silos)), State({})
    seconds: dict[str, float] = {}
    sizes: dict[str, float] = {}

    def answer(exchange: Any, view: SiloView[Any, Any], said: Any) -> tuple[Answer, float]:
        heard = Heard(0, everybody, said.common, said.private.get(view.index, {}))
        return _timed(lambda: exchange.answer(view, heard))

    said = blind.broadcast(state, 0, everybody)
    made = {v.index: answer(blind, v, said) for v in views}
    seconds["blind"] = sum(made[i][1] for i in range(asking)) / asking
    sizes["points, up"] = _bytes(made[0][0].sealed)
    state = blind.fold(state, Folded(0, everybody, {}, {i: a.sealed for i, (a, _) in made.items()}))

    said = evaluate.broadcast(state, 0, everybody)
    made = {v.index: answer(evaluate, v, said) for v in views}
    seconds["evaluate (a holder)"] = made[0][1]
    sizes["points, down to a holder"] = _bytes(said.private[0])
    sizes["parts, up from a holder"] = _bytes(made[0][0].sealed)
    taken, seconds["fold (the coordinator)"] = _timed(
        lambda: evaluate.fold(
            state, Folded(0, everybody, {}, {i: a.sealed for i, (a, _) in made.items()})
        )
    )
    replies = naming.relay.replies(taken, everybody)
    sizes["parts, down"] = _bytes(replies[0])
    spent = [
        _timed(lambda v=v: names_of(naming, v, Heard(0, everybody, {}, replies[v.index])))[1]  # type: ignore[misc]
        for v in views[:asking]
    ]
    seconds["check and unblind"] = sum(spent) / asking
    return {**{f"{k}, s": v for k, v in seconds.items()}, **sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, default=10)
    parser.add_argument("--bags", type=int, default=5000, help="of each silo")
    parser.add_argument("--asking", type=int, default=2, help="how many silos are timed")
    o = parser.parse_args()
    found = measure(o.silos, o.bags, min(o.asking, o.silos))
    holders = committee_size(o.silos)
    print(
        f"{o.silos} silos with {o.bags} bags each, {holders} holders of the key, one pass, one core"
    )
    for name, value in found.items():
        print(
            f"{name:28} {value:8.2f}" if name.endswith(", s") else f"{name:28} {human_bytes(value)}"
        )


if __name__ == "__main__":
    main()
