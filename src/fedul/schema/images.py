"""The form of images: bytes of one size, in grey or colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ImageSchema:
    """Images of `channels` x `height` x `width` bytes; others are brought to this form when they are read."""

    channels: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    def plain(self) -> dict[str, Any]:
        return {"kind": "images", **vars(self)}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> ImageSchema:
        return cls(**{name: int(value) for name, value in stored.items()})
