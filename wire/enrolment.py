"""Enrolment over the coordinator's own port, before any study.

A silo asks with CURVE under the key of its new card, which nobody knows yet, so any key is let in
here. What it may say is little: its card with the token of its invitation, its signature on the
roster, or "what is new?". The coordinator's key comes from the invitation, so nobody on the way can
answer in its place; that the invitation is the right one is what the words on the telephone are for.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crypto.identity.card import Card, RosterRefused
from crypto.identity.enrolment import Gathering, Stage
from crypto.identity.roster import Roster, parse
from wire.keys import CurveKeys
from wire.questions import QuestionServer, Unreached, ask

__all__ = ["Answer", "EnrolmentClient", "EnrolmentServer", "listening_place", "write_place"]

_TOKEN_BYTES = 16
_PLACE = "address"  #: a file of the coordinator's: what its invitations say


@dataclass(frozen=True)
class Answer:
    stage: Stage
    missing: tuple[str, ...]  #: who has still to answer, or to sign
    roster: Roster | None  #: once it is fixed


class EnrolmentServer:
    """Holds a gathering and lets silos move it on. `keep` is called before an answer tells of a
    change.
    """

    def __init__(
        self, keys: CurveKeys, gathering: Gathering, keep: Callable[[Gathering], None]
    ) -> None:
        self.gathering, self._keep = gathering, keep
        self._lock = threading.Lock()  # its operator changes it too, from another thread
        self._server = QuestionServer(keys, self._answered, allowed=None)
        self.bind, self.close = self._server.bind, self._server.close

    def serve(self, seconds: float) -> bool:
        """Answer one question, if one comes within `seconds`. Returns whether something changed."""
        before = self.gathering
        self._server.serve(seconds)
        return self.gathering is not before

    def _answered(self, who: str, said: Any) -> list:
        match said:
            case ["card", str(card), bytes(token)] if len(token) == _TOKEN_BYTES:
                shown = Card.from_record(json.loads(card))
                self.change(lambda g: g.card(shown, token))
            case ["signed", str(roster)]:
                copy = parse(roster.encode())
                self.change(lambda g: g.signed(copy))
            case ["news"]:
                pass
            case _:
                raise RosterRefused("wrong-shape", "an enrolment message that is none")
        g = self.gathering
        return [g.stage.value, list(g.missing), g.roster.to_text() if g.fixed else ""]

    def change(self, step: Callable[[Gathering], Gathering]) -> None:
        """On disk before anybody is told."""
        with self._lock:
            after = step(self.gathering)
            if after is not self.gathering:
                self._keep(after)
                self.gathering = after


class EnrolmentClient:
    def __init__(self, address: str, keys: CurveKeys, coordinator: Card) -> None:
        self._addresses = tuple(place.strip() for place in address.split(","))
        self._keys, self._coordinator = keys, coordinator

    def send_card(self, card: Card, token: bytes) -> Answer:
        return self._ask(["card", json.dumps(card.to_record()), token])

    def send_signature(self, roster: Roster) -> Answer:
        return self._ask(["signed", roster.to_text()])

    def news(self) -> Answer:
        return self._ask(["news"])

    def _ask(self, question: list) -> Answer:
        said = ask(self._addresses, self._keys, self._coordinator.curve.encode(), question)
        try:
            stage, missing, roster = said
            shown = parse(roster.encode()) if roster else None
            return Answer(Stage(stage), tuple(map(str, missing)), shown)
        except (ValueError, TypeError, AttributeError):
            raise RosterRefused("wrong-shape", "the coordinator's answer cannot be read") from None

    def wait(
        self,
        seconds: float,
        enough: Callable[[Answer], bool],
        tell: Callable[[str], None] = lambda text: None,
    ) -> Answer:
        """Ask for news until they are `enough`; `Unreached` after `seconds` without them. `tell`
        hears who is missing, or that nobody answers, whenever that changes.
        """
        until, last = time.monotonic() + seconds, "there is no news"
        while time.monotonic() < until:
            before = last
            try:
                answer = self.news()
                if enough(answer):
                    return answer
                if answer.missing:
                    last = f"waiting for {', '.join(answer.missing)}"
            except Unreached as e:
                last = str(e)
            if last != before:
                tell(last)
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))
        raise Unreached(last)


# Where


def write_place(home: Path, address: str) -> None:
    """HOST:PORT at which silos reach this coordinator, as its invitations say."""
    (home / _PLACE).write_text(address + "\n", "utf-8")


def listening_place(home: Path) -> str:
    """Where a coordinator listens, if nobody says: on the port that its invitations name."""
    file = home / _PLACE
    port = file.read_text("utf-8").strip().rpartition(":")[2] if file.is_file() else "5555"
    return f"0.0.0.0:{port}"
