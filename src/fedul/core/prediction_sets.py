"""Prediction sets: for each row, the smallest set of classes that has a given probability.

The adaptive set of Romano, Sesia and Candès (NeurIPS 2020) without randomisation. A set whose probability is at least
0.9 in every row has more than 0.9 on average, often much more. So the level that each row must reach is chosen lower,
such that sets of held-out rows have the wanted probability on average: they cover the true class as often as stated if
the probabilities are calibrated. No label is needed for this.
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


def coverage_levels(probabilities: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, ...]:
    """Return the levels at which sets have the average probabilities 0.01, 0.02, ... 0.99.

    Parameters
    ----------
    probabilities : ndarray of shape (n, K)
        Class probabilities of rows that were not trained on.
    weights : ndarray of shape (n,)
        Weights of the rows, so that they represent the population.

    Returns
    -------
    tuple of float
        99 levels for `prediction_sets`. Every set has one class at least, so that sets cover more often than wanted if
        the most probable class alone does.

    Examples
    --------
    >>> levels = coverage_levels(np.array([[0.6, 0.4], [0.99, 0.01]]), np.ones(2))
    >>> round(levels[89], 3), round(levels[49], 3)
    (0.6, 0.0)
    """
    ordered = -np.sort(-probabilities, axis=1)
    before = (ordered.cumsum(axis=1) - ordered).ravel()
    mass = (ordered * (weights / weights.sum())[:, None]).ravel()
    order = np.argsort(before, kind="stable")
    reached = np.searchsorted(mass[order].cumsum(), np.arange(1, 100) / 100 - ROUNDING)
    levels = before[order][np.minimum(reached, len(order) - 1)] + 2 * ROUNDING
    return tuple(np.clip(levels, 2 * ROUNDING, 1.0).tolist())


def population_weights(
    probabilities: NDArray[np.float64], mix: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return weights (n,) with which rows of one class mix represent a population with another.

    With the probabilities p(k | x) under the prior of that population, the ratio of the densities of x is
    1 / sum_k (mix_k / prior_k) p(k | x).

    Examples
    --------
    >>> population_weights(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.8, 0.2]), np.array([0.5, 0.5])).tolist()
    [0.625, 2.5]
    """
    weights: NDArray[np.float64] = 1 / np.maximum(probabilities @ (mix / prior), 1e-9)
    return weights


def level_for(coverage: float, levels: Sequence[float]) -> float:
    """Return the level for an average coverage; the coverage itself if there are no levels."""
    check_coverage(coverage)
    if not levels or coverage >= 1:
        return coverage
    return float(np.interp(coverage, np.arange(0, 101) / 100, [2 * ROUNDING, *levels, 1.0]))


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
