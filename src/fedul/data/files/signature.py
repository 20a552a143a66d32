"""Signature of data: the form of rows without a row. Sites exchange signatures and derive one common schema.

In one process there is one signature. Across sites, a site whose signature does not fit is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedul.core import Scaling, Schema
from fedul.data.files.schema import ImageSchema
from fedul.data.files.schema.column_stats import ColumnStats
from fedul.data.files.schema.infer import infer_schema
from fedul.errors import InputError


@dataclass(frozen=True)
class DataSignature:
    """Form of the data without its rows.

    Parameters
    ----------
    kind : str
        "table", "images" or "array".
    columns : mapping of str to ColumnStats
        Statistics of the columns of a table, in order; empty for images and arrays.
    shape : tuple of int
        Shape of one row; empty for a table, whose categories decide it.
    scaling : Scaling
        Map from stored inputs to network inputs.
    """

    kind: str
    columns: Mapping[str, ColumnStats] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    scaling: Scaling = field(default_factory=Scaling)

    def to_dict(self) -> dict[str, Any]:
        """Return what a site sends: values that only few rows have are left out."""
        columns = [{"name": name, **stats.public().to_dict()} for name, stats in self.columns.items()]
        return {"kind": self.kind, "columns": columns, "shape": list(self.shape), "scaling": vars(self.scaling)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> DataSignature:
        """Return the object from the result of `to_dict`; ValueError if it has another form."""
        try:
            columns = {str(stats.pop("name")): ColumnStats.from_dict(stats) for stats in map(dict, stored["columns"])}
            if not all(name.isprintable() for name in [*columns, *(stats.strange for stats in columns.values())]):
                raise ValueError("names that cannot be printed")
            scaling = Scaling(float(stored["scaling"]["scale"]), float(stored["scaling"]["shift"]))
            return cls(str(stored["kind"]), columns, tuple(map(int, stored["shape"])), scaling)
        except (KeyError, TypeError, AttributeError, OverflowError):
            raise ValueError("not a signature of data") from None


@dataclass(frozen=True, eq=False)
class CommonSignature:
    """Form of the rows that all parts of a federation share.

    Parameters
    ----------
    schema : Schema or None
        How rows become inputs; None for arrays.
    shape : tuple of int
        Shape of one input.
    scaling : Scaling
        Map from stored inputs to network inputs.
    warnings : sequence of str
        One sentence for each column that is left out or looks odd.
    """

    schema: Schema | None
    shape: tuple[int, ...]
    scaling: Scaling
    warnings: Sequence[str] = ()


def common_signature(signatures: Mapping[str, DataSignature], classes: Sequence[str]) -> CommonSignature:
    """Return the common form of all parts, given by name; tables are standardised by the moments of all rows."""
    name, first = next(iter(signatures.items()))
    for other, signature in signatures.items():
        if problem := signature_difference(first, signature):
            raise InputError(f"{other}: {problem}, unlike {name}; all need rows of one form.")
    if first.kind == "table":
        parts = signatures.values()
        columns = {name: sum((part.columns[name] for part in parts), ColumnStats()) for name in first.columns}
        schema, warnings = infer_schema(columns, classes)
        return CommonSignature(schema, schema.shape, Scaling(), warnings)
    if first.kind == "images":
        images = ImageSchema(max(each.shape[0] for each in signatures.values()), *first.shape[1:])
        return CommonSignature(images, images.shape, first.scaling)
    return CommonSignature(None, first.shape, first.scaling)


def signature_difference(first: DataSignature, other: DataSignature) -> str:
    """Return in what the other signature differs; empty if it fits. Grey and coloured images fit together."""
    if other.kind != first.kind:
        return f"has rows of another kind ({other.kind}, not {first.kind})"
    for here, there, what in ((first, other, "lacks"), (other, first, "has a further")):
        if lost := [name for name in here.columns if name not in there.columns]:
            return f"{what} column '{lost[0]}'"
    skipped = 1 if first.kind == "images" else 0
    if other.shape[skipped:] != first.shape[skipped:] or other.scaling != first.scaling:
        return f"has rows of shape {other.shape}, not {first.shape}, or scaled otherwise"
    return ""
