"""A silo's own documents beside the coordinator's of the same study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["beyond", "compared", "different"]

Documents = Mapping[str, Mapping[str, Any]]
#: who made a document, and when that party began
_OWN = {"party", "role", "began", "ended"}
#: what one party alone can know, or has as a list of its own
_PARTS = (
    *("about", "disclosed", "silos", "not_protected", "dp", "unit", "delta", "budget"),
    *("masked", "masks_hold_if"),
)


def compared(own: Documents, whole: Documents) -> Iterator[tuple[str, Any, Any]]:
    """(where, the silo's, the coordinator's) of every figure that both have."""
    for kind in own:
        for part in _PARTS:
            if part in own[kind] and part in whole[kind]:
                yield from _both(own[kind][part], whole[kind][part], f"{kind}.{part}")


def _both(own: Any, theirs: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(own, Mapping) and isinstance(theirs, Mapping):
        for key in sorted((set(own) & set(theirs)) - _OWN):
            yield from _both(own[key], theirs[key], f"{at}.{key}")
    else:
        yield at, own, theirs


def different(own: Documents, whole: Documents) -> list[str]:
    return [f"{at}: {a} and {b}" for at, a, b in compared(own, whole) if a != b]


def beyond(own: Documents, whole: Documents, silo: str, restarted: bool) -> list[str]:
    """Where the two contradict each other, though connections were lost: of what a silo sent and was
    charged, a coordinator may know less, and a silo that was away does not know which of its parts
    were taken. `restarted`: the coordinator was, too, and forgot what it had sent in a round that it
    began again.
    """
    mine, theirs = ({k: d[k]["silos"][silo] for k in d} for d in (own, whole))
    released = mine["report"]["rounds"] or mine["report"]["rounds_unsure"]
    wrong = [
        f"{at}: {a} and {b}"
        for at, a, b in compared(own, whole)
        if f".silos.{silo}" not in at
        and a != b
        # what left nobody need protect: a silo that was lost before is right to say less
        and (released or not at.endswith("not_protected"))
    ]
    sure, taken = set(mine["report"]["rounds"]), set(theirs["report"]["rounds"])
    if not sure <= taken <= sure | set(mine["report"]["rounds_unsure"]):
        wrong.append(f"rounds: {mine['report']} and {sorted(taken)}")
    sent, arrived = (x["communication-cost"]["by_kind"] for x in (mine, theirs))
    for kind in sorted(set(sent) | set(arrived)):
        here, there = (x.get(kind, [0, 0, 0]) for x in (sent, arrived))
        up = kind.startswith("up")
        if restarted and (not up or "control" in kind):
            continue
        less, more = (there, here) if up else (here, there)
        if "handshake" in kind:  # each counts its own half of it
            less, more = there, here
        if any(a > b for a, b in zip(less, more)):
            wrong.append(f"{kind}: {here} here and {there} there")
    paid, said = (x["privacy-budget"] for x in (mine, theirs))
    if float(said["epsilon"] or 0) > float(paid["epsilon"] or 0):
        wrong.append(f"epsilon: {paid['epsilon']} here and {said['epsilon']} there")
    times = {(c["what"], c["event"]): c["times"] for c in paid["charged"]}
    for c in said["charged"]:
        if c["times"] > times.get((c["what"], c["event"]), 0):
            wrong.append(f"{c['what']}: charged {times} here and {c} there")
    return wrong
