"""Fixed point does not hide the low bits of scaled float noise, unless it is coarse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.privacy.scaled_noise import Step, impossible, seen

f32 = np.float32
STEP = Step(deviation=10.0, records=64, lr=0.1)
RNG = np.random.default_rng(5)
WITHOUT = RNG.normal(0, 0.04, 2000).astype(f32)
WITH = WITHOUT + RNG.normal(0, 0.01, 2000).astype(f32)


def _update(centre: np.ndarray) -> np.ndarray:
    return STEP.taken(centre, np.random.default_rng(7).standard_normal(len(centre), dtype=f32))


@pytest.mark.parametrize("bits", [32, 21, 16])
@pytest.mark.parametrize("there", [True, False])
def test_float_noise_through_fixed_point(bits: int, there: bool) -> None:
    true, false = (WITH, WITHOUT) if there else (WITHOUT, WITH)
    update = _update(true)
    shown, exact = seen(update, bits, 4 * float(update.std()))
    if bits < 32:
        assert not exact.any()
        return
    assert exact.sum() > 1000 and (shown[exact] == update[exact]).all()
    assert impossible(STEP, shown[exact], true[exact]) == 0
    assert impossible(STEP, shown[exact], false[exact]) > 50
