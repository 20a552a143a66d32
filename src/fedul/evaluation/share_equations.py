"""Confusion matrix C by least squares from ``predicted shares of set m = Pi_m C``.

Without constraints: a non-negative solution would turn the noise of small cells into errors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedul.core import Matrix
from fedul.evaluation.responsibilities import PredictionTable

UNDETERMINED = 1e6
"""Standard error of what the sets do not determine."""


def solve_confusion(table: PredictionTable, priors: Matrix, soft: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return C by least squares, its standard errors, and the weight of each set in C_kk (S, K)."""
    classes, shares = table.classes, table.shares()
    near = (100 * soft + 1 / classes) / 101  # no variance is zero
    values, errors = np.zeros((classes, classes)), np.zeros((classes, classes))
    gains = np.zeros((len(priors), classes))
    for j in range(classes):
        spread = np.where(table.exact, priors @ (near[:, j] * (1 - near[:, j])), _binomial(priors @ near[:, j]))
        weight = table.counts / spread
        inverse, known = _inverse((priors * weight[:, None]).T @ priors)
        gain = inverse @ (priors * weight[:, None]).T  # (K, S)
        values[:, j] = np.where(known, gain @ shares[:, j], soft[:, j])
        errors[:, j] = np.where(known, np.sqrt(np.diag(inverse)), UNDETERMINED)
        gains[:, j] = gain[j] if known[j] else 0.0
    return values, errors, gains


def _binomial(share: Matrix) -> Matrix:
    return share * (1 - share)


def _inverse(gram: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return the pseudo-inverse, and which unknowns the equations determine."""
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    real = values > 1e-9 * values[-1]
    basis = vectors[:, real]
    known = np.square(vectors[:, ~real]).sum(axis=1) < 1e-6
    return basis / values[real] @ basis.T / np.outer(scale, scale), known


def covariance_of_diagonal(
    table: PredictionTable, priors: Matrix, soft: Matrix, shares: Matrix, gains: Matrix
) -> tuple[Matrix, float]:
    """Return the covariance of the solved diagonal, and the factor by which rows in several sets widen it.

    A row adds gain_mj (1[predicted j] - expected), summed over its sets. Expected is C_kj where the class counts are
    exact, so that only the prediction is random, and Pi_m C_j where the class mix of the rows is random too.
    """
    classes = table.classes
    order = np.argsort(table.rows, kind="stable")
    starts = np.flatnonzero(np.diff(table.rows[order], prepend=-1))
    unique = len(starts) == len(order)
    weight = shares if unique else np.add.reduceat(shares[order], starts) / np.diff(starts, append=len(order))[:, None]
    per_row = (gains / np.maximum(table.counts, 1)[:, None])[table.sets]  # (n, K)
    of_sets = priors @ soft
    total, separate = np.zeros((classes, classes)), 0.0
    for k in range(classes):
        expected = np.where(table.exact[:, None], soft[k], of_sets)[table.sets]
        added = -expected * per_row
        added[np.arange(len(added)), table.predicted] += per_row[np.arange(len(added)), table.predicted]
        separate += float((shares[:, k] * np.square(added).sum(axis=1)).sum())
        if not unique:
            added = np.add.reduceat(added[order], starts)
        total += (added * weight[:, k : k + 1]).T @ added
    unknown = ~gains.any(axis=0)
    total[unknown, unknown] = UNDETERMINED**2
    known = float(np.diag(total)[~unknown].sum())
    return total, 1.0 if unique or separate <= 0 else max(1.0, float(np.sqrt(known / separate)))
