"""`sottovoce consortium` and `sottovoce join`: strangers become a consortium in one telephone call.

The coordinator invites by file; each silo answers over the coordinator's port; everybody compares
twelve words, signs and pins. `sottovoce keys` and `sottovoce roster` do the same by hand.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
import zmq

from cli.keys import console, say, sentences, show_roster
from config.errors import UserError
from crypto.identity.enrolment import (
    Gathering,
    Invitation,
    Stage,
    invite,
    next_version,
    read_invitation,
)
from crypto.identity.keyfile import write_secret
from crypto.identity.roster import Roster
from crypto.identity.words import same_words, words
from wire.enrolment import Answer, EnrolmentClient, EnrolmentServer
from wire.keyring import Keyring, write_public
from wire.passphrase import new_passphrase, open_keys, passphrase_for
from wire.questions import Unreached

__all__ = ["consortium_app", "join"]

consortium_app = typer.Typer(
    help="Found a consortium and seal its roster; silos answer with `sottovoce join`.",
    no_args_is_help=True,
)
_PAPERS = "gathering.json"

HomeFolder = Annotated[str, typer.Argument(help="The coordinator's own folder.")]
Names = Annotated[list[str], typer.Argument(help="Names of the silos to invite, as in north.")]
Told = Annotated[
    str, typer.Option(help="The twelve words that you were told, instead of being asked.")
]
Seconds = Annotated[float, typer.Option("--wait", help="Seconds to wait for the other parties.")]
Sealed = Annotated[
    bool,
    typer.Option("--passphrase", help="Seal the key files with a passphrase, which is asked for."),
]


# The coordinator


@consortium_app.command("new")
def consortium_new(
    home: HomeFolder,
    silos: Names,
    name: Annotated[str, typer.Option(help="The coordinator's name, as in hub.")],
    consortium: Annotated[str, typer.Option(help="The consortium's name.")],
    address: Annotated[str, typer.Option(help="HOST:PORT at which silos reach this machine.")],
    passphrase: Sealed = False,
) -> None:
    """Make the coordinator's keys, and an invitation for each silo."""
    _check_address(address)
    with sentences():
        ring = Keyring.create(
            Path(home), name, "coordinator", new_passphrase() if passphrase else ""
        )
        gathering, tokens = invite(None, consortium, ring.card, tuple(silos))
        _hand_out(Path(home), ring, consortium, address, gathering, tokens)


@consortium_app.command("invite")
def consortium_invite(
    home: HomeFolder,
    silos: Names,
    address: Annotated[str, typer.Option(help="HOST:PORT at which silos reach this machine.")],
) -> None:
    """Invite more silos, before the roster is sealed or for its next version."""
    _check_address(address)
    path, ring = Path(home), open_keys(Path(home))
    with sentences(home):
        gathering = _read(path)
        if gathering.stage is Stage.SEALED:
            gathering = next_version(ring.pinned())
        consortium = gathering.roster.consortium
        gathering, tokens = invite(gathering, consortium, ring.card, tuple(silos))
        _hand_out(path, ring, consortium, address, gathering, tokens)


def _hand_out(
    home: Path,
    ring: Keyring,
    consortium: str,
    address: str,
    gathering: Gathering,
    tokens: dict[str, bytes],
) -> None:
    folder = home / "invitations"
    folder.mkdir(mode=0o700, exist_ok=True)
    for silo, token in tokens.items():
        file = folder / f"{silo}.json"
        file.unlink(missing_ok=True)
        text = Invitation(consortium, silo, address, ring.card, token).to_text()
        write_secret(file, "invitation", text.encode(), "")
        say(f"for {silo}: {file}")
    _keep(home, gathering)
    say(f"Send each file to its silo alone, then: sottovoce consortium seal {home}")


@consortium_app.command("seal")
def consortium_seal(
    home: HomeFolder,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on.")] = "0.0.0.0:5555",
    told: Told = "",
    wait: Seconds = 86_400.0,
) -> None:
    """Gather the silos' answers, show the words to compare, gather signatures, pin. Ctrl-C loses
    nothing: start it again.
    """
    path, host, port = Path(home), *_check_address(listen)
    phrase = passphrase_for(path)
    ring = open_keys(path, phrase)
    with sentences(home):
        gathering = _read(path)
        if gathering.stage is Stage.SEALED:
            say(f"{home}: version {gathering.roster.version} is sealed already")
            return
        server = EnrolmentServer(ring.curve, gathering, lambda g: _keep(path, g))
        try:
            try:
                say(f"listening on {host}:{server.bind(host, port)}")
            except zmq.ZMQError as e:
                raise UserError(f"{listen} cannot be listened on ({e.strerror}).") from None
            with _serving(server) as until:
                until(lambda g: not g.missing or g.stage is not Stage.INVITING, wait)
                if not server.gathering.fixed:
                    server.change(lambda g: g.fix())
                roster = server.gathering.roster
                if ring.card.name in roster.unsigned:
                    if not told and not sys.stdin.isatty():
                        # nobody to ask: the others can compare and sign meanwhile
                        _show_words(roster, ring)
                        until(lambda g: g.missing == (ring.card.name,), wait)
                    _compare(roster, ring, told)
                    signed = ring.sign(roster, phrase)
                    server.change(lambda g: g.signed(signed))
                until(lambda g: g.stage is Stage.SEALED, wait)
                ring.pin(server.gathering.roster, phrase)
                # who asks a moment later still gets the sealed roster
                until(lambda g: False, 5.0, silent=True)
        finally:
            server.close()
    say(f"sealed: version {server.gathering.roster.version} is in force here")


@contextmanager
def _serving(server: EnrolmentServer) -> Iterator[Callable[..., None]]:
    """Silos are answered from a thread, also while the operator is on the telephone. Gives a
    function that waits for the gathering to be as it should.
    """
    changed, stop = threading.Condition(), threading.Event()

    def serve() -> None:
        while not stop.is_set():
            if server.serve(0.2):
                with changed:
                    changed.notify_all()

    def until(enough: Callable[[Gathering], bool], seconds: float, silent: bool = False) -> None:
        missing: tuple[str, ...] | None = None
        with changed:
            for _ in range(max(1, int(seconds))):
                if enough(server.gathering):
                    return
                if server.gathering.missing != missing and not silent:
                    missing = server.gathering.missing
                    say(f"waiting for {', '.join(missing)}")
                changed.wait(1.0)
        if not silent:
            raise UserError(
                f"{', '.join(server.gathering.missing)} did not answer; start this again to go on."
            )

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield until
    finally:
        stop.set()
        thread.join()


# A silo


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
            answer = client.wait(wait, lambda a: a.roster is not None and _new(a.roster, ring))
            roster = answer.roster
            assert roster is not None
            roster.check()
            if roster.coordinator.digest != coordinator.digest:
                raise UserError("The roster has another coordinator than the invitation.")
            if ring.card.name in roster.unsigned:
                _compare(roster, ring, told)
                roster = ring.sign(roster, phrase)
                client.send_signature(roster)
            sealed = client.wait(wait, lambda a: a.stage is Stage.SEALED).roster
        except Unreached as e:
            raise UserError(
                f"The coordinator at {place}: {e}; start this again to go on."
            ) from None
        assert sealed is not None
        if sealed.digest != roster.digest:
            raise UserError("The sealed roster is not the one that was signed here.")
        ring.pin(sealed, phrase)
    say(f"{home}: version {sealed.version} of {sealed.consortium} is in force here")


def _new(roster: Roster, ring: Keyring) -> bool:
    earlier = ring.earlier()
    return earlier is None or roster.version > earlier.version


def _retried(ask: Callable[[], Answer], seconds: float) -> Answer:
    """The coordinator may not listen yet."""
    for _ in range(max(1, int(seconds / 5))):
        try:
            return ask()
        except Unreached:
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


# Both


def _compare(roster: Roster, ring: Keyring, told: str) -> None:
    """Nobody signs before the words were compared with the other parties."""
    _show_words(roster, ring)
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


def _show_words(roster: Roster, ring: Keyring) -> None:
    show_roster(roster, ring.earlier())
    say("")
    say(f"    {words(roster.digest)}")
    say("")


def _check_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UserError(f'An address is HOST:PORT, not "{text}".')
    return host, int(port)


def _read(home: Path) -> Gathering:
    path = home / _PAPERS
    try:
        return Gathering.from_text(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f'{home} has no {_PAPERS}; begin with "sottovoce consortium new".'
        ) from None
    except ValueError:
        raise UserError(f"{path} is damaged.") from None


def _keep(home: Path, gathering: Gathering) -> None:
    beside = home / f"{_PAPERS}.new"
    beside.unlink(missing_ok=True)
    write_public(beside, gathering.to_text())
    beside.replace(home / _PAPERS)
