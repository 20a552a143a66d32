"""Prediction sets are the smallest sets of classes with the probability that is asked for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedul.core.prediction_sets import coverage_levels, level_for, prediction_sets
from fedul.errors import InputError

NUMBERS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6).filter(lambda values: sum(values) > 0.01)


def as_probabilities(values: list[float]) -> NDArray[np.float64]:
    return np.array([values]) / sum(values)


@given(NUMBERS, st.floats(0.01, 1.0))
def test_a_set_has_the_probability_and_no_smaller_set_has(values: list[float], coverage: float) -> None:
    row = as_probabilities(values)
    chosen = prediction_sets(row, coverage)[0]
    assert row[0, chosen].sum() >= coverage - 1e-8
    size = int(chosen.sum())
    assert size >= 1
    for smaller in itertools.combinations(range(len(values)), size - 1):
        assert row[0, list(smaller)].sum() < coverage + 1e-8


@given(NUMBERS)
def test_sets_grow_with_the_coverage_and_contain_the_most_probable_class(values: list[float]) -> None:
    row = as_probabilities(values)
    sets = [prediction_sets(row, coverage)[0] for coverage in (0.1, 0.5, 0.9, 1.0)]
    assert sets[0][row.argmax()]
    for smaller, larger in itertools.pairwise(sets):
        assert (smaller <= larger).all()


def test_a_probability_that_is_the_coverage_exactly_is_enough() -> None:
    row = np.array([[0.1, 0.2, 0.7]])
    assert prediction_sets(row, 0.7).tolist() == [[False, False, True]]
    assert prediction_sets(row, 0.9).tolist() == [[False, True, True]]  # 0.7 + 0.2 is a little less than 0.9
    assert prediction_sets(row, 1.0).tolist() == [[True, True, True]]


def test_of_classes_that_are_as_probable_the_first_comes_first() -> None:
    assert prediction_sets(np.full((1, 4), 0.25), 0.5).tolist() == [[True, True, False, False]]


def test_a_class_of_probability_0_is_in_no_set() -> None:
    assert prediction_sets(np.array([[0.4, 0.0, 0.6]]), 1.0).tolist() == [[True, False, True]]


def test_calibrated_probabilities_cover_the_true_class_at_least_as_often_as_stated() -> None:
    generator = np.random.default_rng(0)
    rows = generator.dirichlet(np.ones(4), 20_000)
    true = (generator.random((len(rows), 1)) > rows.cumsum(axis=1)).sum(axis=1)
    covered = prediction_sets(rows, 0.9)[np.arange(len(rows)), np.minimum(true, 3)].mean()
    assert 0.9 < covered < 0.97


@pytest.mark.parametrize("coverage", [0.0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_coverage_that_is_no_probability_is_refused(coverage: float) -> None:
    with pytest.raises(InputError, match="coverage: must be above 0 and at most 1"):
        prediction_sets(np.full((1, 2), 0.5), coverage)


@pytest.mark.parametrize("coverage", [0.75, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("concentration", [0.3, 1.0])
def test_levels_make_sets_cover_as_often_as_wanted(coverage: float, concentration: float) -> None:
    """Classes are drawn with the probabilities, so these are calibrated."""
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet([concentration] * 4, 20_000)
    labels = (probabilities.cumsum(axis=1) > generator.uniform(size=(20_000, 1))).argmax(axis=1)
    levels = coverage_levels(probabilities, np.ones(20_000))
    covered = prediction_sets(probabilities, level_for(coverage, levels))[np.arange(20_000), labels].mean()
    assert covered == pytest.approx(max(coverage, (probabilities.argmax(axis=1) == labels).mean()), abs=0.015)


def test_levels_of_reweighted_rows_are_those_of_repeated_rows() -> None:
    rows = np.random.default_rng(1).dirichlet([1, 1, 1], 50)
    weights = np.random.default_rng(2).integers(1, 4, 50)
    repeated = coverage_levels(np.repeat(rows, weights, axis=0), np.ones(int(weights.sum())))
    assert np.allclose(coverage_levels(rows, weights.astype(float)), repeated)


def test_levels_rise_with_the_coverage_and_all_classes_cover_everything() -> None:
    levels = coverage_levels(np.random.default_rng(3).dirichlet([1, 1, 1], 200), np.ones(200))
    assert list(levels) == sorted(levels)
    assert level_for(1.0, levels) == 1.0
    assert level_for(0.9, ()) == 0.9
