"""TRAIN: which part of a network is trained. What travels, is masked, clipped and saved follows.

| TRAIN | what is trained, beside what stands on the encoder |
|---|---|
| `all` | every parameter |
| `top:K` | the last K layers |
| `head` | nothing else |
| `lora:R` | adapters of rank R (`peft`) |
| `bias` | biases and layer norms |
| `prompts` | prompts for a frozen language model |
"""

from __future__ import annotations

from dataclasses import dataclass

from config.errors import UserError

__all__ = ["ALL", "BIAS", "HEAD", "KINDS", "PROMPTS", "TOP", "Part", "parse_part"]

#: kind -> what its number is; empty: it has none
KINDS = {"all": "", "top": "K", "head": "", "lora": "R", "bias": "", "prompts": ""}
_MOST = 1024


@dataclass(frozen=True)
class Part:
    kind: str
    size: int = 0  #: how many layers, or the rank of adapters

    def __str__(self) -> str:
        return f"{self.kind}:{self.size}" if self.size else self.kind

    @property
    def has_frozen_bottom(self) -> bool:
        """Whether what lies below the trained part never changes, and need be computed only once."""
        return self.kind in ("top", "head")


ALL, HEAD, BIAS, PROMPTS = Part("all"), Part("head"), Part("bias"), Part("prompts")
TOP = Part("top", 1)


def parse_part(text: str) -> Part:
    kind, colon, size = text.partition(":")
    if kind not in KINDS or bool(colon) != bool(KINDS[kind]):
        *first, last = (f"{k}:{n}" if n else k for k, n in KINDS.items())
        raise UserError(f'TRAIN must be {", ".join(first)} or {last}, not "{text}".')
    if not colon:
        return Part(kind)
    if not (size.isascii() and size.isdigit() and 1 <= int(size) <= _MOST):
        what = "a number of layers" if kind == "top" else "a rank"
        raise UserError(f'TRAIN={kind}:{KINDS[kind]} needs {what} from 1 to {_MOST}, not "{size}".')
    return Part(kind, int(size))
