"""`sottovoce study`: what a study discloses, and the studies of a consortium: proposed at the
coordinator, accepted or declined at each silo.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from config.errors import UserError
from study.commands import Checkpoint, Own, OwnCorpus, named, own_folder
from wire.keyring import read_card

if TYPE_CHECKING:
    from coordinator.board import Board
    from silo.studies import Known, Studies

__all__ = ["study_app"]

study_app = typer.Typer(
    help="What a study discloses; propose, list, show, accept, decline, pause and stop studies.",
    invoke_without_command=True,
)
console = Console()
Id = Annotated[str, typer.Argument(help="The study, as `study list` names it.")]


def _say(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


@study_app.callback()
def study(
    ctx: typer.Context,
    config: Annotated[str, typer.Option(help="The study file.")] = "",
    home: Own = "",
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
) -> None:
    """Show what a study discloses, its hash, and the [hashes] that its file may name."""
    if ctx.invoked_subcommand is not None:
        return
    from coordinator.program import show_study
    from study.machine import Machine

    machine = Machine(
        own_folder(home), corpus=corpus, encoder=encoder, seq2seq=seq2seq, vectors=vectors
    )
    show_study(named(config, "study"), machine, console)


# At the coordinator


def _board(home: str) -> Board:
    from coordinator.board import Board
    from study.machine import pinned_roster
    from wire.passphrase import open_keys

    keys = open_keys(own_folder(home))
    if keys.card.role != "coordinator":
        raise UserError(f"{home} is a silo's folder; this is for the coordinator's operator.")
    return Board(Path(home), pinned_roster(keys))


@study_app.command("propose")
def propose(
    file: Annotated[str, typer.Argument(help="The study file.")],
    home: Own,
    enough: Annotated[
        int, typer.Option(help="Silos that must accept before it runs; 0: all of the roster.")
    ] = 0,
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
) -> None:
    """Propose a study to every silo. It runs when enough of them have accepted."""
    from coordinator.proposing import advice, look_at
    from coordinator.proposing import propose as post
    from study.agreement import page
    from study.machine import Machine, pinned_roster
    from wire.passphrase import open_keys

    board, path = _board(home), named(file, "study propose")
    machine = Machine(Path(home), corpus=corpus, encoder=encoder, seq2seq=seq2seq, vectors=vectors)
    of = look_at(path, machine, pinned_roster(open_keys(Path(home))))
    posted = post(board, of, path.read_text("utf-8"), enough)
    _say(page(of))
    _say(f"\n{advice(of)}")
    _say(f"proposed as {posted.id}; it runs when {posted.enough} silos have accepted")


def _wanted(home: str, id_: str, word: str) -> None:
    from coordinator.board import Wanted

    _board(home).want(id_, Wanted(word))


@study_app.command("pause")
def pause(study: Id, home: Own) -> None:
    """Interrupt a study; `resume` goes on with it."""
    _wanted(home, study, "pause")
    _say(
        f"{study} pauses after what it is doing; go on: sottovoce study resume {study} --home {home}"
    )


@study_app.command("resume")
def resume(study: Id, home: Own) -> None:
    """Go on with a study that was paused."""
    _wanted(home, study, "run")
    _say(f"{study} goes on")


@study_app.command("stop")
def stop(study: Id, home: Own) -> None:
    """End a study for good. Its finished rounds stay in the run folder."""
    _wanted(home, study, "stop")
    _say(f"{study} is stopped")


# At a silo


def _budget(studies: Studies, study: str) -> None:
    """What it would cost, and what would be left."""
    if (cost := studies.cost(study)) is not None:
        _say("\nThis silo's privacy budget:")
        for line in cost.lines:
            _say(f"  {line}")


def _looks_again(studies: Studies, known: Known, home: Path) -> str:
    """What stood against it may be put right by now: the data are read again before anybody gives
    up.
    """
    from study.presence import read_presence

    why = f"This silo could not take part in {known.id}: {known.refused}"
    if not read_presence(home).alive(time.time()):
        return f"{why} Put it right, and start the serving program: it looks again."
    studies.look_again(known.id)
    return (
        f"{why} The serving program looks at it again now: ask again in a few seconds. (It reads the "
        "silo's own file when it starts.)"
    )


def _studies(home: str) -> Studies:
    from silo.studies import Studies

    if _role(home) != "silo":
        raise UserError(f"{home} is the coordinator's folder; this is for a silo's operator.")
    return Studies(Path(home))


@study_app.command("accept")
def accept(
    study: Id,
    home: Own,
    hash: Annotated[
        str, typer.Option(help="Agree to the study with this hash, without being asked.")
    ] = "",
) -> None:
    """Agree to take part. The page is shown, and you are asked."""
    studies = _studies(home)
    known = studies[study]
    known.check_open()
    if known.refused:
        raise UserError(_looks_again(studies, known, Path(home)))
    _say(known.page)
    _budget(studies, study)
    if hash and hash != known.hash:
        raise UserError(f"--hash names another study; this one has {known.hash}.")
    if not hash:
        if not sys.stdin.isatty():
            raise UserError(f"To agree without being asked: --hash {known.hash}")
        if console.input('Take part? Type "yes" to agree: ').strip().lower() != "yes":
            raise UserError("Not agreed; nothing was sent.")
    studies.accept(study, "--hash" if hash else "asked")
    _say(f"{study} is accepted; the serving silo tells the coordinator")


@study_app.command("decline")
def decline(
    study: Id,
    home: Own,
    why: Annotated[str, typer.Option(help="One line, for the coordinator's operator.")] = "",
) -> None:
    """Decline to take part. A silo that takes part already leaves the study."""
    studies = _studies(home)
    running = studies[study].state.startswith("running")
    studies.decide(study, "decline", "asked", why)
    _say(f"{study} is declined; the serving silo tells the coordinator")
    if running:
        _say("This silo leaves the study. What is in a sum already cannot be taken out again.")


# Both


def _role(home: str) -> str:
    return read_card(own_folder(home) / "keys" / "card.json").role


@study_app.command("list")
def list_(home: Own) -> None:
    """Every study that this party knows, and how it stands."""
    if _role(home) == "coordinator":
        from report.units import clock  # a silo loads nothing of reports
        from study.presence import read_presence

        board, seen = _board(home), read_presence(Path(home))
        for s in board.all():
            said = f"accepted by {', '.join(s.said('accept')) or 'nobody'}"
            if gone := s.said("decline"):
                said += f", declined by {', '.join(gone)}"
            state = board.standing(s, s.id in seen.running and seen.alive(time.time()))
            _say(f"{s.id}  {clock(s.proposed)}  {state:<9}  {s.title}; {said}, {s.enough} needed")
        if not board.all():
            _say("No study is proposed yet.")
        return
    studies = _studies(home)
    for id_ in studies.waiting():
        _say(f"{id_}  proposed just now; the serving silo reads its data to see what it would send")
    if not studies.waiting() and not studies.all():
        _say("No study is proposed yet; the serving silo asks its coordinator every few seconds.")
    for k in studies.all():
        word = "cannot take part" if k.refused else {"": "to decide"}.get(k.word, f"{k.word}ed")
        _say(f"{k.id}  {word.replace('declineed', 'declined')}  {k.state or 'proposed'}  {k.title}")
        if k.refused:
            _say(f"    {k.refused}")


@study_app.command("show")
def show(study: Id, home: Own) -> None:
    """What a study would disclose, who answered what, and how it stands."""
    if _role(home) == "coordinator":
        from report.units import clock
        from study.presence import read_presence

        board, seen = _board(home), read_presence(Path(home))
        posted = board[study]
        _say(posted.text)
        for silo, reply in posted.answers.items():
            why = f": {reply['why']}" if reply.get("why") else ""
            _say(f"{silo}: {reply['word']}{why} ({clock(reply['time'])})")
        state = board.standing(posted, study in seen.running and seen.alive(time.time()))
        _say(f"state: {state}; hash {posted.hash}")
        return
    known = _studies(home)[study]
    _say(known.page or known.refused)
    if not known.word:
        _budget(_studies(home), study)
    _say(f"\nstate: {known.state or 'proposed'}; decided: {known.word or 'nothing yet'}")


@study_app.command("status")
def status(study: Id, home: Own) -> None:
    """How a study goes here: rounds, who is waited for, what left, what is spent."""
    from cli.status import of_coordinator, of_silo

    silo = _role(home) == "silo"
    said = (
        of_silo(Path(home), _studies(home)[study]) if silo else of_coordinator(_board(home), study)
    )
    for line in said:
        _say(line)


@study_app.command("logs")
def logs(
    study: Id,
    home: Own,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as it grows, until Ctrl-C.")
    ] = False,
) -> None:
    """The log of a study's process on this machine."""
    path = own_folder(home) / "studies" / Path(study).name / "log"
    if not path.is_file():
        raise UserError(f"There is no log of {study} in {home}: it has not run here.")
    with path.open("r", encoding="utf-8", errors="replace") as file:
        try:
            while True:
                if text := file.read():
                    sys.stdout.write(text)
                    sys.stdout.flush()
                elif not follow:
                    return
                else:
                    time.sleep(0.5)
        except KeyboardInterrupt:
            return
