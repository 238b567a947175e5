"""What `sottovoce doctor` looks at for a silo that serves, and so names no study: whether its data can
be read at all, and whether the coordinator's board answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from config.site import Site
from crypto.identity.card import RosterRefused
from crypto.identity.roster import Roster
from wire.keyring import Keyring
from wire.messages import VERSION
from wire.questions import Unreached, ask

__all__ = ["Found", "board_of", "data_of", "version_of"]

Found = tuple[str, str, str, str]  #: status, check, text, what to do


def data_of(site: Site) -> Iterator[Found]:
    """Each file is opened and none is read: which of them a study needs, the study says."""
    yield "ok", "study", "none is named: this silo serves, and is told of studies", ""
    if not site.corpus:
        text = "none is named: this silo has its part of a study's built-in corpus, for a trial"
        yield "warn", "corpus", text, "name your data in the silo's file"
        return
    folder, files = Path(site.corpus), 0
    try:
        for file in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            if not file.is_dir():
                file.open("rb").close()
                files += 1
    except OSError as e:
        text = f"{e.filename} cannot be read by this user ({e.strerror})"
        yield "fail", "corpus", text, "name a folder that the serving user may read"
        return
    if files:
        text = (
            f"{folder}: {files} files can be read; what is in them is seen when a study is proposed"
        )
        yield "ok", "corpus", text, ""
    else:
        yield "fail", "corpus", f"{folder} has no file", "put your data there"


def board_of(site: Site, keys: Keyring, roster: Roster) -> Found:
    """One question, as the serving silo asks it."""
    todo = "check the address, the firewall, and whether the coordinator serves"
    try:
        shown = ask(site.addresses, keys.curve, roster.coordinator.curve.encode(), ["news"])
    except (Unreached, RosterRefused) as e:
        return "fail", "reach", str(e), todo
    open_ = [s for s in shown if isinstance(s, dict) and s.get("state") != "ended"]
    text = (
        f"the board of {roster.coordinator.name} answers, and has {len(open_)} studies that go on"
    )
    return "ok", "reach", text, ""


def version_of(site: Site, keys: Keyring, roster: Roster) -> Found | None:
    """A warning where the coordinator's program is of another version; None: the same, or it could
    not be asked.
    """
    try:
        said = ask(site.addresses, keys.curve, roster.coordinator.curve.encode(), ["version"])
    except Unreached:
        return None
    except RosterRefused:  # a program that does not know the question
        said = "of an earlier version"
    if said == VERSION:
        return None
    text = f"the coordinator has sottovoce {str(said)[:40]}"
    return "warn", "version", text, "install the same on both sides"
