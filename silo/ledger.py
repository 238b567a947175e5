"""What this silo's records were charged, on the silo's own disk: append-only, and synced before
anything is sent.

One JSON line per event. `charge` returns only when the disk has the line, and only then may what it
pays for leave; so a kill at any point leaves the ledger at or above what left, never below. A last
line cut short was never acted on and is dropped; any other line that cannot be read stops the silo,
because what cannot be read cannot be charged.

Several studies of a silo may run at once and share the file: each charges on top of what the others
have written. Events stay in the file, and count, for as long as the file is there: a second run on the same data
starts where the first one ended. An operator whose silo has entirely new records gives it a new
file.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import UserError
from config.settings import Settings
from privacy.accountant import Total, total
from privacy.events import (
    DpSgd,
    Event,
    Free,
    Gaussian,
    NonPrivate,
    RoundedGaussian,
    Unit,
    UnknownEvent,
    from_record,
    to_record,
)
from privacy.second_opinion import compared
from silo.appended import AppendOnly

__all__ = ["Budget", "BudgetSpent", "Ledger", "budget_of", "shown"]

log = logging.getLogger("silo")


class BudgetSpent(Exception):
    """The next release would take this silo over its budget: it refuses, and stays out."""

    #: the name the refusal travels under; nobody need have attacked anybody
    attack = "budget-spent"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True)
class Budget:
    epsilon: float = math.inf
    delta: float = 1e-5
    unit: Unit = "record"


def budget_of(settings: Settings) -> Budget:
    unit: Unit = "silo" if settings.dp == "silo" else "record"
    return Budget(settings.epsilon or math.inf, settings.delta, unit)


def shown(epsilon: float) -> float | str:
    """JSON has no infinity; a reader must not miss it."""
    return "inf" if math.isinf(epsilon) else epsilon


class Ledger:
    """`path` None: kept in memory only, for a gate without a disk (tests)."""

    def __init__(
        self,
        path: Path | None,
        budget: Budget,
        data: str = "",
        same_data: bool = False,
        records: str = "",
        study: str = "",
    ) -> None:
        """`data` names the records (a hash). `same_data`: refuse a file begun on others, instead of
        counting on. `records`: what one record is, in a word; costs of sentences and costs of bags
        cannot be added. `study`: the hash of the study that is charged from now on.
        """
        self._budget, self._data, self._path, self._records = budget, data, path, records
        self._study = study
        self._events: list[Event] = []
        self._file: AppendOnly | None = None
        self._stopped = ""  #: why this silo stays out, once it does
        self._charged: list[dict[str, Any]] = []
        if path is not None:
            try:
                self._open(path, same_data)
            except BaseException:
                self.close()
                raise

    def _open(self, path: Path, same_data: bool) -> None:
        self._file = AppendOnly(path, "privacy ledger", shared=True)
        with self._file.turn():
            for line in self._file.read():
                if self._take(path, line) and same_data:
                    raise UserError(
                        f"The privacy ledger {path} was begun on other records; use the PARTITION, "
                        "SILOS and SEED it was begun with, or another LEDGER."
                    )

    def _take(self, path: Path, line: bytes) -> bool:
        """Count a line of the file. Returns whether it is about other records."""
        try:
            entry = json.loads(line)
            event = from_record(entry["event"])
            other, records = entry["data"] != self._data, str(entry.get("records", ""))
        except (ValueError, KeyError, TypeError) as e:
            what = str(e) if isinstance(e, UnknownEvent) else "it is not a ledger line"
            raise UserError(
                f"{path}, line {len(self._events) + 1}: {what}; what cannot be read cannot be charged."
            ) from None
        self._events.append(event)
        self._same_records(path, event, records)
        return other

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """With all that other studies of this silo have charged meanwhile."""
        if self._file is None or self._path is None:
            yield
            return
        with self._file.turn():
            for line in self._file.news():
                self._take(self._path, line)
            yield

    def _same_records(self, path: Path, event: Event, records: str) -> None:
        """A noisy sum protects the whole silo, and so whatever a record is; DP-SGD protects what it
        sampled.
        """
        if not isinstance(event, DpSgd | Gaussian | RoundedGaussian) or "silo" in (
            records,
            self._records,
        ):
            return
        if records and self._records and records != self._records:
            raise UserError(
                f"The privacy ledger {path} was charged for single {records}s, and the records of this run are "
                f"{self._records}s; their costs cannot be added, so this run does not start on these data."
            )

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    def total(self, more: Sequence[Event] = ()) -> Total:
        return total([*self._events, *more], self._budget.delta, self._budget.unit)

    def charge(self, round: int, exchange: str, disclosure: str, event: Event) -> None:
        """Write it down, or refuse. Nothing that this pays for may leave before this returns."""
        if self._stopped:
            raise BudgetSpent(self._stopped)
        with self._turn():
            self._charge(round, exchange, disclosure, event)

    def _charge(self, round: int, exchange: str, disclosure: str, event: Event) -> None:
        after = self.total([event])
        if after.epsilon > self._budget.epsilon:
            self._stopped = self._why(disclosure, event, after)
            log.error("refused (%s): %s", BudgetSpent.attack, self._stopped)
            raise BudgetSpent(self._stopped)
        entry: dict[str, Any] = {
            "data": self._data,
            "records": self._records,
            "round": round,
            "exchange": exchange,
        }
        entry |= {"disclosure": disclosure}
        entry |= {
            "event": to_record(event),
            "epsilon_after": shown(after.epsilon),
            "rdp_epsilon_after": shown(after.rdp),
            "delta": after.delta,
            "unit": self._budget.unit,
            "study": self._study,
        }
        if self._file is not None:
            try:
                self._file.append(json.dumps(entry, separators=(",", ":")).encode())
            except OSError as e:
                raise OSError(
                    e.errno,
                    f"the privacy ledger {self._path} could not be written; is the disk full?",
                ) from None
        self._events.append(event)
        self._charged.append(
            {
                "disclosure": disclosure,
                "exchange": exchange,
                "event": event.words,
                "mechanism": {} if isinstance(event, Free) else to_record(event),
                "epsilon_after": shown(after.epsilon),
                "rdp_epsilon_after": shown(after.rdp),
                "delta": after.delta,
                "unit": self._budget.unit,
            }
        )

    def settle(self) -> None:
        """At the end of a run: everything in the file once more, by Opacus's accountant. Another
        figure than the budget was held to is an error (`privacy.second_opinion.Disagreement`).
        """
        theirs = compared(self._events, self._budget.delta, self._budget.unit)
        if theirs is not None:
            log.info(
                "the ledger stands at epsilon %.6g; by Opacus's accountant between %.6g and %.6g",
                self.total().epsilon,
                theirs.least,
                theirs.most,
            )

    def _why(self, disclosure: str, event: Event, after: Total) -> str:
        budget = f"its budget of epsilon {self._budget.epsilon:g} at delta {self._budget.delta:g}"
        if isinstance(event, NonPrivate):
            return f"{disclosure} would leave without noise, and {budget} does not allow it"
        before = self.total()
        if math.isinf(before.epsilon):
            return f"its records were released without noise before, as its ledger says; {budget} cannot be kept"
        return f"with {disclosure} epsilon would be {after.epsilon:.4g}, above {budget} (now {before.epsilon:.4g})"

    def drain(self) -> list[dict[str, Any]]:
        """What was charged since the last call, for the coordinator's privacy.jsonl and the
        operator.
        """
        taken, self._charged = self._charged, []
        return taken

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
