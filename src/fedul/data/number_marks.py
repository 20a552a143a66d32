"""Points that may be thousands separators: 14.960 in a file that has decimal commas is not 14.96."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedul.data.tables import TableFile
from fedul.errors import InputError
from fedul.schema.faults import MOST

GROUPED = r"^\s*[+-]?[1-9]\d{0,2}(\.\d{3})+\s*$"
LIKE_NUMBER = r"^\s*[+-]?\d*[.,\d]*\d([eE][+-]?\d+)?\s*$"
POINT = r"^\s*[+-]?\d*\.\d*([eE][+-]?\d+)?\s*$"


def check_points(file: TableFile, columns: Sequence[str]) -> None:
    """Refuses a column of numbers all of whose points may be thousands separators, in a file with decimal commas."""
    if not file.decimal_commas or not columns:
        return
    doubtful: dict[str, str] = {}  # the first such number of a column, and where it is
    clear: set[str] = set()
    others: Counter[str] = Counter()  # texts that are no numbers
    rows = 0
    for block in file.blocks(columns, as_written=True):
        for name in columns:
            others[name] += int((~_matches(block.column(name), LIKE_NUMBER, where_missing=True)).sum())
            if name not in clear:
                grouped, points = (_matches(block.column(name), pattern) for pattern in (GROUPED, POINT))
                if (points & ~grouped).any():
                    clear.add(name)
                elif grouped.any():
                    row = int(grouped.argmax())
                    where = f"{file.path}, row {rows + row + 1}: column '{name}'"
                    doubtful.setdefault(name, f"{where}: '{str(block.column(name)[row]).strip()}'")
        rows += len(block)
    for name, found in doubtful.items():
        if name not in clear and others[name] < (1 - MOST) * rows:
            raise InputError(
                f"{found} may be a number with a thousands separator, since other numbers of the file have decimal "
                "commas; remove the separators, or write decimal points everywhere."
            )


def _matches(texts: pa.Array, pattern: str, *, where_missing: bool = False) -> NDArray[np.bool_]:
    matching = pc.match_substring_regex(texts, pattern).fill_null(where_missing)
    found: NDArray[np.bool_] = matching.to_numpy(zero_copy_only=False)
    return found
