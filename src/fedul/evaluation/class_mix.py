"""Class mix of a population from a classifier's probabilities of its rows, without labels.

Maximum likelihood by EM: Saerens, Latinne and Decaestecker, Adjusting the outputs of a classifier to new a priori
probabilities, Neural Computation 2002. The estimate is as good as the probabilities are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedul.core import Z_95, Matrix
from fedul.errors import InputError

MAX_STEPS, TOLERANCE = 10_000, 1e-9


@dataclass(frozen=True, eq=False)
class ClassMix:
    """Estimated shares (K,) of the classes, with a 95 % interval for the sampling of rows."""

    shares: Matrix
    low: Matrix
    high: Matrix


def estimate_class_mix(probabilities: Matrix, prior: Matrix) -> ClassMix:
    """Estimate the class mix under which rows with these probabilities (n, K), made for `prior`, are most likely.

    Examples
    --------
    >>> sure = np.repeat(np.eye(2), [30, 10], axis=0)
    >>> estimate_class_mix(sure, np.array([0.5, 0.5])).shares
    array([0.75, 0.25])
    """
    if not len(probabilities):
        raise InputError("there are no rows to estimate the class mix from; give some.")
    ratios = probabilities / prior  # (n, K): p(x | k) up to a factor per row
    shares = np.full(len(prior), 1 / len(prior))
    for _ in range(MAX_STEPS):
        weights = ratios * shares
        weights /= weights.sum(axis=1, keepdims=True)
        before, shares = shares, weights.mean(axis=0)
        if np.abs(shares - before).max() < TOLERANCE:
            break
    error = Z_95 * _standard_errors(ratios, shares)
    return ClassMix(shares, np.clip(shares - error, 0, 1), np.clip(shares + error, 0, 1))


def _standard_errors(ratios: Matrix, shares: Matrix) -> Matrix:
    """Standard errors from the observed information, along directions in which shares still sum to one."""
    classes = len(shares)
    scaled = ratios / (ratios @ shares)[:, None]
    information = scaled.T @ scaled  # (K, K)
    basis = np.linalg.svd(np.ones((1, classes)))[2][1:].T  # (K, K - 1), orthogonal to ones
    covariance = basis @ np.linalg.pinv(basis.T @ information @ basis) @ basis.T
    errors: Matrix = np.sqrt(np.maximum(np.diag(covariance), 0))
    return errors
