"""A silo's own rules: what it takes part in, whatever the study says. Checked before it dials, and
at every round.

Nothing here is taken from the coordinator, and nothing here is sent to it but the name of the rule
that a request met.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from config.errors import UserError
from config.settings import Settings
from config.site import HOURS

__all__ = ["NO_RULES", "OUTSIDE_HOURS", "Declined", "Hours", "Rules"]

OUTSIDE_HOURS = "outside-hours"  #: the name under which a round is declined


class Declined(Exception):
    """Not now, or not any more: a rule of this silo's own. Nobody need have attacked anybody."""

    def __init__(self, attack: str, detail: str) -> None:
        super().__init__(detail)
        self.attack, self.detail = attack, detail


@dataclass(frozen=True)
class Hours:
    """From `begin` to `end`, minutes after midnight on this machine's clock; over midnight where
    end is not later.
    """

    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Hours:
        match = HOURS.fullmatch(text.replace(" ", ""))
        if match is None:
            raise UserError(f'hours must be as in "18:00-06:00", not "{text}".')
        a, b, c, d = map(int, match.groups())
        return cls(60 * a + b, 60 * c + d)

    def holds(self, now: time.struct_time) -> bool:
        minute = 60 * now.tm_hour + now.tm_min
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def seconds_until(self, now: time.struct_time) -> int:
        """Until they begin; 0 within them."""
        if self.holds(now):
            return 0
        past = 3600 * now.tm_hour + 60 * now.tm_min + now.tm_sec
        return (60 * self.begin - past) % 86_400

    def __str__(self) -> str:
        return "-".join(f"{m // 60:02d}:{m % 60:02d}" for m in (self.begin, self.end))


@dataclass(frozen=True)
class Rules:
    methods: tuple[str, ...] = ()  #: those it takes part in; empty: any
    minimum_survivors: int = 3  #: the smallest sum it hides in
    maximum_epsilon: float = math.inf  #: over all that was ever released of its records
    #: The largest delta at which a study may state its epsilon: without it a small epsilon says
    #: nothing, since at a large delta almost any noise has one.
    maximum_delta: float = 1e-5
    maximum_rounds: int = 0  #: of one study; 0: as many as the study has
    hours: Hours | None = None  #: when it computes

    def check(self, settings: Settings, silos: int) -> None:
        """Refuse a study that breaks a rule, before anything is sent."""
        if self.methods and settings.method_name not in self.methods:
            allowed = ", ".join(self.methods)
            raise UserError(
                f'The study\'s method is "{settings.method_name}", and this silo allows only {allowed}.'
            )
        if not settings.secagg:
            raise UserError(
                "The study masks nothing (secagg = false); a silo on a machine of its own takes no part."
            )
        if self.maximum_rounds and settings.rounds > self.maximum_rounds:
            raise UserError(
                f"The study has {settings.rounds} rounds, and this silo allows {self.maximum_rounds}."
            )
        if self.minimum_survivors > silos:
            raise UserError(
                f"This silo wants sums over at least {self.minimum_survivors} silos, and the roster has {silos}."
            )
        if math.isfinite(self.maximum_epsilon) and settings.dp == "off":
            raise UserError(
                f"The study adds no noise, so that epsilon is infinite, and this silo allows {self.maximum_epsilon:g}."
            )

        if settings.dp != "off" and settings.delta > self.maximum_delta:
            raise UserError(
                f"The study states its epsilon at delta {settings.delta:g}, and this silo allows "
                f"{self.maximum_delta:g} (maximum_delta)."
            )

    def applied(self, settings: Settings) -> Settings:
        """The study as this silo runs it: with the smaller budget, from which its noise is then
        solved.
        """
        if settings.dp == "off" or self.maximum_epsilon >= (settings.epsilon or math.inf):
            return settings
        return replace(settings, epsilon=self.maximum_epsilon)

    def closed_for(self, now: time.struct_time) -> int:
        """Seconds until its hours begin; 0 within them, and where it has none."""
        return 0 if self.hours is None else self.hours.seconds_until(now)

    def during(
        self, settings: Settings, now: Callable[[], time.struct_time] = time.localtime
    ) -> Callable[[int], None]:
        """What is asked of every round that a coordinator begins."""

        def check(round: int) -> None:
            if settings.rounds and round >= settings.rounds:  # 0: left open
                raise Declined(
                    "too-many-rounds", f"round {round + 1} of a study of {settings.rounds}"
                )
            if self.hours is not None and not self.hours.holds(now()):
                raise Declined(OUTSIDE_HOURS, f"this silo computes from {self.hours}")

        return check


NO_RULES = Rules()
