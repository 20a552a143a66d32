"""Predictions for new rows, block by block: the class and the probability of every class, as CSV or Parquet.

Where each row is a file, an image, the first column is its name.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fedul._utils.files import atomic_write, remove_leftovers
from fedul.classifier import Classifier
from fedul.core import Matrix
from fedul.data.files.new_rows import RowReader
from fedul.errors import InputError
from fedul.evaluation.class_mix import ClassMix, estimate_class_mix

PARQUET = (".parquet", ".pq")


class Predictions:
    """Predictions for new rows. They are computed while they are read, and can be read once.

    Parameters
    ----------
    classifier : Classifier
        The classifier, for the class mix of the rows.
    source : str, Path or DataFrame
        The rows, as `RowReader` takes them.
    estimate_prior : bool, default=False
        Whether to estimate the class mix from the rows and use it; they are then read at once.

    Attributes
    ----------
    mix : ClassMix or None
        The estimated class mix.
    """

    def __init__(self, classifier: Classifier, source: Any, *, estimate_prior: bool = False) -> None:
        self.classes = tuple(classifier.classes)
        self._rows = RowReader(source, classifier.schema, classifier.site_adjustments)
        self._blocks = _predict_blocks(classifier.without_adjustments(), self._rows)
        self.mix: ClassMix | None = None
        if estimate_prior:
            every = np.concatenate(list(self._blocks))
            self.mix = estimate_class_mix(every, classifier.prior)
            shifted = every * (self.mix.shares / classifier.prior)
            self._blocks = iter([shifted / shifted.sum(axis=1, keepdims=True)])

    @property
    def unseen(self) -> Mapping[str, int]:
        """By column, the number of rows with a value that did not occur in training; complete after reading."""
        return self._rows.unseen

    @property
    def unknown_sites(self) -> int:
        """Number of rows that got the mean adjustment of all sites; complete after reading."""
        return self._rows.unknown_sites

    @property
    def estimated_prior(self) -> dict[str, dict[str, float]]:
        """The estimated share of each class, with its 95 % interval; empty if it was not estimated."""
        if self.mix is None:
            return {}
        columns = zip(self.classes, *(m.tolist() for m in (self.mix.shares, self.mix.low, self.mix.high)), strict=True)
        return {name: {"share": share, "low": low, "high": high} for name, share, low, high in columns}

    def write(self, path: Path) -> int:
        """Write all predictions to a CSV or Parquet file, which is complete or absent; return the number of rows."""
        remove_leftovers(path.parent, below=False, older_than=24 * 3600)
        with atomic_write(path) as file:
            table = _TableWriter(file, self.classes, self._rows.names, parquet=path.suffix.lower() in PARQUET)
            for block in self._blocks:
                table.add(block)
            table.close()
        return table.rows

    def csv_blocks(self) -> Iterator[str]:
        """Yield all predictions as CSV, block by block."""
        memory = io.BytesIO()
        table = _TableWriter(memory, self.classes, self._rows.names, parquet=False)
        for block in self._blocks:
            table.add(block)
            yield memory.getvalue().decode()
            memory.seek(0)
            memory.truncate()
        table.close()
        yield memory.getvalue().decode()

    def to_dict(self) -> dict[str, Any]:
        """Return all predictions as JSON-serializable values."""
        every = [row for block in self._blocks for row in block.tolist()]
        names = {"file": self._rows.names} if self._rows.names else {}
        classes = [self.classes[row.index(max(row))] for row in every]
        return {"rows": len(every), "class": classes, "probabilities": every, **names}


def check_output(out: Path, source: Path) -> None:
    """Refuse a file for predictions that would overwrite the rows, or whose ending is of another format."""
    if out.exists() and source.exists() and out.samefile(source):
        raise InputError(f"{out}: is the file with the rows; choose another --out.")
    if out.suffix.lower() not in (".csv", *PARQUET):
        raise InputError(
            f"{out}: predictions are CSV or Parquet; name a file that ends in .csv or .parquet with --out."
        )


def _predict_blocks(classifier: Classifier, rows: RowReader) -> Iterator[Matrix]:
    done = 0
    for block in rows:
        try:
            yield classifier.predict_proba(block)
        except InputError as problem:
            words = str(problem).split(" ", 2)
            if words[0] != "row" or not words[1].isdigit():
                raise
            raise InputError(f"row {int(words[1]) + done} {words[2]}") from None  # its number among all rows
        done += len(block)


class _TableWriter:
    """Writes one row for each row of probabilities (n, K), with the name of its file if there are `names`."""

    def __init__(self, file: IO[bytes], classes: Sequence[str], names: Sequence[str], *, parquet: bool) -> None:
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
