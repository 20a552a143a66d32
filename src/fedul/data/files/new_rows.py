"""Rows to classify, read block by block and encoded as in training: tables, images or arrays."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fedul.core import Schema, SiteAdjustments
from fedul.data.files.array_file import read_array_file
from fedul.data.files.image_collection import image_files, read_image
from fedul.data.files.memory_table import as_table, is_dataframe
from fedul.data.files.schema import ImageSchema
from fedul.data.files.schema.column_stats import as_words
from fedul.data.files.schema.table import Number, TableSchema
from fedul.data.files.tables import Table, open_tables
from fedul.data.files.thousands import check_thousands_points
from fedul.errors import InputError

IMAGES_PER_BLOCK = 1024
INDEX = "Unnamed: 0"
"""Name of a first column that has none, as pandas calls it."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows: `inputs` encoded for the classifier (n, ...), and `identifiers`, columns to copy, if any."""

    inputs: NDArray[Any]
    identifiers: pa.RecordBatch | None = None


class RowReader:
    """Iterator over blocks of encoded rows.

    Parameters
    ----------
    source : str, Path or DataFrame
        A table file, a folder or pattern of tables, an image or a folder of images, an array file, or a DataFrame.
    schema : Schema or None
        How rows were encoded in training; None where they were arrays.
    adjustments : SiteAdjustments, optional
        Adjustments of the sites, which rows get after encoding.
    client : str, optional
        Client of all rows. Without it, a table may name the client of each row, and other rows get the mean adjustment.
    keep : sequence of str
        Columns of a table to copy next to the rows, such as an identifier.

    Attributes
    ----------
    ignored : dict of str to None
        Columns of a table that are neither features nor copied, in their order. Filled while iterating.
    unseen : Counter of str
        By column, the number of values that did not occur in training. Filled while iterating.
    unknown_sites : int
        Number of rows that got the mean adjustment of several sites. Filled while iterating.
    """

    def __init__(
        self,
        source: Any,
        schema: Schema | None,
        adjustments: SiteAdjustments | None = None,
        client: str | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        if keep and not isinstance(schema, TableSchema):
            raise InputError(
                "keep: copies columns of a table, but this classifier takes images or arrays; leave it out."
            )
        self._table = as_table(source, "rows") if is_dataframe(source) else None
        self._path = Path("rows" if self._table else source).expanduser()
        self._schema, self._adjustments, self._client, self.keep = schema, adjustments, client, tuple(keep)
        self.ignored: dict[str, None] = {}
        self.unseen: Counter[str] = Counter()
        self.unknown_sites = 0

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (block.inputs for block in self.blocks())

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the encoded rows with the columns that identify them: those to copy, or the file of an image."""
        if isinstance(self._schema, TableSchema):
            yield from self._table_blocks(self._schema)
        elif self._table is not None:
            raise InputError("rows: this classifier was not trained on a table; give arrays, or images as files.")
        elif not self._path.exists():
            raise InputError(f"{self._path}: there is no such file; correct the path.")
        elif isinstance(self._schema, ImageSchema) and self._files:
            for first in range(0, len(self._files), IMAGES_PER_BLOCK):
                files = self._files[first : first + IMAGES_PER_BLOCK]
                inputs = np.stack([read_image(file, self._schema) for file in files])
                names = pa.array([self._name(file) for file in files], pa.string())
                yield RowBlock(inputs, pa.RecordBatch.from_arrays([names], names=["file"]))
        else:
            rows = read_array_file(self._path)
            yield RowBlock(rows if self._adjustments is None else self._adjusted(rows, [self._client] * len(rows)))

    def _table_blocks(self, schema: TableSchema) -> Iterator[RowBlock]:
        tables = open_tables(self._table or str(self._path), index=INDEX)
        for table in tables:
            check_thousands_points(table, [column.name for column in schema.columns if isinstance(column, Number)])
        rows = 0
        for table in tables:
            done = 0
            key = self._client_column(table)
            used = [*schema.names, *key]
            self.ignored |= dict.fromkeys(name for name in table.columns if name not in {*used, *self.keep})
            for block in table.blocks(used, verbatim=[name for name in self.keep if name not in used]):
                inputs, unseen = schema.encode(block, table, first=done)
                self.unseen.update(unseen)
                done += len(inputs)
                if self._adjustments is not None:
                    clients = as_words(block.column(key[0])).to_pylist() if key else [self._client] * len(inputs)
                    inputs = self._adjusted(inputs, clients)
                    for place in schema.number_places():  # a missing value is the mean, also without an indicator
                        absent = block.column(schema.column_at(place).name).is_null(nan_is_null=True)
                        inputs[np.asarray(absent), place] = 0
                yield RowBlock(inputs, block.select(list(self.keep)) if self.keep else None)
            rows += done
        if not rows:
            raise InputError(f"{self._path}: holds no rows; give a table with rows.")

    def _client_column(self, table: Table) -> list[str]:
        """Return the column of a table that names the client of each row, if it is needed and there is one."""
        name = self._adjustments.client_column if self._adjustments is not None and self._client is None else None
        return [name] if name in table.columns else []

    def _adjusted(self, inputs: NDArray[Any], clients: Sequence[str | None]) -> NDArray[Any]:
        """Return encoded rows (n, D) in units of their sites."""
        assert self._adjustments is not None
        sites = self._adjustments.sites
        if self._client is not None:
            self._adjustments.of(self._client)  # refuses a name that it does not know
        self.unknown_sites += sum(client not in sites for client in clients) if len(sites) > 1 else 0
        return self._adjustments.apply(torch.from_numpy(inputs).flatten(1), clients).numpy()

    @cached_property
    def _files(self) -> list[Path]:
        """The image files in the order of the rows; empty if rows are not images."""
        if not isinstance(self._schema, ImageSchema) or self._path.suffix.lower() in (".npy", ".npz"):
            return []
        return image_files(self._path)

    def _name(self, file: Path) -> str:
        """Return an image file relative to the folder that was given."""
        return _safe_name(str(file.relative_to(self._path)) if self._path.is_dir() else file.name)


def unknown_sites_message(rows: int) -> str:
    """Return the warning that rows got the mean adjustment of all sites."""
    are = "1 row is" if rows == 1 else f"{rows:,} rows are"
    return f"{are} of no known site and adjusted by the mean of all sites; name the site, or give the client column"


def _safe_name(name: str) -> str:
    """Return a path as text that a spreadsheet does not take for a formula; it names the same file."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return f"./{text}" if text[0] in "=+-@\t\r" else text
