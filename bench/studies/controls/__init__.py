"""Methods that studies need as controls, and nobody else: each a file that METHOD=… can name."""

from __future__ import annotations

from pathlib import Path

__all__ = ["control"]


def control(name: str) -> str:
    """The setting that names this control."""
    return f"METHOD={Path(__file__).parent / name}.py"
