"""`sottovoce documents`, `sottovoce verify` and `sottovoce ledger`: papers for an officer's files.

A document is a JSON file with figures, signed by the party that made it, and a page made from it.
Reports are imported by the commands that need them: a silo that runs must load none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.keys import say
from config.errors import UserError
from crypto.identity.keys import Identity
from study.commands import own_folder
from wire.passphrase import open_keys

__all__ = ["documents", "verify_document"]


def documents(
    where: Annotated[
        str,
        typer.Argument(help="A run folder; or, with --home, a study of this silo (or its hash)."),
    ],
    home: Annotated[
        str, typer.Option(help="The party's own folder: documents are signed with its identity.")
    ] = "",
    out: Annotated[str, typer.Option(help="Where to write them; nothing: beside their logs.")] = "",
) -> None:
    """Write communication-cost and privacy-budget, as JSON and as pages, for a finished run or for a
    silo's own part in a study.
    """
    from report.documents import consortium_documents, silo_documents
    from report.files import read_run

    identity, party = None, ""
    if home:
        ring = open_keys(own_folder(home))
        identity, party = ring.identity, ring.card.name
        if ring.card.role == "silo":
            record = _record(Path(home), where)
            made = silo_documents(record, Path(home) / "ledger.jsonl")
            _write(Path(out) if out else record, made, identity, party)
            return
    run = Path(where)
    _write(Path(out) if out else run, consortium_documents(read_run(run)), identity, party)


def _write(
    folder: Path, made: dict[str, dict[str, Any]], identity: Identity | None, party: str
) -> None:
    from study.papers import write_documents

    for path in write_documents(folder, made, identity, party):
        say(str(path))


def _record(home: Path, study: str) -> Path:
    """By the study's hash, or by the name under which it was proposed."""
    from report.files import read_table

    look = read_table(home / "studies" / Path(study).name / "look.json") or {}
    hash_ = str(look.get("hash") or study)
    folder = home / "records" / Path(hash_).name[:12]
    if not folder.is_dir():
        known = sorted(p.name for p in (home / "records").glob("*"))
        raise UserError(f'{home} has no record of "{study}"; it has: {", ".join(known) or "none"}.')
    return folder


def verify_document(
    file: Annotated[str, typer.Argument(help="communication-cost.json or privacy-budget.json.")],
    home: Annotated[str, typer.Option(help="Own folder: its pinned roster knows who may sign.")],
    logs: Annotated[
        str, typer.Option(help="A run folder, or a silo's record: compare every figure with it.")
    ] = "",
) -> None:
    """Check a document's signature against the pinned roster, and its figures against the logs."""
    from study.papers import check_document

    document = check_document(Path(file), open_keys(own_folder(home)).pinned())
    say(f"{file}: signed by {document['signed_by']}, as it stands")
    if logs:
        _compare(document, Path(logs), Path(home))


def _compare(document: dict[str, Any], logs: Path, home: Path) -> None:
    from report.documents import consortium_documents, silo_documents
    from report.files import read_run

    silo = (logs / "about.json").is_file()
    made = (
        silo_documents(logs, home / "ledger.jsonl")
        if silo
        else consortium_documents(read_run(logs))
    )
    fresh = json.loads(json.dumps(made[document["document"]]))
    other = [k for k in fresh if document.get(k) != fresh[k]]
    if other:
        raise UserError(f"The logs in {logs} give other figures: {', '.join(other)}.")
    say(f"every figure is that of {logs}")
