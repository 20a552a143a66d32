"""Values of a model card as Markdown."""

from __future__ import annotations

import html
from typing import Any

PERCENTAGES = {"accuracy", "interval", "test_error"}


def value_text(value: Any, name: str = "") -> str:
    """Return a value of this name as text."""
    if value is None:
        return "not known"
    if isinstance(value, list):
        return " to ".join(value_text(each, name) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1%}" if name in PERCENTAGES else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def escape(text: str) -> str:
    """Escape text, so that Markdown shows it literally."""
    flat = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{sign}" if sign in "\\`*[]|#" else sign for sign in flat)
