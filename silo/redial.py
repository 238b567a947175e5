"""How long a silo goes on dialling a coordinator that does not answer, or that does not let it in.

That a key is not let in is said before anything is encrypted (a CURVE handshake's ERROR), so
whoever sits between the two can say it as well. Hence a silo does not stop at the first such word,
but after an hour of nothing else: whoever can forge that for an hour could as well have kept the
two apart for it, and gains only that an operator has to start the silo again. Nothing was released
meanwhile. The coordinator for its part says the same to keys that were revoked and to keys it never
knew, and lets neither in to be told more.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from config.errors import UserError
from wire.dealer import Cut

__all__ = ["REFUSED", "SILENT", "Redial"]

SILENT = 7 * 86400.0  #: seconds without a word from a coordinator after which a silo stops dialling
REFUSED = 3600.0  #: seconds of refusals, with nothing else between them, after which it stops


class Redial:
    def __init__(
        self, name: str, address: str, silent: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name, self._address, self._silent, self._clock = name, address, silent, clock
        self._heard = clock()
        self._refused: float | None = None  # since when every attempt was

    def heard(self) -> None:
        """A word came through the encrypted connection: from the coordinator, and nobody else."""
        self._heard, self._refused = self._clock(), None

    def cut(self, end: Cut) -> None:
        """A connection ended, or could not be made. Raises the sentence with which this silo gives
        up.
        """
        now = self._clock()
        if not end.refused:
            self._refused = None
        elif self._refused is None:
            self._refused = now
        elif now - self._refused >= REFUSED:
            raise UserError(
                f"The coordinator at {self._address} has not let the key of {self._name} in: it was revoked, or one of "
                "the two has not pinned the latest roster, or somebody between them says so. "
                "Compare rosters with its operator (sottovoce roster show), and start this silo again."
            )
        if now - self._heard > self._silent:
            raise UserError(
                f"No coordinator at {self._address} for {self._silent:.0f} s; {self._name} gives up."
            )
