"""Schemas: how rows as users have them become network inputs. A schema is stored with the classifier.

`TableSchema` is for columns, `ImageSchema` for image files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedul.data.files.schema.table import TableSchema
from fedul.errors import InputError

if TYPE_CHECKING:
    from fedul.core import Schema


@dataclass(frozen=True)
class ImageSchema:
    """Images of `channels` x `height` x `width` bytes; other images are converted when they are read."""

    channels: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "images", **vars(self)}


def schema_from_dict(stored: Mapping[str, Any] | None) -> Schema | None:
    """Read what `Schema.to_dict` returned; None for a classifier of arrays."""
    if stored is None:
        return None
    values = {key: value for key, value in stored.items() if key != "kind"}
    try:
        if stored["kind"] == "table":
            return TableSchema.from_dict(values)
        return ImageSchema(**{name: int(value) for name, value in values.items()})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError("the classifier's description of its rows is damaged; restore a copy of it.") from None
