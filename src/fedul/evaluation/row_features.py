"""Features that describe rows to the assumption test: the inputs of a table, or principal components of images.

They do not depend on a model, so that models which recognise sets, or differ between folds, cannot affect the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedul.core import Matrix, Scaling, Schema, gather_rows
from fedul.data.files.schema.table import TableSchema

COMPONENTS = 8
"""Principal components that describe a row of an image or of a wide array."""

MAX_PLAIN_INPUTS = 16
"""Inputs of an array without column names that are compared as they are."""

MAX_INPUTS = 64
"""Inputs of a table that are compared, those with the largest variance first."""

BLOCK = 1024
"""Rows that are read at a time, and rows from which the components are computed."""


@dataclass(frozen=True, eq=False)
class RowFeatures:
    """Affine map from rows to features.

    Parameters
    ----------
    scaling : Scaling
        Map from stored inputs to network inputs.
    mean : ndarray of shape (D,)
        Mean row.
    directions : ndarray of shape (D, d)
        One column for each feature.
    columns : tuple of str
        Column of the table that each feature belongs to; empty where rows are not those of a table.
    """

    scaling: Scaling
    mean: Matrix
    directions: Matrix
    columns: tuple[str, ...] = ()

    @classmethod
    def fit(cls, sample: Sequence[tuple[Tensor, Tensor]], scaling: Scaling, schema: Schema | None) -> RowFeatures:
        """Choose the features from a sample of rows: inputs, and the places of rows in them."""
        batches = list(gather_rows(sample, BLOCK))
        rows = np.concatenate([_flat(scaling, batch) for batch in batches])
        mean, deviations = rows.mean(axis=0), rows.std(axis=0)
        if isinstance(schema, TableSchema):
            chosen = np.sort(np.argsort(-deviations, kind="stable")[:MAX_INPUTS])
            columns = tuple(schema.column_at(int(place)).name for place in chosen)
            return cls(scaling, mean, np.eye(len(mean))[:, chosen], columns)
        if batches[0].dim() == 2 and len(mean) <= MAX_PLAIN_INPUTS:
            return cls(scaling, mean, np.eye(len(mean)))
        # By the Gram matrix of rows: a row may have many more values than there are rows here.
        values, vectors = np.linalg.eigh((rows - mean) @ (rows - mean).T)
        values, vectors = values[::-1][:COMPONENTS], vectors[:, ::-1][:, :COMPONENTS]
        real = values > 1e-9 * values[0]
        return cls(scaling, mean, (rows - mean).T @ vectors[:, real] / values[real] * np.sqrt(len(rows)))

    def __call__(self, rows: Tensor) -> Matrix:
        features: Matrix = (_flat(self.scaling, rows) - self.mean) @ self.directions
        return features


def _flat(scaling: Scaling, rows: Tensor) -> Matrix:
    flat: Matrix = scaling(rows).double().flatten(1).cpu().numpy()
    return flat
