"""The class mix of a population from a classifier's probabilities of its rows, without a label.

Maximum likelihood by EM: Saerens, Latinne and Decaestecker, Adjusting the outputs of a classifier to new a priori
probabilities, Neural Computation 2002. Right as far as the probabilities are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedul.errors import InputError
from fedul.priors import Matrix

STEPS, CLOSE = 10_000, 1e-9
NORMAL_95 = 1.959964


@dataclass(frozen=True, eq=False)
class ClassMix:
    """Estimated shares (K,) of the classes, with a 95 % interval for the sampling of rows."""

    shares: Matrix
    low: Matrix
    high: Matrix


def estimated_mix(probabilities: Matrix, prior: Matrix) -> ClassMix:
    """The class mix under which rows with these probabilities (n, K), made for `prior`, are most likely.

    >>> sure = np.repeat(np.eye(2), [30, 10], axis=0)
    >>> estimated_mix(sure, np.array([0.5, 0.5])).shares
    array([0.75, 0.25])
    """
    if not len(probabilities):
        raise InputError("there are no rows to estimate the class mix from; give some.")
    ratios = probabilities / prior  # (n, K): p(x | k) up to a factor a row
    shares = np.full(len(prior), 1 / len(prior))
    for _ in range(STEPS):
        weights = ratios * shares
        weights /= weights.sum(axis=1, keepdims=True)
        before, shares = shares, weights.mean(axis=0)
        if np.abs(shares - before).max() < CLOSE:
            break
    error = NORMAL_95 * _standard_errors(ratios, shares)
    return ClassMix(shares, np.clip(shares - error, 0, 1), np.clip(shares + error, 0, 1))


def _standard_errors(ratios: Matrix, shares: Matrix) -> Matrix:
    """From the observed information of the log-likelihood, along directions in which shares still sum to one."""
    classes = len(shares)
    scaled = ratios / (ratios @ shares)[:, None]
    information = scaled.T @ scaled  # (K, K)
    basis = np.linalg.svd(np.ones((1, classes)))[2][1:].T  # (K, K - 1), orthogonal to ones
    covariance = basis @ np.linalg.pinv(basis.T @ information @ basis) @ basis.T
    errors: Matrix = np.sqrt(np.maximum(np.diag(covariance), 0))
    return errors
