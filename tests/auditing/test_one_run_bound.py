"""The lower bound on epsilon from canaries in one run (Steinke et al. 2023, Theorem 5.2)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedul.auditing.one_run_bound import best_bound, epsilon_bound, p_value


@given(guesses=st.integers(1, 60), share=st.floats(0, 1), epsilon=st.floats(0, 6))
def test_without_delta_the_p_value_is_a_binomial_tail(guesses: int, share: float, epsilon: float) -> None:
    correct, success = round(share * guesses), 1 / (1 + math.exp(-epsilon))
    exact = math.fsum(
        math.comb(guesses, v) * success**v * (1 - success) ** (guesses - v) for v in range(correct, guesses + 1)
    )
    assert p_value(100, guesses, correct, epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-15)


@given(correct=st.integers(1, 50), epsilon=st.floats(0, 5), delta=st.floats(1e-9, 1e-3))
def test_the_p_value_grows_with_epsilon_and_delta_and_falls_with_right_guesses(
    correct: int, epsilon: float, delta: float
) -> None:
    here = p_value(200, 50, correct, epsilon, delta)
    assert here <= p_value(200, 50, correct, epsilon + 0.5, 0.0) + 2 * 200 * delta
    assert p_value(200, 50, correct, epsilon) <= here <= p_value(200, 50, correct, epsilon, 2 * delta)
    assert here <= p_value(200, 50, correct - 1, epsilon) + 2 * 200 * delta


def test_delta_adds_what_the_theorem_says() -> None:
    """With one guess: P[1 > Binomial(1, q) >= 0] = 1 - q, so delta adds 2 m delta (1 - q)."""
    success = 1 / (1 + math.exp(-1.0))
    assert p_value(10, 1, 1, 1.0, 1e-3) == pytest.approx(success + 2 * 10 * 1e-3 * (1 - success))


def test_the_bound_is_the_epsilon_at_which_the_p_value_is_5_percent() -> None:
    bound = epsilon_bound(300, 120, 110, 1e-5)
    assert p_value(300, 120, 110, bound, 1e-5) == pytest.approx(0.05, abs=1e-5)
    assert epsilon_bound(300, 120, 115, 1e-5) > bound > epsilon_bound(300, 120, 105, 1e-5)


def test_the_bound_covers_the_epsilon_of_randomised_response() -> None:
    """Each coin is told truly with probability 1 / (1 + exp(-1)); of 400 bounds, 5 % may exceed 1."""
    generator = np.random.default_rng(0)
    right = generator.binomial(200, 1 / (1 + math.exp(-1.0)), size=400)
    bounds = np.array([epsilon_bound(200, 200, int(each)) for each in right])
    assert (bounds > 1).mean() < 0.08
    assert bounds.mean() > 0.6  # and it is not far below


def test_the_best_of_several_bounds_pays_for_having_been_chosen() -> None:
    outcomes = [(50, 45), (100, 60)]
    bound, guesses, correct = best_bound(100, outcomes)
    assert (guesses, correct) == (50, 45)
    assert 0 < bound < epsilon_bound(100, 50, 45)


def test_more_right_guesses_than_guesses_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 0 <= correct"):
        p_value(10, 5, 6, 1.0)
