"""What people call silos. Protocol and files number them (silo-000); a consortium's have names."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["with_names"]


def with_names(text: str, names: Mapping[str, str]) -> str:
    """The text with every silo's number replaced by its name, where it has one."""
    return re.sub(r"\bsilo-\d+\b", lambda found: names.get(found[0], found[0]), text)
