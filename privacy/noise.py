"""Randomness that privacy stands on: uniform, Gaussian and discrete Gaussian numbers from an
AES-256-CTR keystream.

Whoever knows the key can subtract the noise and knows who was sampled. A silo takes its key from
the operating system, afresh each time; a simulation derives it from its seed, so that both runners
give the same model, and says so.

Gaussians are Box and Muller's: a radius from 53 random bits in float64 (so that tails reach 8.5
deviations), an angle from 32 in float32, in cache-sized pieces through torch's vector functions.
That is four times as fast as numpy in float64, which was more than a whole training step of the
PCNN.

Each is the sum of two such draws. Of one alone the angle is one of some 2^24 numbers, so that most
pairs of outputs cannot be a given centre and noise: over the 26,000 pairs of one DP-SGD step that told
a record's presence every time (docs/results/privacy.md, "Releases by themselves"). Of two, there are 2^48
for every pair, far closer together than float32 can tell.
"""

from __future__ import annotations

import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privacy.discrete import Table, rounded_table, table

__all__ = ["SecretStream"]

_PIECE = 1 << 15  #: pairs of Gaussians made at once
_ZEROS = bytes(12 * _PIECE)


class SecretStream:
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError(f"a key of {len(key)} bytes instead of 32")
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._raw = np.empty(len(_ZEROS) + 16, np.uint8)

    def uniform(self, n: int) -> np.ndarray:
        """n numbers strictly between 0 and 1, with 53 random bits each."""
        return ((self._words(n) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def normal(self, n: int) -> np.ndarray:
        """n standard Gaussians, float32."""
        total = self.box_muller(n)
        total += self.box_muller(n)
        total *= np.float32(math.sqrt(0.5))
        return total

    def box_muller(self, n: int) -> np.ndarray:
        """One draw, of which the i-th and the one half of the way further on share radius and angle.
        By itself it is no noise that privacy can stand on.
        """
        import torch  # here: whoever only counts bytes or charges a ledger need not wait for it

        half = (n + 1) // 2
        # from arrays, and so on the processor, whatever device this process computes on
        out = torch.from_numpy(np.empty(2 * half, np.float32))
        for at in range(0, half, _PIECE):
            size = min(_PIECE, half - at)
            self._cipher.update_into(memoryview(_ZEROS)[: 12 * size], self._raw.data)
            words = np.frombuffer(self._raw.data, "<u8", size) >> np.uint64(11)
            turns = np.frombuffer(self._raw.data, "<u4", size, 8 * size)
            radius = (
                torch.from_numpy(words.astype(np.float64))
                .add_(0.5)
                .mul_(2.0**-53)
                .log_()
                .mul_(-2.0)
            )
            length = radius.sqrt_().float()
            angle = torch.from_numpy(turns.astype(np.float32)).mul_(2.0 * math.pi / 2**32)
            torch.mul(angle.cos(), length, out=out[at : at + size])
            torch.mul(angle.sin(), length, out=out[half + at : half + at + size])
        return out[:n].numpy()

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
        words = self._words(n)
        place = np.searchsorted(t.high, words, side="left")
        equal = (place < len(t.high)) & (t.high[np.minimum(place, len(t.high) - 1)] == words)
        for i in np.flatnonzero(equal):
            whole = int(words[i]) << 64 | int(self._words(1)[0])
            place[i] = t.place(whole)
        return place.astype(np.int64) - t.most

    def _words(self, n: int) -> np.ndarray:
        return np.frombuffer(self._cipher.update(bytes(8 * n)), "<u8")
