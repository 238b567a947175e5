"""Documents as files: figures signed by the party that made them, and the pages made from these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.errors import UserError
from crypto.derive import Label
from crypto.identity.keys import Identity, verify
from crypto.identity.roster import Roster
from report.documents import KINDS
from report.files import read_table
from report.pages.documents import document_page

__all__ = ["check_document", "write_documents"]

_SIGNED = ("signed_by", "signature")


def write_documents(
    folder: Path,
    made: Mapping[str, Mapping[str, Any]],
    identity: Identity | None = None,
    party: str = "",
) -> list[Path]:
    """KIND.json and KIND.html for each; returns the pages. Without an identity (a simulation)
    nothing is signed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for kind, figures in made.items():
        document, note = dict(figures), ""
        if identity is not None:
            signature = identity.sign(Label.DOCUMENT, _content(document)).hex()
            document |= {"signed_by": party, "signature": signature}
            note = (
                f"Signed by {party} with the identity that its consortium's roster has. To check it: "
                f"sottovoce verify {kind}.json --home <own folder>"
            )
        path = folder / f"{kind}.json"
        path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        pages.append(path.with_suffix(".html"))
        pages[-1].write_text(document_page(document, note), "utf-8")
    return pages


def check_document(file: Path, roster: Roster) -> dict[str, Any]:
    """The document, if somebody in the roster signed it as it stands."""
    document = read_table(file)
    if document is None or document.get("document") not in KINDS:
        raise UserError(f"{file} is not a document of this program.")
    signer = roster.card(str(document.get("signed_by")))
    if signer is None:
        raise UserError(f"{file} is signed by nobody that the pinned roster knows.")
    try:
        signature = bytes.fromhex(str(document.get("signature")))
    except ValueError:
        signature = b""
    if not verify(signer.identity, signature, Label.DOCUMENT, _content(document)):
        raise UserError(f"{file}: the signature of {signer.name} is not on this content.")
    return document


def _content(document: Mapping[str, Any]) -> bytes:
    """What is signed: the figures, whatever the spelling of the file."""
    figures = {k: v for k, v in document.items() if k not in _SIGNED}
    return json.dumps(figures, sort_keys=True, separators=(",", ":")).encode()
