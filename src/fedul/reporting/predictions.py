"""Predictions for new rows, block by block: the class, the probability of every class, and prediction sets.

Where each row is a file, an image, the first column is its name.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedul._utils.files import atomic_write, remove_leftovers
from fedul.classifier import Classifier
from fedul.core import Matrix
from fedul.core.prediction_sets import level_for, named_sets
from fedul.data.files.new_rows import RowReader
from fedul.data.files.schema.column_stats import as_words
from fedul.errors import InputError
from fedul.evaluation.class_mix import ClassMix, estimate_class_mix
from fedul.reporting.prediction_file import PARQUET, PredictionColumns, PredictionWriter

Block = tuple[Matrix, pa.RecordBatch | None]
"""Probabilities of some rows (n, K), and the columns that identify them."""


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
    keep : sequence of str
        Columns of the table of rows that the predictions have too.
    coverage : float, optional
        Probability of a prediction set for each row; None for no sets.

    Attributes
    ----------
    mix : ClassMix or None
        The estimated class mix.
    """

    def __init__(
        self,
        classifier: Classifier,
        source: Any,
        *,
        estimate_prior: bool = False,
        keep: Sequence[str] = (),
        coverage: float | None = None,
    ) -> None:
        self.classes = tuple(classifier.classes)
        level = 1.0 if coverage is None else level_for(coverage, classifier.set_levels)
        self._columns = PredictionColumns(self.classes, coverage, level)
        self._columns.check_keep(keep)
        self._rows = RowReader(source, classifier.schema, classifier.site_adjustments, keep=keep)
        self._blocks = _predict_blocks(classifier.without_adjustments(), self._rows)
        self.mix: ClassMix | None = None
        if estimate_prior:
            blocks = list(self._blocks)
            self.mix = estimate_class_mix(np.concatenate([each for each, _ in blocks]), classifier.prior)
            ratio = self.mix.shares / classifier.prior
            self._blocks = ((_shifted(each, ratio), identifiers) for each, identifiers in blocks)

    @property
    def ignored(self) -> list[str]:
        """Columns of a table that are neither features nor copied; complete after reading."""
        return list(self._rows.ignored)

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
            table = PredictionWriter(file, self._columns, parquet=path.suffix.lower() in PARQUET)
            for block in self._blocks:
                table.add(*block)
            table.close()
        return table.rows

    def csv_blocks(self) -> Iterator[str]:
        """Yield all predictions as CSV, block by block."""
        memory = io.BytesIO()
        table = PredictionWriter(memory, self._columns, parquet=False)
        for block in self._blocks:
            table.add(*block)
            yield memory.getvalue().decode()
            memory.seek(0)
            memory.truncate()
        table.close()
        yield memory.getvalue().decode()

    def to_dict(self) -> dict[str, Any]:
        """Return all predictions as JSON-serializable values."""
        blocks = list(self._blocks)
        every = np.concatenate([probabilities for probabilities, _ in blocks])
        document: dict[str, Any] = {
            "rows": len(every),
            "class": [self.classes[k] for k in every.argmax(axis=1)],
            "probabilities": every.tolist(),
        }
        if self._columns.coverage is not None:
            document["sets"] = [list(names) for names in named_sets(every, self.classes, self._columns.level)]
        copied: dict[str, list[Any]] = {}
        for _, identifiers in blocks:
            for name, column in zip(identifiers.schema.names, identifiers.columns, strict=True) if identifiers else ():
                copied.setdefault(name, []).extend(_json_values(column))
        if "file" in copied and not self._rows.keep:
            return {**document, **copied}
        return {**document, "keep": copied} if copied else document


def _predict_blocks(classifier: Classifier, rows: RowReader) -> Iterator[Block]:
    done = 0
    for block in rows.blocks():
        try:
            yield classifier.predict_proba(block.inputs), block.identifiers
        except InputError as problem:
            words = str(problem).split(" ", 2)
            if words[0] != "row" or not words[1].isdigit():
                raise
            raise InputError(f"row {int(words[1]) + done} {words[2]}") from None  # its number among all rows
        done += len(block.inputs)


def _shifted(probabilities: Matrix, ratio: Matrix) -> Matrix:
    """Return probabilities (n, K) for another class mix, whose ratio to theirs is given (K,)."""
    shifted: Matrix = probabilities * ratio
    shifted /= shifted.sum(axis=1, keepdims=True)
    return shifted


def _json_values(column: pa.Array) -> list[Any]:
    """Return the values of a column: numbers, text and truth values as they are, everything else as text."""
    kind = column.type
    if pa.types.is_floating(kind):
        return [value if value is not None and math.isfinite(value) else None for value in column.to_pylist()]
    simple = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind)
    return list((column if simple else as_words(column)).to_pylist())
