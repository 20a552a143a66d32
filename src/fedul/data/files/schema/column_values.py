"""Values of a column that look odd: stand-ins for missing values, outliers, codes read as numbers, row numbers.

Unlike `ColumnStats`, these statistics include single values. They stay where the rows are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedul._utils.display import counted
from fedul.data.files.schema.column_stats import as_simple_array, numbers_and_words

ENDS = 3
"""Different values at each end of the range that are counted."""
FEWEST_NUMBERED = 20
"""Rows above which numbers that increase from row to row are taken for row numbers."""
OUTLIER_GAP = 100.0
"""An outlier is this many times the range of the other values away from them."""
OUTLIER_SHARE = 0.01
PADDED = r"^0\d+$"


@dataclass(frozen=True)
class End:
    """A value at an end of the range: the number of rows that have it, and the first of them."""

    value: float
    rows: int
    first: int


@dataclass(frozen=True)
class ColumnValues:
    """Single values of a column.

    Parameters
    ----------
    rows, missing, numbers : int
        Number of rows, of missing values, and of numbers.
    lowest, highest : tuple of End
        The smallest and the largest different numbers, the most extreme first.
    whole, increasing : bool
        Whether all numbers are whole, and increase from row to row.
    last : float
        The last number.
    padded : str
        A number with leading zeros; empty if there is none.
    """

    rows: int = 0
    missing: int = 0
    numbers: int = 0
    lowest: tuple[End, ...] = ()
    highest: tuple[End, ...] = ()
    whole: bool = True
    increasing: bool = True
    last: float = -math.inf
    padded: str = ""

    def with_table(self, other: ColumnValues) -> ColumnValues:
        """Return the values of two tables: the numbers of each may increase from its own first row."""
        return replace(self + other, increasing=self.increasing and other.increasing)

    def __add__(self, other: ColumnValues) -> ColumnValues:
        """Return the values of both blocks; the rows of `other` come after these."""
        follows = not self.numbers or not other.numbers or other.lowest[0].value > self.last
        return ColumnValues(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            numbers=self.numbers + other.numbers,
            lowest=_merge(self.lowest, other.lowest, self.rows, 1),
            highest=_merge(self.highest, other.highest, self.rows, -1),
            whole=self.whole and other.whole,
            increasing=self.increasing and other.increasing and follows,
            last=other.last if other.numbers else self.last,
            padded=self.padded or other.padded,
        )


def column_values(values: pa.Array) -> ColumnValues:
    """Return the values of a block of a column."""
    values = as_simple_array(values)
    rows, missing, padded = len(values), values.null_count, ""
    if pa.types.is_string(values.type):
        codes = values.filter(pc.match_substring_regex(values, PADDED).fill_null(False))
        padded = codes[0].as_py() if len(codes) else ""
        values, _ = numbers_and_words(values)
    if not pa.types.is_floating(values.type):
        return ColumnValues(rows, missing)
    numbers = values.to_numpy(zero_copy_only=False)
    places = np.flatnonzero(np.isfinite(numbers))
    present = numbers[places]
    if not len(present):
        return ColumnValues(rows, missing, padded=padded)
    different, first, counts = np.unique(present, return_index=True, return_counts=True)
    lowest, highest = (
        tuple(End(float(different[i]), int(counts[i]), int(places[first[i]])) for i in order[:ENDS])
        for order in (range(len(different)), range(len(different) - 1, -1, -1))
    )
    return ColumnValues(
        rows,
        missing,
        len(present),
        lowest,
        highest,
        whole=bool((present == np.floor(present)).all()),
        increasing=bool((np.diff(present) > 0).all()),
        last=float(present[-1]),
        padded=padded,
    )


def _merge(one: tuple[End, ...], other: tuple[End, ...], rows: int, sign: int) -> tuple[End, ...]:
    """Return the most extreme values of two blocks; `rows` is the number of rows of the first."""
    ends = {end.value: end for end in one}
    for end in other:
        before = ends.get(end.value)
        first = rows + end.first if before is None else before.first
        ends[end.value] = End(end.value, end.rows + (before.rows if before else 0), first)
    return tuple(sorted(ends.values(), key=lambda end: sign * end.value)[:ENDS])


def find_odd_end(values: ColumnValues) -> tuple[End, str] | None:
    """Return a value that is far from all others, with what to do about it; None if there is none."""
    if len(values.lowest) < ENDS:
        return None
    for ends, other in ((values.lowest, values.highest[0]), (values.highest, values.lowest[0])):
        end, gap = ends[0], abs(ends[0].value - ends[1].value)
        spread = abs(other.value - ends[1].value)
        if not math.isfinite(gap) or not spread:
            continue
        if _is_nines(end.value) and gap > spread:
            return end, "if it stands for a missing value, leave it empty"
        if gap > OUTLIER_GAP * spread and end.rows <= max(1, OUTLIER_SHARE * values.numbers):
            return end, "correct it or leave it empty"
    return None


def odd_values(values: ColumnValues, where: str = "") -> str:
    """Return what looks odd about the numbers of a column, to follow its name; empty if nothing does.

    Parameters
    ----------
    values : ColumnValues
        Values of a column that is used as a number.
    where : str
        Where the odd value occurs first, for the message.
    """
    if found := find_odd_end(values):
        end, remedy = found
        others = [each.value for each in (values.lowest[0], values.lowest[1], values.highest[0], values.highest[1])]
        others = [value for value in others if value != end.value]
        first = f", first in {where}" if where else ""
        return (
            f"has {end.value:g} in {counted(end.rows, 'row')}{first}, far from the other values "
            f"({min(others):g} to {max(others):g}); {remedy}."
        )
    if values.padded:
        return (
            f"has codes with leading zeros ('{values.padded[:20]}') and is read as a number; if they are codes, name "
            "the column with --category-columns."
        )
    if values.numbers > FEWEST_NUMBERED and values.whole and (values.increasing or _numbers_all_rows(values)):
        return "numbers the rows like an identifier and is used as a feature; if it is one, use --ignore-columns."
    return ""


def _numbers_all_rows(values: ColumnValues) -> bool:
    return values.highest[0].value - values.lowest[0].value + 1 == values.numbers and values.lowest[0].rows == 1


def _is_nines(value: float) -> bool:
    """Return whether a number is written with the digit 9 alone, as -999 is."""
    return value.is_integer() and set(f"{abs(value):.0f}") == {"9"}
