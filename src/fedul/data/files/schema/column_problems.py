"""Problems of a column that is meant to hold numbers, and the first value that causes one."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from fedul.data.files.schema.column_stats import (
    DECIMAL_COMMA,
    ColumnStats,
    as_simple_array,
    looks_like_numbers,
    numbers_and_words,
)

MOSTLY_NUMBERS = 0.9
"""Share of numbers above which a column is meant to hold numbers."""


def column_problem(stats: ColumnStats, value: str = "") -> str:
    """Return what is wrong, to follow the column's name; empty if nothing is. `value` is a wrong value."""
    if stats.spelled and stats.numbers + stats.spelled > MOSTLY_NUMBERS * stats.present:
        return number_spelling(value or next((word for word in stats.words if has_thousands_separator(word)), ""))
    if MOSTLY_NUMBERS * stats.present < stats.numbers < stats.present:
        value = value or next(iter(stats.words), "text")
        return (
            f"'{value[:40]}' is not a number, but the other values are; correct it, leave it empty, or name the "
            "column with --category-columns."
        )
    if stats.numbers == stats.present > 0 and not np.isfinite([stats.low, stats.high, stats.deviation]).all():
        return "has an infinite or huge value; correct it or leave it empty."
    return ""


def number_spelling(text: str) -> str:
    """Return how to correct a number with separators."""
    if re.match(DECIMAL_COMMA, text) and not re.match(r"^[+-]?\d{1,3},\d{3}$", text):
        return (
            f"'{text[:40]}' looks like a number with a decimal comma; write a point, or name the column with "
            "--category-columns if it is not a number."
        )
    shown = f"'{text[:40]}' looks like a number" if text else "has values that look like numbers"
    return f"{shown} with thousands separators; remove them."


def first_bad_value(values: pa.Array, stats: ColumnStats) -> tuple[int, str] | None:
    """Return the place and text of the first bad value in a block of a column; None if there is none."""
    values = as_simple_array(values)
    if pa.types.is_string(values.type):
        values, words = numbers_and_words(values)
        wrong = looks_like_numbers(words).fill_null(False) if stats.spelled else words.is_valid()
        places = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        if places.size:
            return int(places[0]), str(words[int(places[0])])
    if stats.numbers < stats.present:
        return None
    infinite = np.flatnonzero(np.isinf(values.to_numpy(zero_copy_only=False)))
    return (int(infinite[0]), "") if infinite.size else None


def has_thousands_separator(text: str) -> bool:
    """Return whether a text looks like a number with thousands separators or a decimal comma."""
    return bool(looks_like_numbers(pa.array([text]))[0].as_py())
