"""DataFrames with text, categories or missing values, encoded by the same schema as tables that `fedul.load` reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedul.core import Schema
from fedul.data.files.memory_table import as_table, is_dataframe
from fedul.data.files.new_rows import RowReader
from fedul.data.files.schema.column_stats import ColumnStats, column_stats
from fedul.data.files.schema.infer import infer_schema
from fedul.data.files.schema.table import TableSchema
from fedul.errors import InputError


def needs_schema(X: Any) -> bool:
    """Return whether X is a DataFrame that has other values than numbers."""
    if not is_dataframe(X):
        return False
    try:
        columns = as_table(X, "X").content.columns
    except InputError:  # scikit-learn says what is wrong with it
        return False
    return any(column.null_count or not _is_numeric(column.type) for column in columns)


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def infer_frame_schema(X: Any, classes: Iterable[str]) -> tuple[TableSchema, list[str]]:
    """Return the schema of a DataFrame, and warnings about its columns."""
    table = as_table(X, "X")
    stats = dict.fromkeys(table.columns, ColumnStats())
    for block in table.blocks():
        for name in table.columns:
            stats[name] += column_stats(block.column(name))
    return infer_schema(stats, classes)


def encode_frame(X: Any, schema: Schema) -> NDArray[np.float32]:
    """Return the rows of a DataFrame as network inputs (n, width)."""
    if not is_dataframe(X):
        raise InputError("X: the classifier was fitted to a DataFrame with text or missing values; give a DataFrame.")
    return np.concatenate(list(RowReader(X, schema)))
