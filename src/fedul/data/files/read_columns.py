"""How the columns of a user's table were read: kinds, ranges, categories, and values that look odd."""

from __future__ import annotations

from collections.abc import Sequence

from fedul.core import ColumnReading, Schema
from fedul.data.files.schema.column_values import find_odd_end, odd_values
from fedul.data.files.schema.table import Category, Number, TableSchema
from fedul.data.files.table_collection import TableCollection


def read_columns(collection: TableCollection, schema: Schema | None, warnings: Sequence[str]) -> list[ColumnReading]:
    """Return how every feature was read, in the order of the table.

    Parameters
    ----------
    collection : TableCollection
        The rows, after `signature`.
    schema : Schema or None
        How rows become inputs.
    warnings : sequence of str
        Sentences about columns from the inference of the schema.
    """
    columns = {column.name: column for column in schema.columns} if isinstance(schema, TableSchema) else {}
    readings = []
    for name, values in collection.values.items():
        column, head = columns.get(name), f"column '{name}' "
        note = next((each.removeprefix(head) for each in warnings if each.startswith(head)), "")
        if isinstance(column, Number):
            odd = find_odd_end(values)
            note = odd_values(values, collection.describe_row(odd[0].first) if odd else "") or note
            low, high = values.lowest[0].value, values.highest[0].value
            readings.append(ColumnReading(name, "number", values.missing, low, high, note=note))
        elif isinstance(column, Category):
            readings.append(ColumnReading(name, "category", values.missing, words=column.words, note=note))
        else:
            readings.append(ColumnReading(name, "boolean" if column else "left out", values.missing, note=note))
    return readings


def column_notes(columns: Sequence[ColumnReading]) -> list[str]:
    """Return one sentence for each column that looks odd or is left out."""
    return [f"column '{column.name}' {column.note}" for column in columns if column.note]
