"""How a column of a user's table was read, for `fedul check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedul._utils.documents import Document

ColumnKind = Literal["number", "category", "boolean", "left out"]


@dataclass(frozen=True)
class ColumnReading(Document):
    """How a column of a table was read.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : {"number", "category", "boolean", "left out"}
        What it is to the classifier.
    missing : int
        Rows without a value.
    low, high : float or None
        Smallest and largest number; None for other kinds.
    words : tuple of str
        Categories that have their own input; empty for other kinds.
    note : str
        What looks odd, or why the column is left out, in one sentence without the name of the column; else empty.
    """

    name: str
    kind: ColumnKind
    missing: int
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] = ()
    note: str = ""
