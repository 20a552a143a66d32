"""Statistics of a column of a table, without its rows.

They can be added over blocks, files and sites, so that all derive the same schema without exchanging rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedul._utils.documents import read_document

MAX_WORDS = 1000
"""Number of different texts that are counted; a column with more is not a category."""
RARE = 5
"""Rows that a category needs to have its own input, and to be sent to other sites."""
FEW = 20
"""Numbers that a column needs before a site sends their mean and spread."""
LARGEST = 1e100
"""Upper limit for a mean or spread that a site sends."""
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
DECIMAL_COMMA = r"^[+-]?\d*,\d+$"
GROUPED = r"^[+-]?\d{1,3}((\.\d{3})+,\d+|(\.\d{3}){2,}|(,\d{3})+(\.\d+)?|([ '\x{2019}\x{a0}\x{202f}]\d{3})+([.,]\d+)?)$"
"""Numbers with thousands separators: 14.960,97 or 14,960.97, and with blanks or apostrophes."""


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of a column.

    Parameters
    ----------
    rows, missing, numbers : int
        Number of rows, of missing values, and of numbers.
    mean, squares : float
        Mean of the numbers, and sum of their squared deviations from it.
    low, high : float
        Smallest and largest number.
    whole : bool
        Whether all numbers are whole.
    words : mapping of str to int
        Texts that are not numbers, with their counts.
    many : bool
        Whether there are more different texts than are counted.
    rest : bool
        Whether there are further words, each in few rows, which are not listed.
    strange : str
        Type of the values, if it is neither number nor text.
    spelled : int
        Texts that look like numbers with thousands separators or decimal commas.
    """

    rows: int = 0
    missing: int = 0
    numbers: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    words: Mapping[str, int] = field(default_factory=dict)
    many: bool = False
    rest: bool = False
    strange: str = ""
    spelled: int = 0

    def __add__(self, other: ColumnStats) -> ColumnStats:
        """Return the statistics of both blocks together (moments after Chan et al., 1979)."""
        numbers = self.numbers + other.numbers
        difference = other.mean - self.mean
        share = other.numbers / numbers if numbers else 0.0
        words = Counter(self.words)
        words.update(other.words)
        many = self.many or other.many or len(words) > MAX_WORDS
        return ColumnStats(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            numbers=numbers,
            mean=self.mean + difference * share,
            squares=self.squares + other.squares + difference * difference * self.numbers * share,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            whole=self.whole and other.whole,
            words={} if many else words,
            many=many,
            rest=self.rest or other.rest,
            strange=self.strange or other.strange,
            spelled=self.spelled + other.spelled,
        )

    def public(self) -> ColumnStats:
        """Return the part that may be sent to others: no value that only few rows have, and no extreme one.

        The smallest and largest number are replaced with those one deviation from the mean. They are only used to find
        out whether the numbers differ.
        """
        common = {word: count for word, count in self.words.items() if count >= RARE}
        many = self.many or looks_like_identifiers(self)
        rest = self.rest or len(common) < len(self.words)
        public = replace(self, words={} if many else common, many=many, rest=rest)
        if not self.numbers:
            return public
        if self.numbers < FEW:  # mean and spread would reveal the numbers: they are sent as missing
            hidden = replace(public, missing=self.missing + self.numbers, numbers=0, mean=0.0, squares=0.0)
            return replace(hidden, low=math.inf, high=-math.inf)
        return replace(public, low=self.mean - self.deviation, high=self.mean + self.deviation)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values."""
        values = {name: value for name, value in vars(self).items() if value not in (math.inf, -math.inf)}
        return {**values, "words": dict(self.words)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ColumnStats:
        """Return the object from the result of `to_dict`; ValueError if it has another form."""
        stats = read_document(cls, stored)
        counts = [stats.rows - stats.missing - stats.numbers, stats.missing, stats.numbers, stats.spelled]
        if min([*counts, *stats.words.values()]) < 0 or len(stats.words) > MAX_WORDS:
            raise ValueError("counts of a column are out of range")
        if max(abs(stats.mean), stats.squares) >= LARGEST or stats.squares < 0:
            raise ValueError("moments of a column are out of range")
        return stats

    @property
    def present(self) -> int:
        """Number of values that are not missing."""
        return self.rows - self.missing

    @property
    def deviation(self) -> float:
        """Standard deviation of the numbers."""
        return math.sqrt(self.squares / self.numbers) if self.numbers else 0.0


def looks_like_identifiers(stats: ColumnStats) -> bool:
    """Return whether nearly every row has a different value, as names and identifiers have."""
    return stats.many or len(stats.words) + stats.numbers > max(stats.present / 2, 10)


def column_stats(values: pa.Array, *, categorical: bool = False) -> ColumnStats:
    """Return the statistics of a block of a column; `categorical` counts numbers as words."""
    values = as_words(values) if categorical else as_simple_array(values)
    rows, missing = len(values), values.null_count
    if not (pa.types.is_floating(values.type) or pa.types.is_string(values.type)):
        return ColumnStats(rows, missing, strange=str(values.type))
    texts: dict[str, int] = {}
    spelled = 0
    if pa.types.is_string(values.type):
        values, others = (pa.nulls(rows, pa.float64()), values) if categorical else numbers_and_words(values)
        counted = pc.value_counts(others.drop_null())
        texts = dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))
        if texts and not categorical:
            spelled = pc.sum(counted.filter(looks_like_numbers(counted.field(0))).field(1)).as_py() or 0
    many = len(texts) > MAX_WORDS
    present = values.drop_null().to_numpy(zero_copy_only=False)
    if not len(present):
        return ColumnStats(rows, missing, words={} if many else texts, many=many, spelled=spelled)
    with np.errstate(invalid="ignore", over="ignore"):  # the extremes show infinities
        mean = float(present.mean())
        squares = float(np.square(present - mean).sum())
    return ColumnStats(
        rows=rows,
        missing=missing,
        numbers=len(present),
        mean=mean,
        squares=squares,
        low=float(present.min()),
        high=float(present.max()),
        whole=bool((present == np.floor(present)).all()),
        words={} if many else texts,
        many=many,
        spelled=spelled,
    )


def looks_like_numbers(texts: pa.Array) -> pa.Array:
    """Return which texts look like numbers with thousands separators or decimal commas."""
    return pc.or_(pc.match_substring_regex(texts, GROUPED), pc.match_substring_regex(texts, DECIMAL_COMMA))


def as_simple_array(values: pa.Array) -> pa.Array:
    """Return values as float64 or as text; other types are unchanged."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(values), None, values)  # many programs write NaN for a missing value
    return values


def numbers_and_words(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the texts that are numbers (float64, others null) and those that are not (numbers null)."""
    texts = pc.utf8_trim_whitespace(texts)
    try:
        return texts.cast(pa.float64()), pa.nulls(len(texts), pa.string())
    except pa.ArrowInvalid:
        are = pc.match_substring_regex(texts, NUMBER)
        return pc.if_else(are, texts, None).cast(pa.float64()), pc.if_else(are, None, texts)


def as_words(values: pa.Array) -> pa.Array:
    """Return values as text: whole numbers without a point ('3', not '3.0'), midnight without a time of day."""
    if pa.types.is_temporal(values.type):
        return pc.replace_substring_regex(values.cast(pa.string()), r"[T ]00:00(:00(\.0+)?)?Z?$", "")
    values = as_simple_array(values)
    if pa.types.is_string(values.type):
        values, others = numbers_and_words(values)
        if others.null_count < len(others):
            return pc.coalesce(others, _spelled(values))
    return _spelled(values) if pa.types.is_floating(values.type) else values


def _spelled(numbers: pa.Array) -> pa.Array:
    whole = pc.and_(pc.equal(numbers, pc.floor(numbers)), pc.less(pc.abs(numbers), 2.0**53))
    as_whole = pc.cast(pc.cast(pc.if_else(whole, numbers, 0.0), pa.int64()), pa.string())
    return pc.if_else(whole, as_whole, pc.cast(numbers, pa.string()))
