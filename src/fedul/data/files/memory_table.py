"""DataFrames as tables: pandas, polars, pyarrow, and everything else with the Arrow PyCapsule interface.

A DataFrame is checked and encoded by the same code as a file. pandas is never imported here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fedul.data.files.tables import BLOCK_ROWS, Table, missing_as_null
from fedul.errors import InputError


@dataclass(frozen=True)
class MemoryTable(Table):
    """A table in memory, with the interface of a table file."""

    content: pa.Table = None

    def _read(self, wanted: list[str], as_written: bool, verbatim: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for block in self.content.select(wanted).to_batches(BLOCK_ROWS):
            yield missing_as_null(block, verbatim)


def is_dataframe(value: object) -> bool:
    """Return whether a value is a DataFrame or another table in memory."""
    return _is_pandas(value) or hasattr(value, "__arrow_c_stream__")


def as_table(frame: Any, source: str, *, keys: Collection[str] = (), unnamed_keys: Sequence[str] = ()) -> MemoryTable:
    """Return a DataFrame as a table.

    Parameters
    ----------
    frame : DataFrame
        A table of pandas, polars or pyarrow.
    source : str
        How messages name it.
    keys : collection of str
        Columns that may be levels of the index of a pandas DataFrame instead. Other levels are ignored.
    unnamed_keys : sequence of str
        What unnamed levels of such an index stand for, the last level for the last of these names.
    """
    try:
        content = _from_pandas(frame, keys, unnamed_keys) if _is_pandas(frame) else pa.table(frame)
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as problem:
        raise InputError(
            f"{source}: the {type(frame).__name__} cannot be read as a table ({problem}); give a DataFrame of numbers "
            "and text."
        ) from None
    return MemoryTable(source, tuple(content.column_names), content)


def _is_pandas(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas"


def _from_pandas(frame: Any, keys: Collection[str], unnamed_keys: Sequence[str]) -> pa.Table:
    """Return the columns of a pandas DataFrame, and the levels of its index that are keys."""
    index, columns = frame.index, {}
    names = list(index.names)
    if names[-1] is None and type(index).__name__ != "RangeIndex":
        names = [None, *unnamed_keys][-len(names) :]
    for level, name in enumerate(names):
        if name in keys and name not in frame.columns:
            columns[name] = _as_array(index.get_level_values(level).to_series())
    arrays = [*columns.values(), *(_as_array(frame.iloc[:, place]) for place in range(len(frame.columns)))]
    return pa.Table.from_arrays(arrays, names=[*columns, *map(str, frame.columns)])


def _as_array(series: Any) -> pa.Array:
    """Return a pandas Series as an array: text where its values are of several types, as in a CSV file."""
    try:
        array = pa.array(series, from_pandas=True)
        if not isinstance(array.type, pa.BaseExtensionType):
            return array
    except OverflowError:  # whole numbers that are too large for 64 bits: decimal ones, as in a CSV file
        return pa.array(series.astype("float64"), from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pass
    missing = series.isna()
    return pa.array([None if gone else str(value) for value, gone in zip(series, missing, strict=True)], pa.string())
