"""Which sentence model a method, its options and the trained part ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from config.errors import UserError, check_choice, nearest
from config.part import ALL, HEAD, Part
from models.sentence_encoder import STYLES, Style

if TYPE_CHECKING:
    from methods.tasks.sentence import Knobs

__all__ = ["style_of"]

_YES_NO = {"": None, "yes": True, "no": False}
_POOLING = {"": None, "cls": True, "entities": False}


def style_of(knobs: Knobs, default: str, part: Part = ALL) -> Style:
    """The model these knobs ask for; `default` is the name of the method's own. A head on a frozen
    encoder reads what tells most there, unless the knobs say otherwise: [CLS; e1; e2] of blinded
    sentences, standardised.
    """

    def choice(key: str, known: Mapping[str, bool | None]) -> bool | None:
        value = getattr(knobs, key)
        if value:
            check_choice(key, value, filter(None, known))
        return known[value]

    name = knobs.model or default
    if name not in STYLES:
        raise UserError(f'There is no sentence model "{name}".{nearest(name, STYLES)}')
    base = STYLES[name]
    if part == HEAD:
        base = replace(base, cls=True, blinding=True, standard=True)
    changed = {"cls": choice("pooling", _POOLING), "blinding": choice("blinding", _YES_NO)}
    changed["bias"] = choice("bias", _YES_NO)
    given = {k: v for k, v in changed.items() if v is not None}
    return replace(base, dropout=knobs.dropout, projection=knobs.projection, **given)
