"""The columns of a table as inputs of a network: numbers, categories, yes and no; what is missing is told to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedul.errors import InputError
from fedul.schema.facts import numbers_and_words, simple, words_of

YES, NO = ("true", "yes", "t", "y"), ("false", "no", "f", "n")
Inputs = NDArray[np.float32]


HUGE = 1e12
"""How many deviations from the mean no number can be that means something; far more are infinite to a network."""


@dataclass(frozen=True)
class Number:
    """A number, standardised; what is missing is taken for the mean, and told by an input if it was so in training."""

    name: str
    mean: float
    deviation: float
    missing: bool

    @property
    def width(self) -> int:
        return 1 + self.missing

    def encode(self, values: pa.Array, into: Inputs, where: str, first: int = 0) -> int:
        """Fills the inputs; how many values were never seen in training. `first` is how many rows were before."""
        numbers = self._read(simple(values), where, first)
        absent = np.isnan(numbers)
        with np.errstate(over="ignore"):
            standardised = (numbers - self.mean) / self.deviation
        if (huge := np.abs(standardised) > HUGE).any():
            row = int(huge.argmax())
            raise InputError(
                f"{where}, row {first + row + 1}: column '{self.name}' has {numbers[row]:g}, huge beside what it had "
                "in training; mend it or empty it."
            )
        into[:, 0] = np.where(absent, 0.0, standardised)
        if self.missing:
            into[:, 1] = absent
        return 0

    def _read(self, values: pa.Array, where: str, first: int) -> NDArray[np.float64]:
        if pa.types.is_string(values.type):
            values, others = numbers_and_words(values)
            if others.null_count < len(others):
                row = int(np.argmin(others.is_null().to_numpy(zero_copy_only=False)))
                raise InputError(
                    f"{where}, row {first + row + 1}: column '{self.name}' has '{_short(others[row])}' where numbers "
                    "are expected; mend it or leave it empty."
                )
        elif not pa.types.is_floating(values.type):
            raise InputError(f"{where}: column '{self.name}' holds {values.type}; numbers are expected.")
        numbers: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
        if (infinite := np.isinf(numbers)).any():
            row = int(infinite.argmax())
            raise InputError(
                f"{where}, row {first + row + 1}: column '{self.name}' has an infinite value; mend it or empty it."
            )
        return numbers


@dataclass(frozen=True)
class Category:
    """One of several words: an input for each, one for all others if some were rare, one for what is missing."""

    name: str
    words: tuple[str, ...]
    others: bool
    missing: bool

    @property
    def width(self) -> int:
        return len(self.words) + self.others + self.missing

    def encode(self, values: pa.Array, into: Inputs, where: str, first: int = 0) -> int:
        texts = words_of(values)
        if not pa.types.is_string(texts.type):
            raise InputError(f"{where}: column '{self.name}' holds {texts.type}; words are expected.")
        place = pc.fill_null(pc.index_in(texts, pa.array(self.words, pa.string())), -1).to_numpy(zero_copy_only=False)
        absent = texts.is_null().to_numpy(zero_copy_only=False)
        known = (place >= 0) & ~absent
        strange = ~known & ~absent
        into[:] = 0
        into[np.flatnonzero(known), place[known]] = 1
        if self.others:
            into[strange, len(self.words)] = 1
        if self.missing:
            into[absent, -1] = 1
        return 0 if self.others else int(strange.sum())


@dataclass(frozen=True)
class Boolean:
    """Yes or no, as 1 and 0 about their mean; what is missing is taken for the mean."""

    name: str
    mean: float
    missing: bool

    @property
    def width(self) -> int:
        return 1 + self.missing

    def encode(self, values: pa.Array, into: Inputs, where: str, first: int = 0) -> int:
        texts = words_of(values)
        if not pa.types.is_string(texts.type):
            raise InputError(f"{where}: column '{self.name}' holds {texts.type}; yes or no is expected.")
        texts = pc.utf8_lower(texts)
        yes, no = (pc.is_in(texts, pa.array(words)).to_numpy(zero_copy_only=False) for words in (YES, NO))
        absent = texts.is_null().to_numpy(zero_copy_only=False)
        strange = ~(yes | no | absent)
        if strange.any():
            row = int(strange.argmax())
            raise InputError(
                f"{where}, row {first + row + 1}: column '{self.name}' has '{_short(texts[row])}' where yes or no is "
                "expected; mend it or leave it empty."
            )
        into[:, 0] = np.where(absent, 0.0, yes - self.mean)
        if self.missing:
            into[:, 1] = absent
        return 0


Column = Number | Category | Boolean
KINDS: dict[str, type[Column]] = {"number": Number, "category": Category, "boolean": Boolean}


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table, in the order of the network's inputs."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(column.width for column in self.columns),)

    def encode(
        self, rows: Mapping[str, pa.Array], where: str, into: Inputs | None = None, *, first: int = 0
    ) -> tuple[Inputs, dict[str, int]]:
        """The inputs (n, width) of a block of rows; and by column, how many of its values were never seen before.

        `where` the rows are, and how many were before the `first` of them, is for what is said of a wrong one.
        """
        count = len(rows[self.columns[0].name])
        inputs = np.empty((count, *self.shape), np.float32) if into is None else into
        unseen: dict[str, int] = {}
        place = 0
        for column in self.columns:
            strange = column.encode(rows[column.name], inputs[:, place : place + column.width], where, first)
            place += column.width
            if strange:
                unseen[column.name] = strange
        return inputs, unseen

    def plain(self) -> dict[str, Any]:
        kinds = {kind: name for name, kind in KINDS.items()}
        return {"kind": "table", "columns": [{"kind": kinds[type(c)], **vars(c)} for c in self.columns]}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> TableSchema:
        made: list[Column] = []
        for each in stored["columns"]:
            given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in each.items()}
            made.append(KINDS[given.pop("kind")](**given))
        return cls(tuple(made))


def inputs_by_column(schema: TableSchema) -> Sequence[str]:
    """What each input of the network is, in words."""
    names: list[str] = []
    for column in schema.columns:
        if isinstance(column, Category):
            names += [f"{column.name} = {word}" for word in column.words] + [f"{column.name} = other"] * column.others
        else:
            names.append(column.name)
        names += [f"{column.name} missing"] * column.missing
    return names
