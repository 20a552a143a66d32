"""Columns whose form is public: ranges of numbers and words of categories from a file, not from the rows.

The file is TOML, with a part for each column that is used. A number has `low` and `high`, a usual range that is known
without the rows, such as that of a medical reference; values outside of it are allowed. A category has `words`; all
others share one input. Every column has an indicator of missing values. Columns without a part are not used.

    [temperature]
    low = 35
    high = 41

    [cough]
    words = ["yes", "no"]

The statistics of such a column say what the file says. So nothing of the rows is in what sites send about it, or in
the schema of the classifier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedul._utils.settings import read_toml
from fedul.data.files.schema.column_stats import ColumnStats
from fedul.data.files.schema.infer import MAX_CATEGORIES
from fedul.errors import InputError

COUNT = 1000
"""Rows, and rows with each word, that the statistics of a public column have: more than those that are hidden."""
DEVIATIONS = 4.0
"""Standard deviations of a number between the ends of its usual range."""


def read_public_columns(path: str) -> dict[str, ColumnStats]:
    """Return the statistics of public columns, in the order of the file.

    Parameters
    ----------
    path : str
        The TOML file.

    Raises
    ------
    InputError
        If the file cannot be read, or a column has neither a range nor words.
    """
    columns = {name: _column(path, name, form) for name, form in read_toml(path, "public-columns").items()}
    if not columns:
        raise InputError(f"{path}: names no column; add a part such as [temperature] with low and high.")
    return columns


def _column(path: str, name: str, form: Any) -> ColumnStats:
    if isinstance(form, Mapping) and set(form) == {"low", "high"}:
        return _number(path, name, form["low"], form["high"])
    if isinstance(form, Mapping) and set(form) == {"words"}:
        return _category(path, name, form["words"])
    raise InputError(f"{path}: column '{name}' needs either low and high, or words.")


def _number(path: str, name: str, low: Any, high: Any) -> ColumnStats:
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not -math.inf < low < high < math.inf:
        raise InputError(f"{path}: column '{name}': low and high must be numbers, low below high.")
    mean, deviation = (low + high) / 2, (high - low) / DEVIATIONS
    return ColumnStats(
        rows=COUNT + 1,
        missing=1,
        numbers=COUNT,
        mean=mean,
        squares=COUNT * deviation**2,
        low=mean - deviation,
        high=mean + deviation,
        whole=False,
    )


def _category(path: str, name: str, words: Any) -> ColumnStats:
    if not (isinstance(words, list) and words and all(isinstance(word, str) and word for word in words)):
        raise InputError(f"{path}: column '{name}': words must be a list of texts.")
    if len(set(words)) < len(words) or len(words) > MAX_CATEGORIES:
        raise InputError(f"{path}: column '{name}': give each word once, and at most {MAX_CATEGORIES}.")
    return ColumnStats(rows=COUNT * len(words) + 1, missing=1, words=dict.fromkeys(words, COUNT), rest=True)
