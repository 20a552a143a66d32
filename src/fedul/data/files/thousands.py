"""Check for thousands separators: 14.960 in a file with decimal commas is not 14.96."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedul.data.files.schema.column_problems import MOSTLY_NUMBERS
from fedul.data.files.tables import CsvTable, Table
from fedul.errors import InputError

GROUPED = r"^\s*[+-]?[1-9]\d{0,2}(\.\d{3})+\s*$"
LIKE_NUMBER = r"^\s*[+-]?\d*[.,\d]*\d([eE][+-]?\d+)?\s*$"
POINT = r"^\s*[+-]?\d*\.\d*([eE][+-]?\d+)?\s*$"


def check_thousands_points(table: Table, columns: Sequence[str]) -> None:
    """Raise an InputError for a column whose points may all be thousands separators, in a file with decimal commas."""
    if not isinstance(table, CsvTable) or not table.decimal_commas or not columns:
        return
    doubtful: dict[str, tuple[int, str]] = {}  # row and text of the first such number of a column
    clear: set[str] = set()
    others: Counter[str] = Counter()  # texts that are not numbers
    rows = 0
    for block in table.blocks(columns, as_written=True):
        for name in columns:
            others[name] += int((~_matches(block.column(name), LIKE_NUMBER, where_missing=True)).sum())
            if name not in clear:
                grouped, points = (_matches(block.column(name), pattern) for pattern in (GROUPED, POINT))
                if (points & ~grouped).any():
                    clear.add(name)
                elif grouped.any():
                    row = int(grouped.argmax())
                    doubtful.setdefault(name, (rows + row, str(block.column(name)[row]).strip()))
        rows += len(block)
    for name, (row, text) in doubtful.items():
        if name not in clear and others[name] < (1 - MOSTLY_NUMBERS) * rows:
            raise InputError(
                f"{table.describe_row(row)}: column '{name}': '{text}' may be a number with a thousands separator, "
                "since other numbers of the file have decimal commas; remove the separators, or write decimal points "
                "everywhere."
            )


def _matches(texts: pa.Array, pattern: str, *, where_missing: bool = False) -> NDArray[np.bool_]:
    matching = pc.match_substring_regex(texts, pattern).fill_null(where_missing)
    mask: NDArray[np.bool_] = matching.to_numpy(zero_copy_only=False)
    return mask
