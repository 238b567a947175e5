"""The comparisons that `make study PAPER=…` knows: one file per paper, each a `SPEC`."""

from __future__ import annotations

from collections.abc import Mapping

from bench.studies import fedcmc, feded, fedlcc, fedner, lazymil
from bench.studies.base import Spec

__all__ = ["STUDIES", "Spec"]

STUDIES: Mapping[str, Spec] = {
    "fedcmc": fedcmc.SPEC,
    "feded": feded.SPEC,
    "fedlcc": fedlcc.SPEC,
    "fedner": fedner.SPEC,
    "lazymil": lazymil.SPEC,
}
