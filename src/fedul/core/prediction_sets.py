"""Prediction sets: for each row, the smallest set of classes that has a given probability.

The adaptive set of Romano, Sesia and Candès (NeurIPS 2020) without randomisation and without a calibration step: it
covers the true class as often as stated if the probabilities are calibrated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedul.errors import InputError

ROUNDING = 1e-9
"""Sums of probabilities that differ by less are equal."""


def prediction_sets(probabilities: NDArray[np.float64], coverage: float) -> NDArray[np.bool_]:
    """Return for each row the smallest set of classes whose probabilities sum to at least `coverage`.

    Classes are added from the most to the least probable one; of equal ones the first comes first.

    Parameters
    ----------
    probabilities : ndarray of shape (n, K)
        Class probabilities of the rows.
    coverage : float
        Probability that a set shall have: above 0, at most 1.

    Returns
    -------
    ndarray of shape (n, K)
        Whether a class is in the set of a row. Every set has at least one class.

    Raises
    ------
    InputError
        If the coverage is not a probability above 0.

    Examples
    --------
    >>> prediction_sets(np.array([[0.05, 0.7, 0.25], [0.01, 0.95, 0.04]]), 0.9)
    array([[False,  True,  True],
           [False,  True, False]])
    """
    check_coverage(coverage)
    order = np.argsort(-probabilities, axis=1, kind="stable")  # (n, K)
    ordered = np.take_along_axis(probabilities, order, axis=1)
    before = ordered.cumsum(axis=1) - ordered  # probability of the more probable classes
    sets = np.zeros(probabilities.shape, dtype=bool)
    np.put_along_axis(sets, order, before < coverage - ROUNDING, axis=1)
    return sets


def check_coverage(coverage: float) -> None:
    """Raise an InputError unless a coverage is above 0 and at most 1."""
    if not ROUNDING < coverage <= 1:
        raise InputError(f"coverage: must be above 0 and at most 1, got {coverage:g}; give for example 0.9.")


def named_sets(probabilities: NDArray[np.float64], classes: Sequence[str], coverage: float) -> list[tuple[str, ...]]:
    """Return the prediction sets of rows as names of classes, the most probable one first.

    >>> named_sets(np.array([[0.05, 0.7, 0.25]]), ["cold", "flu", "pneumonia"], 0.9)
    [('flu', 'pneumonia')]
    """
    sizes = prediction_sets(probabilities, coverage).sum(axis=1)
    order = np.argsort(-probabilities, axis=1, kind="stable")
    return [tuple(classes[k] for k in row[:size]) for row, size in zip(order.tolist(), sizes.tolist(), strict=True)]
