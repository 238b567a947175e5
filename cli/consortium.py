"""`sottovoce consortium`: strangers become a consortium in one telephone call.

The coordinator invites by file; each silo answers over the coordinator's port; everybody compares
twelve words, signs and pins. `sottovoce keys` and `sottovoce roster` do the same by hand.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated

import typer
import zmq

from cli.join import Sealed, Seconds, Told, checked_address, compare, show_words
from cli.keys import say, sentences
from config.errors import UserError
from crypto.identity.enrolment import (
    Gathering,
    Invitation,
    Stage,
    invite,
    next_version,
)
from crypto.identity.keyfile import write_secret
from study.presence import alone
from wire.enrolment import EnrolmentServer, listening_place, write_place
from wire.keyring import Keyring, read_card, write_public
from wire.passphrase import new_passphrase, open_keys, passphrase_for

__all__ = ["consortium_app"]

consortium_app = typer.Typer(
    help="Found a consortium and seal its roster; silos answer with `sottovoce join`.",
    no_args_is_help=True,
)
_PAPERS = "gathering.json"

HomeFolder = Annotated[str, typer.Argument(help="The coordinator's own folder.")]
Names = Annotated[list[str], typer.Argument(help="Names of the silos to invite, as in north.")]


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
    checked_address(address)
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
    """Invite more silos, before the roster is sealed or for its next version; or one of them anew,
    whose file or keys were lost before the roster was signed.
    """
    checked_address(address)
    path, ring = Path(home), open_keys(Path(home))
    with sentences(home), _alone(path):
        gathering = _read(path)
        if gathering.stage is Stage.SEALED:
            gathering = next_version(ring.pinned())
        consortium = gathering.roster.consortium
        for name in set(silos) & set(gathering.invited):
            say(
                f"{name} is invited anew: its earlier invitation, and any answer to it, count no more"
            )
        gathering, tokens = invite(gathering, consortium, ring.card, tuple(silos))
        _hand_out(path, ring, consortium, address, gathering, tokens)


@consortium_app.command("next")
def consortium_next(
    home: HomeFolder,
    revoke: Annotated[list[str], typer.Option(help="A silo to take out.")] = [],  # noqa: B006
    why: Annotated[str, typer.Option(help="Why it is taken out; one line.")] = "it left",
    card: Annotated[list[str], typer.Option(help="A card from `keys rotate`.")] = [],  # noqa: B006
) -> None:
    """Begin the roster's next version: take silos out, or put new keys in the place of old ones."""
    if not revoke and not card:
        raise UserError("Say what changes, with --revoke NAME or --card FILE.")
    path, ring = Path(home), open_keys(Path(home))
    with sentences(home), _alone(path):
        gathering = _read(path)
        if gathering.fixed and gathering.stage is not Stage.SEALED:
            raise UserError("A roster is being signed; seal it first.")
        if gathering.stage is Stage.SEALED:
            gathering = next_version(ring.pinned())
        for name in revoke:
            gathering = gathering.without(name, why)
        for file in card:
            gathering = gathering.rotated(read_card(Path(file)))
        _keep(path, gathering)
    say(
        f"version {gathering.roster.version} is begun; now: sottovoce consortium seal {home}, and at "
        "each silo: sottovoce join --address HOST:PORT --home ITS-FOLDER"
    )


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
    write_place(home, address)
    say(f"Send each file to its silo alone, then: sottovoce consortium seal {home}")


@consortium_app.command("seal")
def consortium_seal(
    home: HomeFolder,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT to listen on; nothing: the port of the invitations.")
    ] = "",
    told: Told = "",
    wait: Seconds = 86_400.0,
) -> None:
    """Gather the silos' answers, show the words to compare, gather signatures, pin. Ctrl-C loses
    nothing: start it again.
    """
    path = Path(home)
    listen = listen or listening_place(path)
    host, port = checked_address(listen)
    phrase = passphrase_for(path)
    ring = open_keys(path, phrase)
    with sentences(home), _alone(path):
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
                        show_words(roster, ring)
                        until(lambda g: g.missing == (ring.card.name,), wait)
                    compare(roster, ring, told)
                    signed = ring.sign(roster, phrase)
                    server.change(lambda g: g.signed(signed))
                until(lambda g: g.stage is Stage.SEALED, wait)
                ring.pin(server.gathering.roster, phrase)
                # who asks a moment later still gets the sealed roster
                until(lambda g: False, 5.0, silent=True)
        finally:
            server.close()
    say(f"sealed: version {server.gathering.roster.version} is in force here")


def _alone(home: Path) -> AbstractContextManager[None]:
    """Whoever seals has the papers in memory: what another wrote meanwhile would be lost."""
    return alone(home, "sealing", "is being sealed (`consortium seal`; Ctrl-C loses nothing)")


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
