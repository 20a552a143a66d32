"""Sensitivity of predictions to the priors: none for exact priors, otherwise as Bayes' rule gives it."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from fedul.core import Matrix
from fedul.evaluation.prior_sensitivity import _SetExplanation, prior_sensitivity

from ..factories import federation_with_priors


def posteriors(count: int, classes: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), count)


PRIORS = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])


def test_with_the_same_priors_the_probabilities_are_the_same() -> None:
    federation, eta = federation_with_priors(PRIORS, PRIORS[::-1].copy()), posteriors(50, 3)
    unchanged = _SetExplanation(federation, eta).with_priors([c.priors for c in federation.clients])
    assert_allclose(unchanged, eta, atol=1e-6)


def test_other_priors_give_the_probabilities_that_explain_the_same_sets() -> None:
    federation, eta = federation_with_priors(PRIORS), 0.2 / 3 + 0.8 * posteriors(20, 3)
    other = 0.97 * PRIORS + 0.03 * PRIORS[:, [1, 2, 0]]
    found = _SetExplanation(federation, eta).with_priors([other])
    shares = eta @ PRIORS.T  # of the sets, which are of equal size, under a uniform test prior
    exact = np.linalg.solve(other, shares.T).T
    inside = (exact > 0.01).all(axis=1)
    assert inside.sum() > 5
    assert_allclose(found[inside], (exact / exact.sum(axis=1, keepdims=True))[inside], atol=2e-3)


def test_priors_that_are_sure_move_nothing() -> None:
    federation = federation_with_priors(PRIORS)
    assert prior_sensitivity(federation, [np.full(3, np.inf)], posteriors(50, 3)) is None


def test_the_less_sure_the_priors_the_more_predictions_move() -> None:
    federation, eta = federation_with_priors(PRIORS, PRIORS[:2]), posteriors(80, 3)
    moves = []
    for count in (20.0, 200.0, 20_000.0):
        found = prior_sensitivity(federation, [np.full(3, count), np.full(2, count)], eta)
        assert found is not None
        assert found.accuracy_lost >= 0
        moves.append(found.moved)
    assert moves[0] > moves[1] > moves[2]
    assert moves[2] < 0.02


def test_the_set_that_is_least_sure_matters_most() -> None:
    counts = np.array([1e6, 15.0, 1e6])
    found = prior_sensitivity(federation_with_priors(PRIORS), [counts], posteriors(200, 3))
    assert found is not None
    assert found.sets[0].set == "2"
    assert found.sets[0].change > 10 * found.sets[1].change


def test_where_both_of_two_classes_are_equally_common_unsure_priors_change_no_decision() -> None:
    """At equal odds every set is as likely as its size, whatever its priors are: the boundary stays where it is."""
    eta = posteriors(200, 2)
    found = prior_sensitivity(federation_with_priors(np.array([[0.3, 0.7], [0.8, 0.2]])), [np.full(2, 30.0)], eta)
    assert found is not None
    assert found.change > 0.01
    assert found.moved < 0.02
