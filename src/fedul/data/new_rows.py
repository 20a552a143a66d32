"""Rows to classify, block by block, in the form that a classifier takes: tables, images, or arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul.data.rows import read_rows
from fedul.errors import InputError
from fedul.schema import Schema
from fedul.schema.images import ImageSchema
from fedul.schema.table import TableSchema

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
        elif isinstance(self._schema, ImageSchema) and self._path.suffix.lower() not in (".npy", ".npz"):
            yield from self._of_images(self._schema)
        else:
            yield read_rows(self._path)

    def _of_tables(self, schema: TableSchema) -> Iterator[NDArray[Any]]:
        from fedul.data.tables import open_table, table_paths

        rows = 0
        for path in table_paths(str(self._path)):
            file = open_table(path)
            for block in file.blocks(schema.names):
                columns = {name: block.column(name) for name in schema.names}
                inputs, unseen = schema.encode(columns, str(path))
                self.unseen.update(unseen)
                rows += len(inputs)
                yield inputs
        if not rows:
            raise InputError(f"{self._path}: holds no rows.")

    def _of_images(self, schema: ImageSchema) -> Iterator[NDArray[Any]]:
        from fedul.data.images import image_files, read_image

        files = image_files(self._path)
        for first in range(0, len(files), IMAGES_AT_ONCE):
            yield np.stack([read_image(file, schema) for file in files[first : first + IMAGES_AT_ONCE]])
