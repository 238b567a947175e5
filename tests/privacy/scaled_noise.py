"""An attack on noise in floating point that was scaled on its way out, also through fixed point.

float32 numbers times a constant reach only a part of all float32 numbers. Whoever knows both centres of
a noisy number asks which of them leaves noise that the scaling can give: of many numbers, some are
impossible around the false centre and none around the true one. `python -m tests.privacy.scaled_noise`
prints what docs/secagg.md says of DP-SGD's single step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from crypto.numbers.encoding import Encoding

__all__ = ["Step", "impossible", "seen"]

f32 = np.float32
Map = Callable[[np.ndarray], np.ndarray]


class Step:
    """One step on weights of zeros: the sum's noise and centre, the mean, the learning rate."""

    def __init__(self, deviation: float, records: float, lr: float) -> None:
        self.deviation, self.records, self.lr = f32(deviation), f32(records), f32(lr)

    def taken(self, centre: np.ndarray, gaussian: np.ndarray) -> np.ndarray:
        noise = gaussian * f32(math.sqrt(0.5)) * self.deviation
        return np.asarray((noise + centre) / self.records * -self.lr)

    def back(self, centre: np.ndarray) -> list[tuple[Map, Map]]:
        """Each thing that was done, last first, and roughly what undoes it (float64)."""
        half, wide = f32(math.sqrt(0.5)), centre.astype(np.float64)
        return [
            (lambda x: x * -self.lr, lambda y: y / -float(self.lr)),
            (lambda x: x / self.records, lambda y: y * float(self.records)),
            (lambda x: x + centre, lambda y: y - wide),
            (lambda x: x * self.deviation, lambda y: y / float(self.deviation)),
            (lambda x: x * half, lambda y: y / float(half)),
        ]


def impossible(step: Step, update: np.ndarray, centre: np.ndarray) -> int:
    """How many numbers of the update cannot come of any float32 Gaussian around this centre."""
    found, valid = update[None], np.ones((1, len(update)), bool)
    for done, undone in step.back(centre):
        pairs = [_before(y, done, undone, ok) for y, ok in zip(found, valid)]
        found = np.concatenate([x for x, _ in pairs])
        valid = np.concatenate([ok for _, ok in pairs])
        first = np.argsort(~valid, axis=0, kind="stable")[:6]  # a few candidates are enough
        found = np.take_along_axis(found, first, 0)
        valid = np.take_along_axis(valid, first, 0)
    return int((~valid.any(axis=0)).sum())


def _before(y: np.ndarray, done: Map, undone: Map, ok: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = undone(y.astype(np.float64)).astype(f32)
    near = np.stack([np.nextafter(x, f32(-np.inf)), x, np.nextafter(x, f32(np.inf))])
    return near, np.stack([ok & (done(n) == y) for n in near])


def seen(update: np.ndarray, bits: int, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """The update as a sum's fixed point shows it, and where that tells every float32 number from the
    next.
    """
    encoding = Encoding(bits, 10, (len(update),), (reach,))
    words = np.concatenate([f.copy() for f in encoding.encode([update], b"seed")])
    shown = encoding.decode(words, 1)[0].astype(f32)
    apart = np.spacing(np.abs(shown)) > 1.01 * reach / encoding.steps
    return shown, apart & (np.abs(shown) < reach * (1 - 1e-6))


def _main() -> None:
    rng, size, plays = np.random.default_rng(0), 8970, 40
    for deviation in (2.0, 10.0, 31.0):
        step = Step(deviation, 64, 0.1)
        centres = [_unit(rng, size) * f32(4)]
        centres.append(centres[0] + _unit(rng, size))
        for bits, factor in ((0, 0.0), (32, 4.0), (32, math.inf), (21, 4.0), (21, 0.02), (16, 4.0)):
            right, counted = 0.0, 0
            for _ in range(plays):
                there = int(rng.integers(2))
                update = step.taken(centres[there], rng.standard_normal(size, dtype=f32))
                exact = np.ones(size, bool)
                if bits:
                    update, exact = seen(update, bits, min(8.0, factor * float(update.std())))
                counts = [impossible(step, update[exact], c[exact]) for c in centres]
                right += 0.5 if counts[0] == counts[1] else float(np.argmin(counts)) == there
                counted += counts[1 - there]
            print(
                f"noise {deviation:g}, {bits or 'float32'} bits, range {factor:g} deviations:"
                f" {right:g} of {plays} right, {counted / plays:.0f} numbers impossible"
            )


def _unit(rng: np.random.Generator, size: int) -> np.ndarray:
    vector = rng.standard_normal(size)
    return (vector / np.linalg.norm(vector)).astype(f32)


if __name__ == "__main__":
    _main()
