"""A silo that serves for weeks: it asks its coordinator for new studies, shows each to its operator,
and takes part in what was accepted, each in a process of its own (silo.program).

Nothing leaves by serving but the silo's answers to proposals. An acceptance names the study's hash
as *this* silo computed it and is signed; the process that takes part computes it again and takes
part in nothing else. Hours, limits and the privacy ledger are that process's, as always.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from config.errors import UserError, nearest
from config.logs import log_to
from config.site import Site, read_site
from crypto.derive import Label
from crypto.identity.card import RosterRefused
from methods import names
from silo.home import Home
from silo.process import AGAIN
from silo.record import record_folder
from silo.rules import Hours
from silo.site_file import PLACES, write_for_study
from silo.studies import Studies
from study.children import Child
from study.machine import roster_stamp
from study.monitoring import Monitor
from study.presence import Presence, alone
from wire.passphrase import passphrase_for
from wire.questions import Unreached, ask

__all__ = ["Server", "serve_studies"]

log = logging.getLogger("silo")
_PAUSE = 2.0  #: seconds between two questions
_MOST_TEXT = 1 << 20
#: seconds for which a study that ended here may still be scored at the coordinator, as "running"
_SCORED = 600.0
#: What the coordinator's operator wants of a study, for this silo's.
_STATES = {"pause": "paused by the coordinator", "stop": "stopping"}
LAST_WRITTEN = "privacy-budget.html"  #: of a silo's documents


class Server:
    """Without a loop of its own: `step` asks once and acts on the answer."""

    def __init__(self, site: Site, home: Home) -> None:
        self._site, self._home, self.studies = site, home, Studies(site.home)
        self._looks: dict[str, Child] = {}
        self._runs: dict[str, Child] = {}  #: studies in which this silo takes part now
        self._ports: dict[str, int] = {}  #: where the coordinator runs them
        #: studies whose rounds are over, at which port, and when that was heard
        self._finished: dict[str, tuple[int, float]] = {}
        self._papers: dict[str, Child] = {}  #: silo's documents that are being made
        self.presence = Presence(site.home)
        #: what stood against these may have been put right since
        self._again = {k.id for k in self.studies.all() if k.refused}

    def step(self) -> None:
        for id_ in [i for i in self._runs if self.studies[i].word != "accept"]:
            self._end(id_, "this silo left it")
        try:
            # those that run come first, in the order in which they began: every silo that has not
            # slots enough for all takes part in the same ones
            news = self._ask(["news"])
            self.presence.heard(self._home.roster.coordinator.name)
            for shown in news:
                self._see(shown)
        except Unreached as e:
            log.warning("the coordinator's board: %s", e)
        except RosterRefused as e:
            log.error("the coordinator's board: %s", e)
        self._follow()
        self.presence.beat(dict.fromkeys(self._runs, 0))

    def _ask(self, question: list) -> list[dict[str, Any]]:
        ring, roster = self._home.keys, self._home.roster
        said = ask(self._site.addresses, ring.curve, roster.coordinator.curve.encode(), question)
        if not isinstance(said, list) or not all(isinstance(s, dict) for s in said):
            raise RosterRefused("wrong-shape", "an answer of the board that is none")
        return said

    # A proposal

    def _see(self, shown: dict[str, Any]) -> None:
        from hashlib import sha256

        id_, text = shown.get("id"), shown.get("text")
        if not isinstance(id_, str) or not isinstance(text, str) or len(text) > _MOST_TEXT:
            raise RosterRefused("wrong-shape", "a proposal that is none")
        if id_ != sha256(text.encode()).hexdigest()[:12]:
            raise RosterRefused("wrong-shape", "a proposal under the name of another study")
        again = id_ in self._again or self.studies.to_look_at_again(id_)
        if id_ not in self.studies or id_ in self._looks or (again and shown["state"] != "ended"):
            self._again.discard(id_)
            self._look(id_, text)
            return
        known = self.studies[id_]
        if not known.word and not known.refused and shown["state"] != "ended":
            if not (why := self._site.accept.refuses(known.facts) or self._outside_hours()):
                if self.studies.is_stale(id_):  # a policy accepts nothing that cannot be paid for
                    self.studies.look_again(id_)
                    return
                self.studies.decide(id_, "accept", "policy")
                log.info("study %s is accepted by this silo's policy", id_)
            elif known.state != "proposed":
                words = f"sottovoce study accept {id_} --home {self._site.home}"
                log.info(
                    "study %s (%s) waits for its operator (%s): %s", id_, known.title, why, words
                )
        self._answer(id_, shown)
        state = _STATES.get(shown["state"], str(shown["state"]))
        state += f": {shown['outcome']}" if shown.get("outcome") else ""
        running, mine = shown["state"] == "running", id_ in self._runs
        if not running:
            self._finished.pop(id_, None)
        if not mine and running and self._is_over(id_, int(shown["port"])):
            return
        if not mine and running and self.studies[id_].word == "accept":
            if len(self._runs) < self._site.slots:
                self._take_part(id_, int(shown["port"]))
            else:
                self.studies.tell(id_, "running; this silo waits for a slot")
        elif mine and not running:
            self._end(id_, state)
        elif mine and int(shown["port"]) != self._ports[id_]:
            # the coordinator was started again, and its studies in another order
            self._runs.pop(id_).end()
            self._take_part(id_, int(shown["port"]))
        elif not mine:
            self.studies.tell(id_, state)
            if shown["state"] == "ended":
                self._make_papers(id_)
        over = shown["state"] == "ended" or known.word == "decline"
        if over and known.hash and id_ not in self._runs:
            # its process removes them by itself if it is there at the study's end
            self._home.forget_features(bytes.fromhex(known.hash))

    def _is_over(self, id_: str, port: int) -> bool:
        """Whether the coordinator told this silo that the rounds are over. It may score for a while
        longer; a silo that greeted again would only be told the same again.
        """
        where, when = self._finished.get(id_, (port, -_SCORED))
        return where == port and time.monotonic() - when < _SCORED

    def _outside_hours(self) -> str:
        hours = self._site.accept.hours
        late = hours and Hours.parse(hours).seconds_until(time.localtime())
        return f"this silo accepts by itself from {hours}" if late else ""

    def _look(self, id_: str, text: str) -> None:
        """In a process of its own, since the corpus is read for it."""
        if id_ not in self._looks:
            folder = self.studies.folder(id_)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "study.toml").write_text(text, "utf-8")
            file = write_for_study(self._site, folder, self._site.coordinator)
            words = ["silo", "--config", str(file), "--look", str(folder / "look.new")]
            self._looks[id_] = Child(words, folder / "log")
            self._looks[id_].start()
            what = (
                "a study is looked at again" if id_ in self.studies else "a new study is proposed"
            )
            log.info("%s: %s", what, id_)
            return
        status = self._looks[id_].ended()
        if status is None:
            return
        answer = self.studies.folder(id_) / "look.new"
        look = {"refused": f"the program ended with status {status}; see log"}
        if status == 0:
            look = json.loads(answer.read_text("utf-8"))
        self.studies.looked_at(id_, look)
        answer.unlink(missing_ok=True)
        del self._looks[id_]
        if look.get("refused"):
            log.warning("study %s: this silo cannot take part: %s", id_, look["refused"])

    def _answer(self, id_: str, shown: dict[str, Any]) -> None:
        """What was decided here, if the coordinator does not know it yet."""
        decision = self.studies.decision(id_)
        word = decision.get("word", "decline" if self.studies[id_].refused else "")
        if not word or word == shown.get("answered") or shown["state"] == "ended":
            return
        if word == "decline":
            why = "a rule of this silo's own" if not decision else decision.get("why", "")
            self._ask(["decline", id_, why])
            return
        hash_ = str(decision["hash"])
        if hash_ != shown.get("hash"):
            self.studies.tell(id_, "the coordinator's study has another hash than this silo's")
            log.error("study %s: the coordinator has another hash than this silo", id_)
            return
        if not self._home.agreed_to(hash_):
            self._home.agree(hash_, self.studies[id_].title, str(decision["how"]))
        signature = self._home.keys.identity.sign(Label.CONSENT, id_.encode(), hash_.encode())
        self._ask(["accept", id_, hash_, signature.hex()])

    # Taking part

    def _take_part(self, id_: str, port: int) -> None:
        places = (f"{place.rpartition(':')[0]}:{port}" for place in self._site.addresses)
        file = write_for_study(self._site, self.studies.folder(id_), ",".join(places))
        words = ["silo", "--config", str(file), "--accept", self.studies[id_].hash]
        self._ports[id_] = port
        self._runs[id_] = Child(words, self.studies.folder(id_) / "log")
        self._runs[id_].start()
        self.studies.tell(id_, "running")
        log.info("study %s: taking part", id_)

    def _follow(self) -> None:
        for id_, child in list(self._papers.items()):
            status = child.ended()
            if status == 0:
                del self._papers[id_]
            elif status is not None:
                log.error("study %s: its documents: %s", id_, child.last_words())
                child.pause()
        for id_, child in list(self._runs.items()):
            status = child.ended()
            if status is None:
                if child.start():
                    self.studies.tell(id_, "running")
            elif status == 0:
                self._finished[id_] = self._ports[id_], time.monotonic()
                self._end(id_, "finished")
            else:
                # It is tried again for as long as the study runs and is accepted: what was refused
                # may be let in once the other end, or this machine, was put right.
                why = child.last_words() if status == 2 else f"its process ended ({status})"
                if status != AGAIN:
                    self.studies.tell(id_, f"running, without this silo: {why}")
                    log.warning("study %s: %s; it is tried again", id_, why)
                child.pause()

    def _end(self, id_: str, state: str) -> None:
        self._runs.pop(id_).end()
        self._make_papers(id_)
        self.studies.tell(id_, state)
        log.info("study %s: %s", id_, state)

    def _make_papers(self, id_: str) -> None:
        """The silo's documents, if it wrote something down after they were made, or they never were:
        it may have been killed in between. A program of its own makes them: this one loads nothing
        of reports.
        """
        hash_ = self.studies[id_].hash
        record = record_folder(self._site.home, bytes.fromhex(hash_))
        if not hash_ or _changed(record / "left.jsonl") <= _changed(record / LAST_WRITTEN):
            return
        if id_ not in self._papers:
            words = ["cli.main", "documents", id_, "--home", str(self._site.home)]
            self._papers[id_] = Child(words, self.studies.folder(id_) / "log")
        self._papers[id_].start()

    def close(self) -> None:
        for child in (*self._runs.values(), *self._papers.values(), *self._looks.values()):
            child.end()


def serve_studies(config: Path, console: Console) -> int:
    """Until SIGTERM or Ctrl-C."""
    log_to(sys.stderr)
    site = read_site(config)
    if site.study is not None:
        raise UserError(
            f'{config} names a study; a silo that serves is told of studies, so remove "study" from it.'
        )
    phrase = passphrase_for(site.home)
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: stop.append(n))
    _check_methods(site)
    with alone(site.home):
        _serve(site, phrase, stop, console)
    return 0


def _check_methods(site: Site) -> None:
    """A method from outside may have any name, so this is no more than a warning."""
    for method in (*site.limits.methods, *site.accept.methods):
        if method not in names():
            close = nearest(method, names())
            log.warning(
                '%s names the method "%s", which is none of ours.%s', site.path, method, close
            )


def _serve(site: Site, phrase: str, stop: list[int], console: Console) -> None:
    while not stop:
        stamp = roster_stamp(site.home)
        home = Home(site.home, phrase)
        log_to(sys.stderr, home.names)
        server = Server(site, home)
        monitor = _watched(site.metrics, server, home.called) if site.metrics else None
        console.print(
            f"{home.called} of {home.roster.consortium}, roster version {home.roster.version}, waits "
            f"for studies of {site.coordinator}",
            highlight=False,
            soft_wrap=True,
        )
        try:
            # a new roster ends what was agreed to under the old one
            while not stop and roster_stamp(site.home) == stamp:
                server.step()
                until = time.monotonic() + _PAUSE
                while not stop and time.monotonic() < until:
                    time.sleep(0.1)
        finally:
            server.close()
            if monitor is not None:
                monitor.close()


def _watched(address: str, server: Server, name: str) -> Monitor:
    """Health and figures at `address`, for as long as this silo serves."""

    def studies() -> dict[str, int]:
        states = Counter("cannot take part" if k.refused else k.word for k in server.studies.all())
        return {
            "to decide": states[""],
            "accepted": states["accept"],
            "declined": states["decline"],
            "cannot take part": states["cannot take part"],
        }

    return Monitor(
        address,
        role="silo",
        name=name,
        presence=server.presence,
        studies=studies,
        places=PLACES,
    )


def _changed(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0
