"""Rows to classify, block by block, in the form that a classifier takes: tables, images, or arrays."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul.data.rows import read_rows
from fedul.errors import InputError
from fedul.schema import Schema
from fedul.schema.images import ImageSchema
from fedul.schema.table import Number, TableSchema

IMAGES_AT_ONCE = 1024


class NewRows:
    """The rows of a file or folder; `unseen` counts, by column, the values that were not there in training."""

    def __init__(self, path: Path, schema: Schema | None) -> None:
        self._path, self._schema = path, schema
        self.unseen: Counter[str] = Counter()

    def __iter__(self) -> Iterator[NDArray[Any]]:
        if not self._path.exists():
            raise InputError(f"{self._path}: there is no such file.")
        if isinstance(self._schema, TableSchema):
            yield from self._of_tables(self._schema)
        elif isinstance(self._schema, ImageSchema) and self._files:
            for first in range(0, len(self._files), IMAGES_AT_ONCE):
                yield self._images(self._files[first : first + IMAGES_AT_ONCE], self._schema)
        else:
            yield read_rows(self._path)

    def _of_tables(self, schema: TableSchema) -> Iterator[NDArray[Any]]:
        from fedul.data.number_marks import check_points
        from fedul.data.tables import open_table, table_paths

        files = [open_table(path) for path in table_paths(str(self._path))]
        for file in files:
            check_points(file, [column.name for column in schema.columns if isinstance(column, Number)])
        rows = 0
        for file in files:
            done = 0
            for block in file.blocks(schema.names):
                columns = {name: block.column(name) for name in schema.names}
                inputs, unseen = schema.encode(columns, str(file.path), first=done)
                self.unseen.update(unseen)
                done += len(inputs)
                yield inputs
            rows += done
        if not rows:
            raise InputError(f"{self._path}: holds no rows.")

    def _images(self, files: list[Path], schema: ImageSchema) -> NDArray[Any]:
        from fedul.data.images import read_image

        return np.stack([read_image(file, schema) for file in files])

    @cached_property
    def _files(self) -> list[Path]:
        """The files of images, in the order of the rows; none where rows are of another kind."""
        from fedul.data.images import image_files

        if not isinstance(self._schema, ImageSchema) or self._path.suffix.lower() in (".npy", ".npz"):
            return []
        return image_files(self._path)

    @property
    def names(self) -> list[str]:
        """The file of each row, from the folder on that was named; empty where rows have no file of their own."""
        if not self._path.is_dir():
            return [_safe(file.name) for file in self._files]
        return [_safe(str(file.relative_to(self._path))) for file in self._files]


def _safe(name: str) -> str:
    """A path as text that no spreadsheet takes for a formula; it names the same file."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return f"./{text}" if text[0] in "=+-@\t\r" else text
