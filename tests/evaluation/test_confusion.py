from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedul.evaluation.confusion import ConfusionModel, Solution
from fedul.evaluation.responsibilities import count_confusion, estimate_responsibilities, flatten

from .mixtures import mixture


def model(seed: int, **options: object) -> ConfusionModel:
    table, priors = flatten(mixture(seed, exact=False, **options).predictions)
    shares = estimate_responsibilities(table, priors, 1.0)
    soft = count_confusion(table, shares)
    return ConfusionModel(table, priors, shares, soft, np.zeros_like(soft))


def test_without_calibration_error_the_probabilities_decide() -> None:
    equations = model(0)
    assert np.allclose(Solution.of(equations, 1e-6, 1e-6).values, equations.soft, atol=1e-6)


def test_with_any_calibration_error_it_is_weighted_least_squares() -> None:
    equations = model(1)
    near = (100 * equations.soft + 1 / 4) / 101
    expected = np.zeros((4, 4))
    for j in range(4):
        share = equations.priors @ near[:, j]
        weight = np.sqrt(equations.table.counts / (share * (1 - share)))
        expected[:, j] = np.linalg.lstsq(
            equations.priors * weight[:, None], equations.table.shares()[:, j] * weight, rcond=None
        )[0]
    assert np.allclose(Solution.of(equations, 1e4, 1e4).values, expected, atol=1e-4)


def test_accuracy_is_the_diagonal_at_the_class_mix_and_linear_in_it() -> None:
    equations = model(2)
    first, second = np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.1, 0.1, 0.2, 0.6])
    values = [equations.accuracy(prior).value for prior in (first, second, (first + second) / 2)]
    assert values[0] == pytest.approx(first @ np.diag(equations.values))
    assert values[2] == pytest.approx((values[0] + values[1]) / 2)


def test_gains_are_the_derivative_of_the_accuracy() -> None:
    """The variance from rows is that of a linear estimate: move the shares and compare."""
    equations, prior = model(3), np.full(4, 0.25)
    solution = Solution.of(equations, 0.3)
    before = solution.accuracy(prior).value
    moved = equations.table.predicted.copy()
    chosen = np.flatnonzero(equations.table.sets == 5)[:3]
    moved[chosen] = (moved[chosen] + 1) % 4
    after = Solution.of(replace(equations, table=replace(equations.table, predicted=moved)), 0.3).accuracy(prior).value
    own = solution.gain[np.arange(4), np.arange(4)]
    expected = equations.priors @ solution.errors
    of_t = prior @ (np.diag(solution.errors) - (own * expected.T).sum(axis=1))
    gains = own.T * prior + of_t * solution.slope
    change = (np.eye(4)[moved[chosen]] - np.eye(4)[equations.table.predicted[chosen]]) @ gains[5] / 60
    assert after - before == pytest.approx(change.sum(), rel=1e-6)


def test_variation_between_sets_enters_the_variance() -> None:
    """Sets whose predictions are moved at random have a larger variance by sets than by rows."""
    equations, generator = model(4, rows=200), np.random.default_rng(0)
    table = equations.table
    flip = generator.uniform(0, 0.4, len(table.counts))[table.sets] > generator.uniform(size=len(table.sets))
    moved = np.where(flip, 0, table.predicted)
    calm, wild = equations, replace(equations, table=replace(table, predicted=moved))
    prior = np.full(4, 0.25)
    assert calm.accuracy(prior).sets < 2 * calm.accuracy(prior).rows
    assert wild.accuracy(prior).sets > 3 * wild.accuracy(prior).rows
