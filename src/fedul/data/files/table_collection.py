"""Rows of tables, read in three passes that each hold one block of text in memory.

The first pass finds the client and set of each row, the second collects statistics of every column over the training
rows, the third encodes the rows as network inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fedul.config import FileDataConfig
from fedul.core import Schema
from fedul.data.files.assign import SINGLE_CLIENT, NamedCodes
from fedul.data.files.schema.column_problems import column_problem, first_bad_value
from fedul.data.files.schema.column_stats import ColumnStats, as_words, column_stats
from fedul.data.files.schema.column_values import ColumnValues, column_values
from fedul.data.files.schema.public_columns import read_public_columns
from fedul.data.files.schema.table import TableSchema
from fedul.data.files.signature import DataSignature
from fedul.data.files.tables import Table, open_tables
from fedul.data.files.thousands import check_thousands_points
from fedul.errors import InputError, list_names

DEFAULT_SET = "set"


class TableCollection:
    """Rows of one or more tables with the same columns.

    Parameters
    ----------
    config : FileDataConfig
        Which columns name the client, the set and the label, and which are features.
    table : Table or None
        A table in memory; None reads the files that `config.data` names.

    Attributes
    ----------
    values : mapping of str to ColumnValues
        Single values of the features, after `signature`.
    """

    values: Mapping[str, ColumnValues] = MappingProxyType({})

    def __init__(self, config: FileDataConfig, table: Table | None = None) -> None:
        self._tables = open_tables(table or config.data)
        self.client_column, self._set, self._categories = (
            config.client_column,
            config.set_column,
            config.category_columns,
        )
        first = self._tables[0]
        self.source = config.data if table is None else table.source
        if self.client_column is None and "client" in first.columns:
            self.client_column = "client"
        if self._set is None:
            if DEFAULT_SET not in first.columns:
                raise InputError(
                    f"{first.source}: which column names the set of a row? Name it with --set-column (set_column=...); "
                    f"the columns are {list_names(first.columns)}."
                )
            self._set = DEFAULT_SET
        special = (self.client_column, self._set, config.label_column, config.truth_column)
        for each in self._tables:
            each.check_has([*filter(None, special), *config.ignore_columns, *config.category_columns])
        taken = {*filter(None, special), *config.ignore_columns}
        if both := [name for name in config.category_columns if name in taken]:
            raise InputError(f"category-columns: '{both[0]}' is not a feature; remove it from one of the options.")
        self._features = [name for name in first.columns if name not in taken]
        self._public: dict[str, ColumnStats] = {}
        if config.public_columns is not None:
            self._public = read_public_columns(config.public_columns)
            first.check_has(list(self._public))
            if both := [name for name in self._public if name in taken]:
                raise InputError(f"{config.public_columns}: column '{both[0]}' is not a feature; remove it there.")
            self._features = list(self._public)
        for other in self._tables[1:]:
            for here, there in ((first, other), (other, first)):
                if lost := [name for name in here.columns if name not in there.columns]:
                    raise InputError(
                        f"{there.source}: lacks column '{lost[0]}', which {Path(here.source).name} has; all tables "
                        "need the same columns."
                    )

        self.clients, self.sets, labels = self._read_keys([self.client_column, self._set, config.label_column])
        self.labels = labels if config.label_column else None

    def _read_keys(self, columns: list[str | None]) -> list[NamedCodes]:
        """Return the client, set and label of every row."""
        words: list[list[pa.DictionaryArray]] = [[] for _ in columns]
        wanted = list(dict.fromkeys(name for name in columns if name is not None))
        self._sizes: list[int] = []
        for table in self._tables:
            client = Path(table.source).stem if len(self._tables) > 1 else SINGLE_CLIENT
            self._sizes.append(0)
            for block in table.blocks(wanted):
                self._sizes[-1] += len(block)
                for blocks, name in zip(words, columns, strict=True):
                    if name is not None:
                        blocks.append(as_words(block.column(name)).cast(pa.string()).dictionary_encode())
                    elif blocks is words[0]:
                        blocks.append(pa.repeat(client, len(block)).dictionary_encode())
        keys = [_named_codes(blocks) for blocks in words]
        if not len(keys[0].codes):
            raise InputError(f"{self.source}: holds no rows.")
        return keys

    def column(self, name: str) -> NamedCodes:
        """Return a column as codes of its words."""
        return self._read_keys([name])[0]

    def describe_row(self, number: int) -> str:
        for table, rows in zip(self._tables, self._sizes, strict=True):
            if number < rows:
                return table.describe_row(number)
            number -= rows
        raise IndexError(number)

    def signature(self, train: NDArray[np.bool_]) -> DataSignature:
        stats = dict.fromkeys(self._features, ColumnStats())
        self.values = dict.fromkeys(self._features, ColumnValues())
        first = 0
        for table in self._tables:
            check_thousands_points(table, [name for name in self._features if name not in self._categories])
            here = dict.fromkeys(self._features, ColumnValues())
            for block in table.blocks(self._features):
                chosen = block.filter(pa.array(train[first : (first := first + len(block))]))
                for name in self._features:
                    stats[name] += column_stats(chosen.column(name), categorical=name in self._categories)
                    here[name] += column_values(block.column(name))
            self.values = {name: values.with_table(here[name]) for name, values in self.values.items()}
        if self._public:
            return DataSignature("table", self._public)
        for name, column in stats.items():
            if column_problem(column):
                raise self._column_error(name, column, train)
        return DataSignature("table", stats)

    def _column_error(self, name: str, stats: ColumnStats, train: NDArray[np.bool_]) -> InputError:
        """Return an error that says what is wrong with a column, and names the first row that has the problem."""
        first = 0
        for table in self._tables:
            for block in table.blocks([name]):
                rows = np.flatnonzero(train[first : first + len(block)])
                if bad := first_bad_value(block.column(name).take(pa.array(rows)), stats):
                    where = self.describe_row(first + int(rows[bad[0]]))
                    return InputError(f"{where}: column '{name}': {column_problem(stats, bad[1])}")
                first += len(block)
        return InputError(f"{self.source}: column '{name}': {column_problem(stats)}")

    def encode(self, schema: Schema | None) -> torch.Tensor:
        assert isinstance(schema, TableSchema)
        inputs = np.empty((len(self.clients.codes), *schema.shape), np.float32)
        first = 0
        for table in self._tables:
            done = 0  # encoded rows of this table
            for block in table.blocks(schema.names):
                schema.encode(block, table, inputs[first : (first := first + len(block))], first=done)
                done += len(block)
        return torch.from_numpy(inputs)


def _named_codes(blocks: Sequence[pa.DictionaryArray]) -> NamedCodes:
    """Return the words of all blocks as codes, in the order in which they first occur."""
    words = pa.chunked_array(blocks, pa.dictionary(pa.int32(), pa.string())).unify_dictionaries().combine_chunks()
    codes = words.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return NamedCodes(tuple(words.dictionary.to_pylist()), codes.astype(np.int64))
