"""What is known of a column of a table, without a row of it.

Facts can be added up over blocks, files and sites, so that all agree on one schema and show no row to one another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MOST_WORDS = 1000
"""Different texts of a column that are counted; one with more is no category."""
RARE = 5
"""Rows that a category needs for an input of its own, and to be told to other sites."""
FEW = 20
"""Numbers of a column that are too few to tell their mean and spread to other sites."""
LARGEST = 1e100
"""No mean or spread of a column is larger, whatever a site says."""
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
DECIMAL_COMMA = r"^[+-]?\d*,\d+$"
GROUPED = r"^[+-]?\d{1,3}((\.\d{3})+,\d+|(\.\d{3}){2,}|(,\d{3})+(\.\d+)?|([ '\x{2019}\x{a0}\x{202f}]\d{3})+([.,]\d+)?)$"
"""Numbers with thousands separators: 14.960,97 or 14,960.97, and with blanks or apostrophes."""


@dataclass(frozen=True)
class Facts:
    """What is known of a column."""

    rows: int = 0
    missing: int = 0
    numbers: int = 0
    mean: float = 0.0
    squares: float = 0.0  # of the deviations from the mean
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True  # all numbers are whole
    words: Mapping[str, int] = field(default_factory=dict)  # texts that are no numbers, and how often each is there
    many: bool = False  # more of them than are counted
    rest: bool = False  # there are further words, each in a few rows only, which are not told
    strange: str = ""  # a type that is neither number nor text
    spelled: int = 0  # texts that look like numbers with thousands separators or decimal commas

    def __add__(self, other: Facts) -> Facts:
        """Of both blocks together (Chan et al. 1979 for the moments)."""
        numbers = self.numbers + other.numbers
        apart = other.mean - self.mean
        share = other.numbers / numbers if numbers else 0.0
        words = dict(self.words)
        for word, count in other.words.items():
            words[word] = words.get(word, 0) + count
        many = self.many or other.many or len(words) > MOST_WORDS
        return Facts(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            numbers=numbers,
            mean=self.mean + apart * share,
            squares=self.squares + other.squares + apart * apart * self.numbers * share,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            whole=self.whole and other.whole,
            words={} if many else words,
            many=many,
            rest=self.rest or other.rest,
            strange=self.strange or other.strange,
            spelled=self.spelled + other.spelled,
        )

    def shown(self) -> Facts:
        """What may be shown to others: no value that only a few rows have, and no extreme one.

        In place of the lowest and highest number stand those one deviation from the mean: all that anyone asks of
        them is whether they differ.
        """
        told = {word: count for word, count in self.words.items() if count >= RARE}
        many = self.many or like_identifiers(self)
        rest = self.rest or len(told) < len(self.words)
        shown = replace(self, words={} if many else told, many=many, rest=rest)
        if not self.numbers:
            return shown
        if self.numbers < FEW:  # their mean and spread would be the numbers themselves: as if they were missing
            hidden = replace(shown, missing=self.missing + self.numbers, numbers=0, mean=0.0, squares=0.0)
            return replace(hidden, low=math.inf, high=-math.inf)
        return replace(shown, low=self.mean - self.deviation, high=self.mean + self.deviation)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        ends = {
            name: value if math.isfinite(value) else None for name, value in (("low", self.low), ("high", self.high))
        }
        return {**vars(self), **ends, "words": dict(self.words)}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> Facts:
        """What `plain` gave; a ValueError says what is wrong with it."""
        values = dict(stored)
        low, high = values.pop("low"), values.pop("high")
        found = cls(
            **values, low=math.inf if low is None else float(low), high=-math.inf if high is None else float(high)
        )
        counts = [found.rows, found.missing, found.numbers, found.spelled, *found.words.values()]
        moments = [found.mean, found.squares]
        if not all(type(count) is int and count >= 0 for count in counts) or len(found.words) > MOST_WORDS:
            raise ValueError("counts of a column that are no counts")
        if found.rows < found.missing + found.numbers:
            raise ValueError("counts of a column that do not fit together")
        if not all(isinstance(each, int | float) and abs(each) < LARGEST for each in moments) or found.squares < 0:
            raise ValueError("moments of a column that cannot be")
        return found

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def deviation(self) -> float:
        return math.sqrt(self.squares / self.numbers) if self.numbers else 0.0


def like_identifiers(about: Facts) -> bool:
    """Whether nearly every row has a value of its own, as names and identifiers do."""
    return about.many or len(about.words) + about.numbers > max(about.present / 2, 10)


def facts_of(values: pa.Array, *, as_words: bool = False) -> Facts:
    """What a block of a column shows; `as_words` counts numbers as words too."""
    values = words_of(values) if as_words else simple(values)
    rows, missing = len(values), values.null_count
    if not (pa.types.is_floating(values.type) or pa.types.is_string(values.type)):
        return Facts(rows, missing, strange=str(values.type))
    texts: dict[str, int] = {}
    spelled = 0
    if pa.types.is_string(values.type):
        values, others = (pa.nulls(rows, pa.float64()), values) if as_words else numbers_and_words(values)
        counted = pc.value_counts(others.drop_null())
        texts = dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))
        if texts and not as_words:
            spelled = pc.sum(counted.filter(like_numbers(counted.field(0))).field(1)).as_py() or 0
    many = len(texts) > MOST_WORDS
    present = values.drop_null().to_numpy(zero_copy_only=False)
    if not len(present):
        return Facts(rows, missing, words={} if many else texts, many=many, spelled=spelled)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities are found and told by their extremes
        mean = float(present.mean())
        squares = float(np.square(present - mean).sum())
    return Facts(
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


def like_numbers(texts: pa.Array) -> pa.Array:
    """Which texts look like numbers, with thousands separators or decimal commas in them."""
    return pc.or_(pc.match_substring_regex(texts, GROUPED), pc.match_substring_regex(texts, DECIMAL_COMMA))


def simple(values: pa.Array) -> pa.Array:
    """As float64 or as text; what is neither stays what it is."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(values), None, values)  # NaN is how many programs write what is missing
    return values


def numbers_and_words(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The texts that are numbers (float64, others missing), and those that are none (numbers missing)."""
    texts = pc.utf8_trim_whitespace(texts)
    try:
        return texts.cast(pa.float64()), pa.nulls(len(texts), pa.string())
    except pa.ArrowInvalid:
        are = pc.match_substring_regex(texts, NUMBER)
        return pc.if_else(are, texts, None).cast(pa.float64()), pc.if_else(are, None, texts)


def words_of(values: pa.Array) -> pa.Array:
    """As text; whole numbers as such ('3', not '3.0')."""
    values = simple(values)
    if pa.types.is_string(values.type):
        values, others = numbers_and_words(values)
        if others.null_count < len(others):
            return pc.coalesce(others, _spelled(values))
    return _spelled(values) if pa.types.is_floating(values.type) else values


def _spelled(numbers: pa.Array) -> pa.Array:
    whole = pc.and_(pc.equal(numbers, pc.floor(numbers)), pc.less(pc.abs(numbers), 2.0**53))
    as_whole = pc.cast(pc.cast(pc.if_else(whole, numbers, 0.0), pa.int64()), pa.string())
    return pc.if_else(whole, as_whole, pc.cast(numbers, pa.string()))
