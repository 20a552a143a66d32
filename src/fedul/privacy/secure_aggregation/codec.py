"""Messages as bytes: a JSON header of checked types, followed by the binary fields. Nothing is unpickled.

Supported field types: str, int, float, bool, bytes, dataclasses, ``tuple[T, ...]``, ``Mapping[str, T]``, ``T | None``.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from fedul.privacy.secure_aggregation.problems import Refusal


class Encoded:
    """Base class of dataclasses that are sent or stored as bytes. Equal objects have equal bytes."""

    def to_bytes(self) -> bytes:
        """Return the object as bytes."""
        blobs: list[bytes] = []
        header = json.dumps(_flatten(self, blobs), separators=(",", ":"), allow_nan=False).encode()
        return b"".join([len(header).to_bytes(4, "big"), header, *blobs])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the object from the result of `to_bytes`.

        Raises
        ------
        Refusal
            If the bytes are not a message of this class.
        """
        try:
            end = 4 + int.from_bytes(data[:4], "big")
            reader = _Reader(memoryview(data)[end:])
            message: Self = reader.read(cls, json.loads(data[4:end]))
            if reader.position != len(reader.blob):
                raise ValueError("bytes are left over")
        except (ValueError, TypeError, KeyError, RecursionError) as problem:
            raise Refusal(f"a message is not a {cls.__name__} ({str(problem)[:100]}); nothing was sent.") from None
        return message


def _flatten(value: Any, blobs: list[bytes]) -> Any:
    """Return a value for the header; bytes are replaced by their length."""
    if is_dataclass(value):
        return [_flatten(getattr(value, f.name), blobs) for f in fields(value)]
    if isinstance(value, bytes):
        blobs.append(value)
        return len(value)
    if isinstance(value, Mapping):
        return {key: _flatten(value[key], blobs) for key in sorted(value)}
    if isinstance(value, tuple):
        return [_flatten(each, blobs) for each in value]
    return value


class _Reader:
    """Builds objects of declared types from a header and the binary fields, in their order."""

    def __init__(self, blob: memoryview) -> None:
        self.blob, self.position = blob, 0

    def read(self, kind: Any, stored: Any) -> Any:
        if is_dataclass(kind):
            build: Any = kind
            parts = zip(_field_types(build), _list(stored), strict=True)
            return build(*[self.read(declared, part) for declared, part in parts])
        if kind is bytes:
            start, self.position = self.position, self.position + _integer(stored)
            if not start <= self.position <= len(self.blob):
                raise ValueError("too short")
            return bytes(self.blob[start : self.position])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is tuple:
            return tuple(self.read(arguments[0], each) for each in _list(stored))
        if origin is Mapping:
            if not isinstance(stored, dict):
                raise ValueError("not an object")
            return {key: self.read(arguments[1], each) for key, each in stored.items()}
        if origin in (Union, types.UnionType):
            return None if stored is None else self.read(arguments[0], stored)
        if type(stored) is not kind or (kind is float and not math.isfinite(stored)):
            raise ValueError(f"expected {kind.__name__}")
        return stored


@cache
def _field_types(kind: Any) -> tuple[Any, ...]:
    declared = get_type_hints(kind)
    return tuple(declared[f.name] for f in fields(kind))


def _list(stored: Any) -> list[Any]:
    if not isinstance(stored, list):
        raise ValueError("not a list")
    return stored


def _integer(stored: Any) -> int:
    if type(stored) is not int or stored < 0:
        raise ValueError("not a length")
    return stored
