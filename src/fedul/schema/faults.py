"""What is wrong with a column that is meant as numbers, and where in a block it is."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from fedul.schema.facts import DECIMAL_COMMA, Facts, like_numbers, numbers_and_words, simple

MOST = 0.9
"""The share of numbers in a column from which on it is meant as numbers."""


def fault(about: Facts, value: str = "") -> str:
    """What is wrong, in words that follow the column's name; empty if nothing is. `value` is one that is wrong."""
    if about.spelled and about.numbers + about.spelled > MOST * about.present:
        return spelling(value or next((word for word in about.words if is_grouped(word)), ""))
    if MOST * about.present < about.numbers < about.present:
        value = value or next(iter(about.words), "text")
        return (
            f"'{value[:40]}' is not a number, as the others are; mend it, leave it empty, or name the column with "
            "--category-columns."
        )
    if about.numbers == about.present > 0 and not np.isfinite([about.low, about.high, about.deviation]).all():
        return "has an infinite or huge value; mend it or leave it empty."
    return ""


def spelling(text: str) -> str:
    """What is to be done about a number that is not written plainly, in words."""
    if re.match(DECIMAL_COMMA, text) and not re.match(r"^[+-]?\d{1,3},\d{3}$", text):
        return (
            f"'{text[:40]}' looks like a number with a decimal comma; write a point, or name the column with "
            "--category-columns if it is none."
        )
    shown = f"'{text[:40]}' looks like a number" if text else "has values that look like numbers"
    return f"{shown} with thousands separators; remove them."


def first_wrong(values: pa.Array, about: Facts) -> tuple[int, str] | None:
    """The place in a block of a column of the first value that is at fault, and its text; None if it is not here."""
    values = simple(values)
    if pa.types.is_string(values.type):
        values, words = numbers_and_words(values)
        wrong = like_numbers(words).fill_null(False) if about.spelled else words.is_valid()
        places = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        if places.size:
            return int(places[0]), str(words[int(places[0])])
    if about.numbers < about.present:
        return None
    infinite = np.flatnonzero(np.isinf(values.to_numpy(zero_copy_only=False)))
    return (int(infinite[0]), "") if infinite.size else None


def is_grouped(text: str) -> bool:
    """Whether a text looks like a number with thousands separators or a decimal comma."""
    return bool(like_numbers(pa.array([text]))[0].as_py())
