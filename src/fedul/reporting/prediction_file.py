"""The file of predictions: which file may be written, and its rows as CSV or Parquet."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fedul.core import Matrix
from fedul.core.prediction_sets import named_sets
from fedul.data.files.tables import open_table
from fedul.errors import InputError

PARQUET = (".parquet", ".pq")
CLASS = "class"
BETWEEN = "|"
"""Separates the classes of a prediction set."""


@dataclass(frozen=True)
class PredictionColumns:
    """Columns of a table of predictions.

    Parameters
    ----------
    classes : tuple of str
        Names of the classes.
    coverage : float or None
        Probability of the prediction sets; None if there are none.
    level : float
        Level of the prediction sets (`fedul.core.prediction_sets.level_for`).
    """

    classes: tuple[str, ...]
    coverage: float | None = None
    level: float = 1.0

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        sets = [] if self.coverage is None else [(f"set({self.coverage:g})", pa.string())]
        shares = [(_probability(name), pa.float32()) for name in self.classes]
        return pa.schema([(CLASS, pa.string()), *sets, *shares])

    def table(self, probabilities: Matrix) -> pa.Table:
        """Return the predictions of rows with these probabilities (n, K)."""
        columns = [pa.array(self.classes).take(pa.array(probabilities.argmax(axis=1)))]
        if self.coverage is not None:
            sets = named_sets(probabilities, self.classes, self.level)
            columns.append(pa.array([BETWEEN.join(names) for names in sets], pa.string()))
        columns += [pa.array(column.astype("float32")) for column in probabilities.T]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def check_keep(self, names: Sequence[str]) -> None:
        """Refuse columns to copy that are given twice, or are named as a column of the predictions."""
        for number, name in enumerate(names):
            if name in self.schema.names:
                raise InputError(f"keep: '{name}' is also a column of the predictions; rename it, or leave it out.")
            if name in names[:number]:
                raise InputError(f"keep: '{name}' is given twice; give it once.")


class PredictionWriter:
    """Writes predictions, after the columns that identify the rows, as CSV or Parquet."""

    def __init__(self, file: IO[bytes], columns: PredictionColumns, *, parquet: bool) -> None:
        self._file, self._columns, self._parquet = file, columns, parquet
        self._writer: pq.ParquetWriter | pacsv.CSVWriter | None = None
        self._schema: pa.Schema | None = None
        self.rows = 0

    def add(self, probabilities: Matrix, identifiers: pa.RecordBatch | None) -> None:
        """Write the predictions of rows with these probabilities (n, K)."""
        table = self._columns.table(probabilities)
        if identifiers is not None:
            columns = [*identifiers.columns, *table.columns]
            table = pa.Table.from_arrays(columns, names=[*identifiers.schema.names, *table.column_names])
        try:
            if self._writer is None:
                self._schema = table.schema
                self._writer = self._open(table.schema)
            self._writer.write_table(table.cast(self._schema))  # tables of one folder may differ in their types
        except pa.ArrowException as problem:
            raise InputError(
                f"keep: a column cannot be written ({str(problem).splitlines()[0][:100]}); leave it out."
            ) from None
        self.rows += len(probabilities)

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter | pacsv.CSVWriter:
        if self._parquet:
            return pq.ParquetWriter(self._file, schema)
        return pacsv.CSVWriter(self._file, schema, write_options=pacsv.WriteOptions(quoting_style="needed"))

    def close(self) -> None:
        """Complete the file."""
        (self._writer or self._open(self._columns.schema)).close()


def check_output(out: Path, source: Path | None, inputs: Iterable[str] = (), *, force: bool = False) -> None:
    """Refuse a file for predictions that would overwrite something else, or whose ending is of another format.

    An earlier file of predictions is replaced.

    Parameters
    ----------
    out : Path
        The file to write.
    source : Path or None
        The rows to classify: a file, a folder or a pattern; None for standard input.
    inputs : iterable of str
        Files that the run was trained on. They are never replaced.
    force : bool, default=False
        Whether a file that does not hold predictions may be replaced.
    """
    if source is not None and _is_among(out, source):
        raise InputError(f"{out}: is the file with the rows, or is read with them; choose another --out.")
    if any(_is_among(out, Path(each)) for each in inputs):
        raise InputError(f"{out}: belongs to the data that the run was trained on; choose another --out.")
    if out.suffix.lower() not in (".csv", *PARQUET):
        raise InputError(
            f"{out}: predictions are CSV or Parquet; name a file that ends in .csv or .parquet with --out."
        )
    if out.is_file() and not force and not _holds_predictions(out):
        raise InputError(f"{out}: exists and holds no predictions; choose another --out, or replace it with --force.")


def _is_among(out: Path, source: Path) -> bool:
    """Return whether a file is, or would be, one of those that a file, folder or pattern stands for."""
    place = out.resolve()
    if source.is_dir():
        return place.parent == source.resolve()
    if not source.exists() and glob.has_magic(str(source)):
        return place.parent == source.parent.resolve() and place.match(source.name)
    return place == source.resolve()


def _holds_predictions(file: Path) -> bool:
    try:
        columns = open_table(file).columns
    except InputError:
        return file.stat().st_size == 0
    return CLASS in columns and any(name.startswith("p(") and name.endswith(")") for name in columns)


def _probability(name: str) -> str:
    return f"p({name})"
