"""Randomness that privacy stands on: uniform and Gaussian numbers from an AES-256-CTR keystream.

Whoever knows the key can subtract the noise and knows who was sampled. A silo takes its key from the operating system,
afresh each time; a simulation derives it from its seed, so that both runners give the same model, and says so.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["SecretStream"]


class SecretStream:
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError(f"a key of {len(key)} bytes instead of 32")
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def uniform(self, n: int) -> np.ndarray:
        """n numbers strictly between 0 and 1, with 53 random bits each."""
        words = np.frombuffer(self._cipher.update(bytes(8 * n)), "<u8")
        return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def normal(self, n: int) -> np.ndarray:
        """n standard Gaussians (Box and Muller), float64."""
        half = (n + 1) // 2
        radius = np.sqrt(-2.0 * np.log(self.uniform(half)))
        angle = 2.0 * np.pi * self.uniform(half)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]
