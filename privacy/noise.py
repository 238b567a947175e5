"""Randomness that privacy stands on: uniform numbers, and Gaussian ones in whole numbers, from an
AES-256-CTR keystream.

Whoever knows the key can subtract the noise and knows who was sampled. A silo takes its key from
the operating system, afresh each time; a simulation derives it from its seed, so that both runners
give the same model, and says so.

There is no Gaussian in floating point. The low bits of a value and such noise tell the value: of
Box and Muller's pairs in float32, one DP-SGD step told a record's presence every time
(docs/results/privacy.md, "Releases by themselves").
"""

from __future__ import annotations

import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privacy.discrete import Table, rounded_table, table

__all__ = ["WIDE", "SecretStream"]

_COARSE, _STEP, _FINE = 4096, 1024, 3072
_AT_ONCE = 1 << 15  #: draws whose words, cells and places stay in a core's cache together
_CUT = 14  #: deviations: so far out that no number of steps and parameters makes it matter
#: The deviation of `wide_normal`, a little above 2^22.
WIDE = math.sqrt((_COARSE * _STEP) ** 2 + _FINE**2)


class SecretStream:
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError(f"a key of {len(key)} bytes instead of 32")
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def uniform(self, n: int) -> np.ndarray:
        """n numbers strictly between 0 and 1, with 53 random bits each."""
        return ((self._words(n) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def wide_normal(self, n: int) -> np.ndarray:
        """n whole numbers from the discrete Gaussian of deviation `WIDE`: int64.

        A table of that width would not fit. So it is 1024 times one of deviation 4096, and one of
        deviation 3072 on top. The sum of two is the discrete Gaussian of the larger deviation but
        for a factor within 2 exp(-2 pi^2 t^2) of one, with t = 3 (Poisson's summation formula; the
        second has three times the first one's step for deviation): 10^-76.
        """
        coarse, fine = (self._looked_up(n, table(s, _CUT)) for s in (_COARSE, _FINE))
        coarse *= _STEP
        coarse += fine
        return coarse

    def discrete_normal(self, n: int, deviation: int) -> np.ndarray:
        """n whole numbers from the discrete Gaussian of that deviation, cut at ten deviations:
        int64.

        By inversion of the exact distribution: a word is looked up among the cumulative
        probabilities' first 64 bits, and where it equals one of them, a second word decides.
        """
        return self._looked_up(n, table(deviation))

    def rounded_normal(self, n: int, deviation: int) -> np.ndarray:
        """Likewise from the Gaussian of that deviation, rounded to whole numbers."""
        return self._looked_up(n, rounded_table(deviation))

    def _looked_up(self, n: int, t: Table) -> np.ndarray:
        found = np.empty(n, np.int64)
        for at in range(0, n, _AT_ONCE):
            part = found[at : at + _AT_ONCE]
            words = self._words(len(part))
            place, equal = t.places(words)
            for i in equal:
                whole = int(words[i]) << 64 | int(self._words(1)[0])
                place[i] = t.place(whole)
            np.subtract(place, t.most, out=part)
        return found

    def _words(self, n: int) -> np.ndarray:
        return np.frombuffer(self._cipher.update(bytes(8 * n)), "<u8")
