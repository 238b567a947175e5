"""DP=silo at the silo: what its share of a sum's noise must be, whether the sum asked for keeps the
promise, the noise.

A silo does not believe the coordinator: it computes from its own settings which grid the sum must
have and how many honest silos' noise every opened sum holds, and refuses a sum in which either is
less. The secure sum itself opens nothing over fewer survivors than it counted on (crypto.sum.graph:
check_survivors).
"""

from __future__ import annotations

from config.settings import Settings
from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from crypto.sum.params import least_honest, policy_for
from methods.base import Arrays, Exchange, Method
from methods.dp.sum_noise import ranges_of, sum_noise_of
from privacy.events import NoisySum
from privacy.noise import SecretStream
from privacy.sum_noise import SumNoise

__all__ = ["agreed_ranges", "charge_of", "check", "noised"]


def _honest(settings: Settings, silos: int) -> int:
    try:
        return least_honest(silos, policy_for(settings.fraction, settings.silos), settings.silos)
    except ValueError as e:
        raise Refusal("tiny-sum", str(e)) from None


def _agreed(settings: Settings, method: Method, encoding: Encoding) -> SumNoise:
    return sum_noise_of(settings, method, _honest(settings, encoding.parties), encoding.steps)


def agreed_ranges(
    settings: Settings, method: Method, exchange: Exchange, encoding: Encoding
) -> tuple[float, ...]:
    return ranges_of(_agreed(settings, method, encoding), exchange, encoding.steps)


def check(
    settings: Settings, method: Method, exchange: Exchange, encoding: Encoding | None, silos: int
) -> SumNoise:
    """The noise of this sum, if the encoding is the agreed one and a sum over `silos` keeps the
    promise.
    """
    if encoding is None:
        raise Refusal(
            "channel-downgrade",
            f"{exchange.name} is noised within a sum and was asked for without one",
        )
    noise = _agreed(settings, method, encoding)
    if encoding.ranges != ranges_of(noise, exchange, encoding.steps):
        raise Refusal(
            "range-widening", f"{exchange.name}: the sum is not on the grid that DP=silo needs"
        )
    if encoding.rounding != "nearest" or encoding.rotate:
        raise Refusal(
            "range-widening",
            f"{exchange.name}: DP=silo needs the grid as it is, not rounded or rotated",
        )
    if _honest(settings, silos) < noise.honest:
        raise Refusal(
            "tiny-sum",
            f"{silos} silos may leave fewer than {noise.honest} honest ones' noise in the sum",
        )
    return noise


def charge_of(noise: SumNoise, exchange: Exchange, encoding: Encoding) -> NoisySum:
    private = sum(spec.size for spec in exchange.masked.values() if not spec.public_count)
    return noise.event(private, encoding.parties)


def noised(noise: SumNoise, exchange: Exchange, masked: Arrays, key: bytes) -> Arrays:
    public = [name for name, spec in exchange.masked.items() if spec.public_count]
    return noise.noised(masked, SecretStream(key), public)
