"""Documents as files: figures signed by the party that made them, and the pages made from these.

What is signed is the figures and, by its hash, the page: whoever prints the page can show that it is
the one that the party signed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.errors import UserError
from crypto.derive import Label
from crypto.identity.keys import Identity, verify
from crypto.identity.roster import Roster
from report.documents import KINDS, consortium_documents
from report.files import RunFiles, read_table
from report.pages.documents import document_page
from report.pages.run import run_page

__all__ = [
    "check_document",
    "figures_of",
    "page_is_as_signed",
    "papers_are_whole",
    "write_documents",
    "write_run_papers",
]

_SIGNED = ("signed_by", "signature", "page_sha256")
NO_PAGES: Mapping[str, str] = {}


def write_documents(
    folder: Path,
    made: Mapping[str, Mapping[str, Any]],
    identity: Identity | None = None,
    party: str = "",
    pages: Mapping[str, str] = NO_PAGES,
) -> list[Path]:
    """KIND.json and KIND.html for each; returns the pages. Without an identity (a simulation)
    nothing is signed. `pages`: those that are made from more than the figures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, figures in made.items():
        document, note = dict(figures), ""
        if identity is not None:
            note = (
                f"Signed by {party} with the identity that its consortium's roster has. To check it: "
                f"sottovoce verify document {kind}.json --home <own folder>"
            )
        page = pages[kind] if kind in pages else document_page(figures, note)
        document["page_sha256"] = hashlib.sha256(page.encode()).hexdigest()
        if identity is not None:
            signature = identity.sign(Label.DOCUMENT, _content(document)).hex()
            document |= {"signed_by": party, "signature": signature}
        path = folder / f"{kind}.json"
        _write(path, json.dumps(document, indent=1) + "\n")
        written.append(path.with_suffix(".html"))
        _write(written[-1], page)
    return written


def _write(path: Path, text: str) -> None:
    """Whole, or not at all."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, "utf-8")
    beside.replace(path)


def write_run_papers(
    folder: Path, run: RunFiles, identity: Identity | None = None, party: str = ""
) -> list[Path]:
    """All three of a finished run; the report is the run's own page."""
    pages = {"report": run_page(run)}
    return write_documents(folder, consortium_documents(run), identity, party, pages)


def check_document(file: Path, roster: Roster) -> dict[str, Any]:
    """The document, if somebody in the roster signed it as it stands."""
    if not file.is_file():
        raise UserError(
            f"There is no file {file}. A silo's documents are in records/<12 letters> of its folder, "
            "the coordinator's in the run folder."
        )
    try:
        document = read_table(file)
    except UserError:
        document = None
    if document is None or document.get("document") not in KINDS:
        names = ", ".join(f"{kind}.json" for kind in KINDS)
        raise UserError(f"{file} is not a signed document; those are {names}.")
    if "signature" not in document:
        raise UserError(f"{file} is not signed: it is of a simulation, or was made without --home.")
    signer = roster.card(str(document.get("signed_by")))
    if signer is None:
        raise UserError(f"{file} is signed by nobody that the pinned roster knows.")
    try:
        signature = bytes.fromhex(str(document["signature"]))
    except ValueError:
        signature = b""
    if not verify(signer.identity, signature, Label.DOCUMENT, _content(document)):
        raise UserError(f"{file}: the signature of {signer.name} is not on this content.")
    return document


def page_is_as_signed(file: Path, document: Mapping[str, Any]) -> bool | None:
    """Whether the page beside the figures is the one that was signed; None: there is no page."""
    page = file.with_suffix(".html")
    if not page.is_file():
        return None
    return hashlib.sha256(page.read_bytes()).hexdigest() == document["page_sha256"]


def papers_are_whole(folder: Path) -> bool:
    """Whether all three are there, each with its page: whoever makes them may be killed halfway."""
    files = [folder / f"{kind}.json" for kind in KINDS]
    made = [(file, read_table(file)) for file in files if file.is_file()]
    return len(made) == len(KINDS) and all(d and page_is_as_signed(file, d) for file, d in made)


def figures_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without its signature and its page."""
    return {k: v for k, v in document.items() if k not in _SIGNED}


def _content(document: Mapping[str, Any]) -> bytes:
    """What is signed: the figures and the page's hash, whatever the spelling of the file."""
    signed = {**figures_of(document), "page_sha256": document.get("page_sha256", "")}
    return json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()
