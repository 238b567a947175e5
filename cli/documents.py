"""`sottovoce documents` and `sottovoce verify document`: papers for an officer's files.

A document is a JSON file with figures, signed by the party that made it, and a page made from it.
Reports are imported by the commands that need them: a silo that runs must load none.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.keys import say
from config.errors import UserError
from study.commands import own_folder
from wire.keyring import Keyring
from wire.passphrase import open_keys

__all__ = ["documents", "verify_app", "write_own"]

verify_app = typer.Typer(help="Check what somebody signed.", no_args_is_help=True)


def documents(
    where: Annotated[
        str,
        typer.Argument(help="A run folder; or, with a silo's --home, a study (or its hash)."),
    ],
    home: Annotated[
        str, typer.Option(help="The party's own folder: documents are signed with its identity.")
    ] = "",
    out: Annotated[str, typer.Option(help="Where to write them; nothing: beside their logs.")] = "",
) -> None:
    """Write report, communication-cost and privacy-budget, as JSON and as pages, for a finished run
    or for a silo's own part in a study.
    """
    from report.files import read_run
    from study.papers import write_run_papers

    identity, party = None, ""
    if home:
        ring = open_keys(own_folder(home))
        identity, party = ring.identity, ring.card.name
        if ring.card.role == "silo":
            _said(write_own(Path(home), where, ring, Path(out) if out else None))
            return
    run = Path(where)
    _said(write_run_papers(Path(out) if out else run, read_run(run), identity, party))


def write_own(home: Path, study: str, ring: Keyring, out: Path | None = None) -> list[Path]:
    """A silo's own, signed; beside its record, unless `out` says where. Returns the pages."""
    from silo.papers import own_documents, record_of
    from study.papers import write_documents

    record = record_of(home, study)
    made = own_documents(home, record, round(time.time(), 3))
    return write_documents(out or record, made, ring.identity, ring.card.name)


def _said(pages: list[Path]) -> None:
    for page in pages:
        say(str(page))


@verify_app.command("document")
def verify_document(
    file: Annotated[
        str,
        typer.Argument(
            help="report.json, communication-cost.json or privacy-budget.json, or the page beside it."
        ),
    ],
    home: Annotated[str, typer.Option(help="Own folder: its pinned roster knows who may sign.")],
    logs: Annotated[
        str,
        typer.Option(help="A run folder, or a silo's own folder: compare every figure with it."),
    ] = "",
) -> None:
    """Check a document's signature against the pinned roster, and its figures against the logs."""
    from study.papers import check_document, page_is_as_signed

    path = Path(file)
    if (
        path.suffix == ".html"
    ):  # what an officer has in hand; the signature is in the file beside it
        if not path.is_file():
            raise UserError(f"There is no file {path}.")
        path = path.with_suffix(".json")
        if not path.is_file():
            raise UserError(
                f"{file} has no {path.name} beside it, where its figures and the signature are."
            )
    document = check_document(path, open_keys(own_folder(home)).pinned())
    say(f"{path}: signed by {document['signed_by']}, as it stands")
    as_signed = page_is_as_signed(path, document)
    if as_signed is False:
        raise UserError(
            f"{path.with_suffix('.html')} is not the page that {document['signed_by']} signed."
        )
    if as_signed:
        say(f"{path.with_suffix('.html')}: the page that was signed")
    else:
        say(f"no page stands beside {path}: none was checked")
    if logs:
        _compare(document, Path(logs))


def _compare(document: dict[str, Any], logs: Path) -> None:
    from report.documents import consortium_documents
    from report.files import read_run
    from study.papers import figures_of

    if (logs / "keys").is_dir():
        from silo.papers import own_documents, record_of

        record = record_of(logs, str(document["about"]["study_hash"]))
        made = own_documents(logs, record, document["made"], document["ledger_lines"])
    else:
        made = consortium_documents(read_run(logs))
    fresh = json.loads(json.dumps(made[document["document"]]))
    given = figures_of(document)
    other = [k for k in {**fresh, **given} if given.get(k) != fresh.get(k)]
    if other:
        raise UserError(f"The logs in {logs} give other figures: {', '.join(sorted(other))}.")
    say(f"every figure is that of {logs}")
