"""What happened to somebody's privacy, as frozen records. Training and releases emit them;
`accountant` adds them up.

The seven kinds below are all there are. A ledger line of any other kind, or with a field too few or
too many, is refused (`UnknownEvent`), never skipped: what cannot be read cannot be charged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

__all__ = [
    "DpSgd",
    "Event",
    "Free",
    "Gaussian",
    "NearGaussianSum",
    "NonPrivate",
    "NoisySum",
    "RoundedGaussian",
    "Unit",
    "UnknownEvent",
    "from_record",
    "to_record",
]

Unit = Literal["record", "silo"]


class UnknownEvent(ValueError):
    """A record that is not one of our events. Says what is wrong with it."""


@dataclass(frozen=True)
class DpSgd:
    """`steps` steps of SGD on Poisson samples at `rate`, per-record gradients clipped, Gaussian
    noise of `noise` clips.

    Protects a record: the neighbour is the same data with one record's gradients replaced by zero.
    """

    noise: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        _need(
            self.noise > 0 and math.isfinite(self.noise),
            "the noise of DP-SGD must be above zero and finite",
        )
        _need(0 < self.rate <= 1, "the sampling rate of DP-SGD must be above 0 and at most 1")
        _need(
            type(self.steps) is int and self.steps >= 0,
            "the steps of DP-SGD must be a whole number",
        )

    @property
    def words(self) -> str:
        return f"DP-SGD: {self.steps} steps, sampling rate {self.rate:g}, noise {self.noise:.4g} times the clip"


@dataclass(frozen=True)
class Gaussian:
    """One release of a vector with Gaussian noise of `noise` times the most that one record can
    change it (L2).
    """

    noise: float

    def __post_init__(self) -> None:
        _need(
            self.noise > 0 and math.isfinite(self.noise),
            "the noise of a release must be above zero and finite",
        )

    @property
    def words(self) -> str:
        return f"Gaussian noise of {self.noise:.4g} times what one record can change"


@dataclass(frozen=True)
class RoundedGaussian:
    """One release of a vector of whole numbers, with Gaussian noise rounded to whole numbers, of
    `noise` times the most that one record can change it (L2).

    It is the Gaussian mechanism followed by rounding. `slack` bounds the probability that any
    coordinate's noise would have been beyond the tail at which it is cut.
    """

    noise: float
    slack: float

    def __post_init__(self) -> None:
        _need(
            self.noise > 0 and math.isfinite(self.noise),
            "the noise of a release must be above zero and finite",
        )
        _need(0 <= self.slack < 1, "the slack of a release must be a probability")

    @property
    def words(self) -> str:
        return (
            f"Gaussian noise in whole numbers, of {self.noise:.4g} times what one record can change, "
            f"tails cut ({self.slack:.1g})"
        )


@dataclass(frozen=True)
class NoisySum:
    """A masked sum with discrete Gaussian noise of at least `noise` clips in all, one silo's vector
    clipped.

    Protects a silo: the neighbour is the same sum with this silo's vector replaced by zeros.
    `slack` bounds the probability that any coordinate's noise would have been beyond the tail at
    which it is cut.
    """

    noise: float
    slack: float

    def __post_init__(self) -> None:
        _need(
            self.noise > 0 and math.isfinite(self.noise),
            "the noise of a sum must be above zero and finite",
        )
        _need(0 <= self.slack < 1, "the slack of a sum must be a probability")

    @property
    def words(self) -> str:
        return f"noisy sum: discrete Gaussian noise of {self.noise:.4g} times the clip, tails cut ({self.slack:.1g})"


@dataclass(frozen=True)
class NearGaussianSum(NoisySum):
    """The same where somebody has computed how far its noise is from a rounded Gaussian: `apart`
    bounds the difference of the logarithms of their probabilities (`privacy.discrete.apart`).
    """

    apart: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _need(0 <= self.apart < math.inf, "the distance of a sum's noise must be finite")


@dataclass(frozen=True)
class Free:
    """A release that costs nothing, and why: computed from what was already charged, or not about
    the data.
    """

    why: str

    def __post_init__(self) -> None:
        _need(bool(self.why), "a free release must say why it is free")

    @property
    def words(self) -> str:
        return f"free: {self.why}"


@dataclass(frozen=True)
class NonPrivate:
    """A release without noise: whatever was spent before, the total is infinite from here on."""

    @property
    def words(self) -> str:
        return "non-private release"


Event = DpSgd | Gaussian | RoundedGaussian | NoisySum | NearGaussianSum | Free | NonPrivate

_KINDS: Mapping[str, type[Event]] = {
    "dp-sgd": DpSgd,
    "gaussian": Gaussian,  # in ledgers of before; its noise was in floating point
    "rounded-gaussian": RoundedGaussian,
    "ring-noise": NoisySum,  # in ledgers of before
    "near-gaussian-sum": NearGaussianSum,
    "free": Free,
    "non-private": NonPrivate,
}
_NAMES = {cls: kind for kind, cls in _KINDS.items()}
_TYPES: Mapping[str, tuple[type, ...]] = {"float": (float, int), "int": (int,), "str": (str,)}


def to_record(event: Event) -> dict[str, Any]:
    return {"kind": _NAMES[type(event)], **asdict(event)}


def from_record(record: Any) -> Event:
    """An event from a file or from another program; anything not exactly as `to_record` makes it is
    refused.
    """
    if not isinstance(record, Mapping) or record.get("kind") not in _KINDS:
        kind = record.get("kind") if isinstance(record, Mapping) else record
        raise UnknownEvent(f"there is no privacy event of the kind {str(kind)[:40]!r}")
    cls = _KINDS[record["kind"]]
    given = {k: v for k, v in record.items() if k != "kind"}
    declared = {f.name: _TYPES[str(f.type)] for f in fields(cls)}
    if set(given) != set(declared):
        raise UnknownEvent(f"a {record['kind']} event does not have the declared fields")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, declared[name]):
            raise UnknownEvent(f"the field {name} of a {record['kind']} event has the wrong type")
    return cls(**given)


def _need(ok: bool, sentence: str) -> None:
    if not ok:
        raise UnknownEvent(sentence)
