"""Coverage of prediction sets, estimated without labels on sets left out of training."""

from __future__ import annotations

import numpy as np

from fedul.core import Matrix
from fedul.core.prediction_sets import coverage_levels, level_for, population_weights, prediction_sets
from fedul.evaluation.document import PredictionSetCheck
from fedul.evaluation.responsibilities import PredictionTable

COVERAGES = (0.8, 0.9, 0.95)


def check_prediction_sets(
    table: PredictionTable, priors: Matrix, responsibilities: Matrix, temperature: float
) -> tuple[PredictionSetCheck, ...]:
    """Return how often prediction sets contain the true class, by the responsibilities (n, K) of rows.

    Models of folds are trained without a temperature, which the delivered classifier has; it is applied here.
    """
    prior = np.log(table.test_prior)
    logs = (table.log_probabilities - prior) / temperature + prior
    probabilities = np.exp(logs - logs.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    mix = table.counts @ priors / table.counts.sum()
    weights = population_weights(probabilities, mix, table.test_prior)
    levels = coverage_levels(probabilities, weights)
    of_class = np.maximum(responsibilities.sum(axis=0), 1e-12)
    checks = []
    for coverage in COVERAGES:
        sets = prediction_sets(probabilities, level_for(coverage, levels))
        covered = (responsibilities * sets).sum(axis=0) / of_class  # (K,): of rows of each class
        size = float(weights @ sets.sum(axis=1) / weights.sum())
        checks.append(PredictionSetCheck(coverage, float(table.test_prior @ covered), size))
    return tuple(checks)
