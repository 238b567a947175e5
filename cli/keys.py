"""`sottovoce keys` and `sottovoce roster`: how strangers become a consortium, by files that travel
out of band.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from config.errors import UserError
from crypto.identity.card import ROLES, Card, RosterRefused
from crypto.identity.keyfile import KeyFileError
from crypto.identity.roster import Roster, found
from wire.keyring import Keyring, read_card, read_roster, write_public
from wire.passphrase import new_passphrase, open_keys, passphrase_for

__all__ = ["keys_app", "roster_app", "say", "sentences", "show_roster"]

keys_app = typer.Typer(help="A party's own keys.", no_args_is_help=True)
roster_app = typer.Typer(
    help="Who belongs to the consortium, signed by every one of them.", no_args_is_help=True
)
console = Console()

Home = Annotated[str, typer.Option(help="The party's own folder.")]
File = Annotated[str, typer.Argument(help="The roster's file.")]
CardFile = Annotated[str, typer.Argument(help="A party's card.json.")]
Sealed = Annotated[
    bool,
    typer.Option("--passphrase", help="Seal the key files with a passphrase, which is asked for."),
]


@contextmanager
def sentences(what: str = "") -> Iterator[None]:
    """A refusal is one sentence, with the file it is about."""
    try:
        yield
    except KeyFileError as e:
        raise UserError(f"{e}.") from None
    except RosterRefused as e:
        raise UserError(f"{what}: {e}." if what else f"{e}.") from None


def say(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _show_card(card: Card) -> None:
    say(f"{card.name} ({card.role})  fingerprint {card.fingerprint}")


@keys_app.command("new")
def keys_new(
    home: Annotated[str, typer.Argument(help="The folder to make; it stays on this machine.")],
    name: Annotated[
        str, typer.Option(help="The party's name in the consortium, as in north-hospital.")
    ],
    role: Annotated[str, typer.Option(help="silo or coordinator.")] = "silo",
    passphrase: Sealed = False,
) -> None:
    """Make an identity (Ed25519) and a transport key (CURVE), mode 0600, and the card with their
    public halves.
    """
    if role not in ROLES:
        raise UserError(f'--role must be silo or coordinator, not "{role}".')
    with sentences():
        ring = Keyring.create(Path(home), name, role, new_passphrase() if passphrase else "")
    _show_card(ring.card)
    say(
        f"card to give away: {Path(home) / 'keys' / 'card.json'}; nothing else in {home} leaves this machine"
    )


@keys_app.command("show")
def keys_show(
    card: Annotated[str, typer.Argument(help="A card.json, or a party's own folder.")],
) -> None:
    """Show a card's fingerprint, to be compared over the telephone."""
    path = Path(card)
    with sentences(card):
        _show_card(read_card(path / "keys" / "card.json" if path.is_dir() else path))


@keys_app.command("rotate")
def keys_rotate(
    home: Annotated[str, typer.Argument(help="The party's own folder.")], passphrase: Sealed = False
) -> None:
    """Make new keys, signed with the old ones. They are used once a roster that has them is pinned
    here.
    """
    ring = open_keys(Path(home))
    with sentences():
        coming = ring.rotate(new_passphrase() if passphrase else "")
    _show_card(coming.card)
    say(f"card to give away: {Path(home) / 'next' / 'card.json'}")


def _write(path: Path, roster: Roster) -> None:
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    write_public(beside, roster.to_text())
    beside.replace(path)


def _changed(path: Path, roster: Roster) -> None:
    _write(path, roster)
    missing = (
        f"to be signed by {', '.join(roster.unsigned)}"
        if roster.unsigned
        else "signed by everybody"
    )
    say(f"{path}: version {roster.version} ({roster.fingerprint}), {missing}")


@roster_app.command("create")
def roster_create(
    file: File,
    consortium: Annotated[str, typer.Option(help="The consortium's name.")],
    coordinator: Annotated[str, typer.Option(help="The coordinator's card.json.")],
) -> None:
    """Begin a roster with the coordinator's card."""
    if Path(file).exists():
        raise UserError(f"{file} exists already; a roster is changed with add, revoke and rotate.")
    with sentences(coordinator):
        _changed(Path(file), found(consortium, read_card(Path(coordinator))))


@roster_app.command("add")
def roster_add(file: File, card: CardFile) -> None:
    """Add a silo by its card."""
    with sentences(file):
        _changed(Path(file), read_roster(Path(file)).add(read_card(Path(card))))


@roster_app.command("rotate")
def roster_rotate(file: File, card: CardFile) -> None:
    """Put a party's new card, signed with its old key, in the place of the old one."""
    with sentences(file):
        _changed(Path(file), read_roster(Path(file)).rotate(read_card(Path(card))))


@roster_app.command("revoke")
def roster_revoke(
    file: File,
    name: Annotated[str, typer.Argument(help="The silo's name.")],
    why: Annotated[str, typer.Option(help="One line, for the others.")] = "it left",
) -> None:
    """Take a silo out. Its key never comes back; the others sign what is left."""
    with sentences(file):
        _changed(Path(file), read_roster(Path(file)).revoke(name, why))


@roster_app.command("sign")
def roster_sign(file: File, home: Home) -> None:
    """Sign this version, after comparing its fingerprints. One content per version."""
    phrase = passphrase_for(Path(home))
    ring = open_keys(Path(home), phrase)
    with sentences(file):
        roster = read_roster(Path(file))
        show_roster(roster, ring.earlier())
        _changed(Path(file), ring.sign(roster, phrase))


@roster_app.command("merge")
def roster_merge(
    file: File, others: Annotated[list[str], typer.Argument(help="Copies that others have signed.")]
) -> None:
    """Gather signatures from copies of the same version."""
    with sentences(file):
        roster = read_roster(Path(file))
    for other in others:
        with sentences(other):
            roster = roster.merge(read_roster(Path(other)))
    with sentences(file):
        _changed(Path(file), roster)


def show_roster(roster: Roster, earlier: Roster | None = None) -> None:
    say(f"{roster.consortium}, version {roster.version}, fingerprint {roster.fingerprint}")
    known = {card.digest for card in (earlier or roster).cards}
    for card in roster.cards:
        signed = "signed" if card.name in roster.signatures else "not signed"
        new = (
            ""
            if card.digest in known or earlier is None
            else f", NEW since version {earlier.version}: compare it"
        )
        say(f"  {card.fingerprint}  {card.name} ({card.role}), {signed}{new}")
    for gone in roster.revoked:
        say(f"  revoked: {gone.name}, with version {gone.since}: {gone.why}")


@roster_app.command("show")
def roster_show(file: File) -> None:
    """Show every party's fingerprint, who has signed, and who was revoked. Verifies what signatures
    there are.
    """
    with sentences(file):
        roster = read_roster(Path(file))
        roster.check()
        show_roster(roster)


@roster_app.command("verify")
def roster_verify(file: File) -> None:
    """Whether everybody in it signed this very version. Status 0 if so."""
    with sentences(file):
        roster = read_roster(Path(file))
        roster.verify()
    say(
        f"{file}: version {roster.version} ({roster.fingerprint}) is in force: all {len(roster.cards)} signed it"
    )


@roster_app.command("pin")
def roster_pin(file: File, home: Home) -> None:
    """Make this version the one in force here. It must be signed by everybody, and not older than
    the last one.
    """
    phrase = passphrase_for(Path(home))
    ring = open_keys(Path(home), phrase)
    with sentences(file):
        roster = read_roster(Path(file))
        ring.pin(roster, phrase)
    say(f"{home}: version {roster.version} ({roster.fingerprint}) is in force here")
