"""Values of a column that look odd, in blocks and tables of any size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pytest

from fedul.data.files.schema.column_values import ColumnValues, column_values, odd_values

AGES = [20.0 + number % 60 for number in range(200)]


def values_of(values: Sequence[object], blocks: int = 3) -> ColumnValues:
    """The statistics of values that are read in several blocks."""
    parts = [pa.array([values[i] for i in part]) for part in np.array_split(np.arange(len(values)), blocks)]
    return reduce(add, map(column_values, parts), ColumnValues())


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (
            [*AGES, -999.0, -999.0],
            "has -999 in 2 rows, far from the other values (20 to 79); if it stands for a missing",
        ),
        ([*AGES, 9999.0], "has 9999 in 1 row, far from the other values (20 to 79); if it stands for a missing value"),
        ([*AGES, 1e30], "has 1e+30 in 1 row, far from the other values (20 to 79); correct it or leave it empty."),
        (
            [f"{100 + i * 7 % 90:04d}" for i in range(90)],
            "has codes with leading zeros ('0100') and is read as a number",
        ),
        ([str(17 + 2 * row) for row in range(30)], "numbers the rows like an identifier"),
        (np.random.default_rng(0).permutation(50).astype(float).tolist(), "numbers the rows like an identifier"),
    ],
)
def test_a_value_that_looks_odd_is_described(values: Sequence[object], note: str) -> None:
    for blocks in (1, 3):
        assert odd_values(values_of(values, blocks)).startswith(note)


@pytest.mark.parametrize(
    "values",
    [
        AGES,
        [*AGES, 99.0],  # an age
        [0.0] * 199 + [1.0],
        [0.0, 1.0, 2.0] * 50,
        np.random.default_rng(0).lognormal(3, 1, 2000).tolist(),
        np.cumsum(np.random.default_rng(0).random(50)).tolist(),
        [None] * 30,
        ["a", "b", None],
    ],
)
def test_usual_values_are_not(values: Sequence[object]) -> None:
    assert odd_values(values_of(values)) == ""


def test_the_first_row_of_an_odd_value_is_known_over_blocks() -> None:
    found = values_of([None, *AGES, -999.0, 3.0, -999.0], blocks=4)
    assert (found.lowest[0].first, found.lowest[0].rows, found.missing, found.rows) == (201, 2, 1, 204)


def test_an_index_that_starts_anew_in_every_table_is_found() -> None:
    one = values_of([float(row) for row in range(30)])
    assert odd_values(one.with_table(one)).startswith("numbers the rows")
    assert odd_values(one + one) == ""
