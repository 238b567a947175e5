"""`sottovoce join`: a silo answers an invitation, or signs its roster's next version. Also what both
sides do before they sign: compare twelve words.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cli.keys import console, say, sentences, show_roster
from config.errors import UserError
from crypto.identity.enrolment import Invitation, Stage, read_invitation
from crypto.identity.roster import Roster
from crypto.identity.words import same_words, words
from wire.enrolment import Answer, EnrolmentClient
from wire.keyring import Keyring
from wire.passphrase import new_passphrase, open_keys, passphrase_for
from wire.questions import Unreached

__all__ = ["Sealed", "Seconds", "Told", "checked_address", "compare", "join", "show_words"]

Told = Annotated[
    str, typer.Option(help="The twelve words that you were told, instead of being asked.")
]
Seconds = Annotated[float, typer.Option("--wait", help="Seconds to wait for the other parties.")]
Sealed = Annotated[
    bool,
    typer.Option("--passphrase", help="Seal the key files with a passphrase, which is asked for."),
]

#: What a new silo begins with; ops/examples/silo.toml has all there is.
_OWN_FILE = """# This silo's own file. Nobody else sees it, and its limits win over any study's.
home = "."
coordinator = "{place}"  # where its board is
# corpus = "/srv/our-data"  # the folder with our training data

[limits]
# methods = ["fedavg"]  # those it takes part in; left out: any
# maximum_epsilon = 8.0  # over all that was ever released of its records
# maximum_rounds = 100
# hours = "18:00-06:00"  # when it computes, on this machine's clock

# Proposed studies that it accepts by itself; left out: its operator is asked about each.
# [accept]
# methods = ["fedavg"]
# maximum_epsilon = 3.0
"""


def join(
    invitation: Annotated[
        str, typer.Argument(help="The invitation's file; nothing: the next version of a roster.")
    ] = "",
    home: Annotated[str, typer.Option(help="This silo's own folder; it is made.")] = "silo",
    address: Annotated[
        str, typer.Option(help="HOST:PORT of the coordinator, where there is no invitation.")
    ] = "",
    told: Told = "",
    wait: Seconds = 86_400.0,
    passphrase: Sealed = False,
) -> None:
    """Answer an invitation: make keys, compare twelve words with the others, sign and pin the
    roster. Started again, it goes on.
    """
    path = Path(home)
    if invitation:
        with sentences(invitation):
            invited = _read_invitation(Path(invitation))
        ring, phrase = _own_keys(path, invited.silo, passphrase)
        if (earlier := ring.earlier()) is not None:
            if earlier.coordinator.identity != invited.coordinator.identity:
                raise UserError(
                    f"{home} belongs to {earlier.consortium}; for {invited.consortium} name another folder: "
                    f"sottovoce join {invitation} --home FOLDER"
                )
            say(
                f"{ring.card.name} belongs to {earlier.consortium} already: version {earlier.version} of "
                f"its roster is in force in {home}. For the next version: sottovoce join --address "
                f"{invited.address} --home {home}"
            )
            _begin_file(path, invited.address)
            return
        place, coordinator = address or invited.address, invited.coordinator
    elif not address:
        raise UserError(
            "join needs an invitation's file, or --address for a roster's next version."
        )
    else:
        phrase = passphrase_for(path)
        ring = open_keys(path, phrase)
        with sentences(home):
            place, coordinator = address, ring.pinned().coordinator
    client = EnrolmentClient(place, ring.curve, coordinator)
    with sentences("The enrolment"):
        try:
            if invitation:
                _retried(lambda: client.send_card(ring.card, invited.token), wait)
                say(f"{ring.card.name} has answered; waiting for the other parties")
            answer = client.wait(wait, lambda a: a.roster is not None and _new(a.roster, ring), say)
            roster = answer.roster
            assert roster is not None
            roster.check()
            if roster.coordinator.digest != coordinator.digest:
                raise UserError("The roster has another coordinator than the invitation.")
            if ring.card.name in roster.unsigned:
                compare(roster, ring, told)
                roster = ring.sign(roster, phrase)
                client.send_signature(roster)
            sealed = client.wait(wait, lambda a: a.stage is Stage.SEALED, say).roster
        except Unreached as e:
            raise UserError(
                f"The coordinator at {place}: {e}; start this again to go on."
            ) from None
        assert sealed is not None
        if sealed.digest != roster.digest:
            raise UserError("The sealed roster is not the one that was signed here.")
        ring.pin(sealed, phrase)
    say(f"{home}: version {sealed.version} of {sealed.consortium} is in force here")
    if invitation:
        _begin_file(path, place)


def _begin_file(home: Path, place: str) -> None:
    """The silo's own file, if it has none yet, and what to do with it."""
    file = home / "silo.toml"
    if not file.exists():
        file.write_text(_OWN_FILE.format(place=place), "utf-8")
        say(f"Name your data in {file}, then: sottovoce silo serve --config {file}")


def _new(roster: Roster, ring: Keyring) -> bool:
    earlier = ring.earlier()
    return earlier is None or roster.version > earlier.version


def _retried(ask: Callable[[], Answer], seconds: float) -> Answer:
    """The coordinator may not listen yet."""
    for attempt in range(max(1, int(seconds / 5))):
        try:
            return ask()
        except Unreached as e:
            if attempt == 0:
                say(f"{e}; asking again until it does. Does the coordinator run `consortium seal`?")
            continue
    return ask()


def _own_keys(home: Path, name: str, passphrase: bool) -> tuple[Keyring, str]:
    """New keys, or those that an earlier try made for the same name."""
    if (home / "keys").exists():
        phrase = passphrase_for(home)
        ring = open_keys(home, phrase)
        if ring.card.name != name:
            raise UserError(
                f"{home} has the keys of {ring.card.name}, and the invitation is for {name}; give another --home."
            )
        return ring, phrase
    phrase = new_passphrase() if passphrase else ""
    with sentences():
        return Keyring.create(home, name, "silo", phrase), phrase


def _read_invitation(path: Path) -> Invitation:
    try:
        return read_invitation(path.read_bytes())
    except OSError as e:
        raise UserError(f"{path} cannot be read: {e.strerror}.") from None


# What both sides do


def compare(roster: Roster, ring: Keyring, told: str) -> None:
    """Nobody signs before the words were compared with the other parties."""
    show_words(roster, ring)
    if told:
        if not same_words(roster.digest, told):
            raise UserError("--told has other words than this roster; nothing was signed.")
        return
    if not sys.stdin.isatty():
        raise UserError(
            "Compare the twelve words with the other parties, then give them with --told."
        )
    say("Telephone the other parties. Everybody must see the same twelve words and the same names.")
    if console.input('Type "yes" if they do: ').strip().lower() != "yes":
        raise UserError("Not compared; nothing was signed.")


def show_words(roster: Roster, ring: Keyring) -> None:
    show_roster(roster, ring.earlier())
    say("")
    say(f"    {words(roster.digest)}")
    say("")


def checked_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UserError(f'An address is HOST:PORT, not "{text}".')
    return host, int(port)
