"""Schema of a table: numbers, categories and booleans as network inputs, with indicators of missing values."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedul.data.files.schema.column_stats import as_simple_array, as_words, numbers_and_words
from fedul.errors import InputError

YES, NO = ("true", "yes", "t", "y"), ("false", "no", "f", "n")
Inputs = NDArray[np.float32]
HUGE = 1e12
"""Deviations from the mean beyond which a number is refused: it would be infinite to a network."""


class RowSource(Protocol):
    """A table that knows where its rows are."""

    @property
    def source(self) -> str:
        """How messages name the table."""

    def describe_row(self, number: int) -> str:
        """Return where a row is, for messages; rows are counted from 0."""


Where = str | RowSource


@dataclass(frozen=True)
class Number:
    """A standardised number. A missing value becomes the mean, with an indicator if values were missing in training."""

    name: str
    mean: float
    deviation: float
    missing: bool

    @property
    def width(self) -> int:
        """Number of network inputs of the column."""
        return 1 + self.missing

    def encode(self, values: pa.Array, into: Inputs, where: Where, first: int = 0) -> int:
        """Fill the inputs and return the number of values that did not occur in training.

        `first` is the number of rows before this block, for messages.
        """
        values = as_simple_array(values)
        if pa.types.is_string(values.type):
            values, others = numbers_and_words(values)
            _check_none(others.is_valid(), others, "has '{}' where numbers are expected", self.name, where, first)
        elif not pa.types.is_floating(values.type):
            raise InputError(f"{_source(where)}: column '{self.name}' holds {values.type}; numbers are expected.")
        numbers: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
        _check_none(np.isinf(numbers), numbers, "has an infinite value", self.name, where, first)
        with np.errstate(over="ignore"):
            standardised = (numbers - self.mean) / self.deviation
        huge = np.abs(standardised) > HUGE
        _check_none(huge, numbers, "has {:g}, far outside the range of training", self.name, where, first)
        absent = np.isnan(numbers)
        into[:, 0] = np.where(absent, 0.0, standardised)
        if self.missing:
            into[:, 1] = absent
        return 0


@dataclass(frozen=True)
class Category:
    """One of several words: an input for each, one for all others if some were rare, one for missing values."""

    name: str
    words: tuple[str, ...]
    others: bool
    missing: bool

    @property
    def width(self) -> int:
        """Number of network inputs of the column."""
        return len(self.words) + self.others + self.missing

    def encode(self, values: pa.Array, into: Inputs, where: Where, first: int = 0) -> int:
        """See `Number.encode`."""
        texts = _as_texts(values, self.name, where, "words are")
        place = pc.fill_null(pc.index_in(texts, pa.array(self.words, pa.string())), -1).to_numpy(zero_copy_only=False)
        absent = texts.is_null().to_numpy(zero_copy_only=False)
        known = (place >= 0) & ~absent
        unknown = ~known & ~absent
        into[:] = 0
        into[np.flatnonzero(known), place[known]] = 1
        if self.others:
            into[unknown, len(self.words)] = 1
        if self.missing:
            into[absent, -1] = 1
        return 0 if self.others else int(unknown.sum())


@dataclass(frozen=True)
class Boolean:
    """Yes or no, as 1 and 0 minus their mean. A missing value becomes the mean."""

    name: str
    mean: float
    missing: bool

    @property
    def width(self) -> int:
        """Number of network inputs of the column."""
        return 1 + self.missing

    def encode(self, values: pa.Array, into: Inputs, where: Where, first: int = 0) -> int:
        """See `Number.encode`."""
        texts = pc.utf8_lower(_as_texts(values, self.name, where, "yes or no is"))
        yes, no = (pc.is_in(texts, pa.array(words)).to_numpy(zero_copy_only=False) for words in (YES, NO))
        absent = texts.is_null().to_numpy(zero_copy_only=False)
        _check_none(~(yes | no | absent), texts, "has '{}' where yes or no is expected", self.name, where, first)
        into[:, 0] = np.where(absent, 0.0, yes - self.mean)
        if self.missing:
            into[:, 1] = absent
        return 0


Column = Number | Category | Boolean
KINDS: dict[str, type[Column]] = {"number": Number, "category": Category, "boolean": Boolean}


def _source(where: Where) -> str:
    return where if isinstance(where, str) else where.source


def _as_texts(values: pa.Array, name: str, where: Where, expected: str) -> pa.Array:
    texts = as_words(values)
    if not pa.types.is_string(texts.type):
        raise InputError(f"{_source(where)}: column '{name}' holds {texts.type}; {expected} expected.")
    return texts


def _check_none(wrong: Any, values: Any, problem: str, name: str, where: Where, first: int) -> None:
    """Raise an InputError for the first value that is marked as wrong."""
    rows = np.flatnonzero(np.asarray(wrong))
    if rows.size:
        value = values[int(rows[0])]
        text = problem.format(textwrap.shorten(str(value), 40) if isinstance(value, pa.Scalar) else value)
        place = first + int(rows[0])
        at = f"{where}, row {place + 1}" if isinstance(where, str) else where.describe_row(place)
        raise InputError(f"{at}: column '{name}' {text}; correct it or leave it empty.")


@dataclass(frozen=True)
class TableSchema:
    """Columns of a table, in the order of the network inputs."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(column.width for column in self.columns),)

    def number_places(self) -> dict[int, int | None]:
        """Return the place of each number among the inputs, with that of its indicator of missing values, if any."""
        return {
            place: place + 1 if column.missing else None
            for place, column in self._placed()
            if isinstance(column, Number)
        }

    def column_at(self, place: int) -> Column:
        """Return the column that the input at a place belongs to."""
        return next(column for start, column in self._placed() if start <= place < start + column.width)

    def adjusted(self, location: Sequence[float], deviation: Sequence[float]) -> TableSchema:
        """Return the schema whose numbers are encoded as ``(x - location) / deviation`` of what they are now."""
        return TableSchema(
            tuple(
                replace(
                    column,
                    mean=column.mean + column.deviation * float(location[place]),
                    deviation=column.deviation * float(deviation[place]),
                )
                if isinstance(column, Number)
                else column
                for place, column in self._placed()
            )
        )

    def _placed(self) -> Iterator[tuple[int, Column]]:
        """Yield the place of the first input of each column, and the column."""
        starts = accumulate((column.width for column in self.columns), initial=0)
        return zip(starts, self.columns, strict=False)

    def encode(
        self, rows: Mapping[str, pa.Array], where: Where, into: Inputs | None = None, *, first: int = 0
    ) -> tuple[Inputs, dict[str, int]]:
        """Encode a block of rows.

        Parameters
        ----------
        rows : mapping of str to Array, or RecordBatch
            Values by column; further columns are ignored.
        where : str or Table
            Where the rows are, for messages.
        into : ndarray of shape (n, width), optional
            Where to write the inputs.
        first : int, default=0
            Number of rows before this block, for messages.

        Returns
        -------
        inputs : ndarray of shape (n, width)
            The network inputs.
        unseen : dict of str to int
            By column, the number of values that did not occur in training.
        """
        inputs = np.empty((len(rows[self.columns[0].name]), *self.shape), np.float32) if into is None else into
        unseen: dict[str, int] = {}
        place = 0
        for column in self.columns:
            count = column.encode(rows[column.name], inputs[:, place : place + column.width], where, first)
            place += column.width
            if count:
                unseen[column.name] = count
        return inputs, unseen

    def to_dict(self) -> dict[str, Any]:
        kinds = {kind: name for name, kind in KINDS.items()}
        return {"kind": "table", "columns": [{"kind": kinds[type(c)], **vars(c)} for c in self.columns]}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> TableSchema:
        """Read what `to_dict` returned."""
        columns: list[Column] = []
        for each in stored["columns"]:
            values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in each.items()}
            columns.append(KINDS[values.pop("kind")](**values))
        return cls(tuple(columns))
