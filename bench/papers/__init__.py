"""The comparisons that `make table PAPER=…` knows: one file per paper, each a `COMPARISON`."""

from __future__ import annotations

from collections.abc import Mapping

from bench.papers import bits, fedcmc, feded, fedlcc, fedner, lazymil, privacy, privacy_real
from bench.papers.base import Comparison, Published

__all__ = ["PAPERS", "Comparison", "Published"]

PAPERS: Mapping[str, Comparison] = {
    "lazymil": lazymil.COMPARISON,
    "feded": feded.COMPARISON,
    "fedcmc": fedcmc.COMPARISON,
    "fedlcc": fedlcc.COMPARISON,
    "fedner": fedner.COMPARISON,
    "bits": bits.COMPARISON,
    "privacy": privacy.COMPARISON,
    "privacy_real": privacy_real.COMPARISON,
}
