"""How rows as users have them become the numbers that a network sees; it is stored with the classifier.

`Schema` is what the federation agrees on and the classifier keeps: `TableSchema` for columns, `ImageSchema` for files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fedul.errors import InputError


class Schema(Protocol):
    """What was learned of the form of rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row as the network sees it."""
        ...

    def plain(self) -> dict[str, Any]:
        """As JSON has it, with its kind."""
        ...


def from_plain(stored: Mapping[str, Any] | None) -> Schema | None:
    """What `plain` gave; None for a classifier of plain arrays."""
    from fedul.schema.images import ImageSchema
    from fedul.schema.table import TableSchema

    if stored is None:
        return None
    about = {key: value for key, value in stored.items() if key != "kind"}
    try:
        if stored["kind"] == "table":
            return TableSchema.from_plain(about)
        return ImageSchema.from_plain(about)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError("the classifier's description of its rows is damaged; restore a copy of it.") from None
