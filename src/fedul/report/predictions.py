"""Predictions as a table, written block by block: the class, and the probability of each. CSV or Parquet.

Where each row is a file of its own, an image, its name comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fedul.files import writing
from fedul.priors import Matrix

PARQUET = (".parquet", ".pq")
ENDINGS = (".csv", *PARQUET)
"""Of files that predictions can be written to."""


class PredictionsTable:
    """Takes probabilities (n, K) and writes a row for each, with the name of its file if there are `names`."""

    def __init__(self, file: IO[bytes], classes: Sequence[str], names: Sequence[str] = (), *, parquet: bool) -> None:
        self._classes, self._names = pa.array(classes), names
        columns = [("class", pa.string()), *((f"p({name})", pa.float32()) for name in classes)]
        self._schema = pa.schema([("file", pa.string()), *columns] if names else columns)
        if parquet:
            self._writer = pq.ParquetWriter(file, self._schema)
        else:
            options = pacsv.WriteOptions(quoting_style="needed")
            self._writer = pacsv.CSVWriter(file, self._schema, write_options=options)
        self.rows = 0

    def add(self, probabilities: Matrix) -> None:
        columns = [self._classes.take(pa.array(probabilities.argmax(axis=1)))]
        columns += [pa.array(column.astype("float32")) for column in probabilities.T]
        if self._names:
            columns.insert(0, pa.array(self._names[self.rows : self.rows + len(probabilities)], pa.string()))
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self.rows += len(probabilities)

    def close(self) -> None:
        self._writer.close()


@contextmanager
def predictions_table(path: Path, classes: Sequence[str], names: Sequence[str] = ()) -> Iterator[PredictionsTable]:
    """A table in a file, which is there as a whole at the end of the block or not at all."""
    with writing(path) as file:
        table = PredictionsTable(file, classes, names, parquet=path.suffix.lower() in PARQUET)
        yield table
        table.close()
