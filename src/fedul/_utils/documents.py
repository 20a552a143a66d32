"""JSON documents as typed classes, with validation: they may come from an old version or from a site.

A field whose name is a Python keyword has an underscore at its end, e.g. ``class_``; its JSON key has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from fedul._utils.files import read_json
from fedul.errors import InputError

T = TypeVar("T")


class Document:
    """Base class of dataclasses that are JSON documents, in a file or on the wire."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values, as the document and ``--json`` have them."""
        return {f.name.removesuffix("_"): to_document(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, stored: Any) -> Self:
        """Return the object from the result of `to_dict`; ValueError if it has another form."""
        return read_document(cls, stored)


def read_document(kind: type[T], stored: Any) -> T:
    """Build a dataclass from JSON values.

    Parameters
    ----------
    kind : type
        A dataclass; its field types decide what is accepted. Unknown keys are refused.
    stored : object
        What `json.loads` returned.

    Returns
    -------
    object
        An instance of `kind`.

    Raises
    ------
    ValueError
        If a key is missing or unknown, or a value has the wrong type or is not finite. The message names the field.
    """
    from cattrs import transform_error

    if not isinstance(stored, Mapping):
        raise ValueError("not a JSON object")
    try:
        document: T = _converter().structure(stored, kind)
    except Exception as problem:  # cattrs raises groups of whatever the hooks raise
        raise ValueError(transform_error(problem, path="document")[0]) from None
    return document


def read_document_file(kind: type[T], file: Path, writer: str) -> T | None:
    """Read a document from a file; None if there is no file.

    Parameters
    ----------
    kind : type
        A dataclass.
    file : Path
        The file.
    writer : str
        What writes the file, for the message: "the run", "'fedul evaluate'".

    Raises
    ------
    InputError
        If the file is damaged.
    """
    if not file.exists():
        return None
    try:
        return read_document(kind, read_json(file))
    except (InputError, ValueError):
        raise InputError(f"{file}: damaged; delete it, and {writer} will write it again.") from None


def to_document(value: Any) -> Any:
    """Return a dataclass, and everything in it, as JSON-serializable values."""
    if value is None or type(value) in (int, float, str, bool):  # nearly all: the other tests take ten times as long
        return value
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return Document.to_dict(value)  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return {key: to_document(each) for key, each in value.items()}
    return [to_document(each) for each in value] if isinstance(value, list | tuple) else value


def register_reader(kind: type[T], reader: Callable[[Any], T]) -> None:
    """Let `read_document` read fields of this type with a function instead of field by field."""
    _converter().register_structure_hook(kind, lambda value, _: reader(value))


@cache
def _converter() -> Any:
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, override

    converter = Converter(forbid_extra_keys=True)

    @converter.register_structure_hook_factory(is_dataclass)
    def _build_reader(kind: Any) -> Any:
        keywords: Any = {f.name: override(rename=f.name[:-1]) for f in fields(kind) if f.name.endswith("_")}
        return make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **keywords)

    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, lambda value, wanted: _scalar(value, wanted))
    return converter


def _scalar(value: Any, wanted: Any) -> Any:
    """Accept only a value of just this type: cattrs would call float("1") and str(None)."""
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not wanted:
        raise ValueError(f"expected {wanted.__name__}, got {type(value).__name__}")
    if wanted is float and not math.isfinite(value):
        raise ValueError("expected a finite number")
    return value
