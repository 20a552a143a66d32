"""On quadratic objectives every algorithm ends where its own recursion says, and only some where the optimum is.

Client i takes tau plain steps of size eta from w, and so moves by (I - (I - eta A)^tau) (b - w).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedul.algorithms import make_algorithm
from fedul.core import Matrix

from ..worlds import repeatable, seeds
from .quadratics import Bowl, balance, descent, optimum, point, random_bowls

UNEQUAL = (1, 4)
SCALARS = {"few": Bowl(2 * np.eye(1), np.array([2.0]), 1), "many": Bowl(3 * np.eye(1), np.array([-1.0]), 4)}
STEPS = {name: float(bowl.steps) for name, bowl in SCALARS.items()}
RATE = 0.3
some_bowls = pytest.mark.parametrize(("seed", "steps"), [(0, (1, 4)), (1, (3, 1, 2))])


def pull(bowl: Bowl, rate: float, mu: float = 0.0, per_step: bool = False) -> Matrix:
    """P where the client moves by P (centre - w); with mu, towards the minimum of the bowl and the proximal term."""
    one = np.eye(len(bowl.centre))
    steep = bowl.curvature + mu * one
    moved = one - np.linalg.matrix_power(one - rate * steep, bowl.steps)
    return moved @ np.linalg.solve(steep, bowl.curvature) / (bowl.steps if per_step else 1)


def pulls(bowls: Mapping[str, Bowl], rate: float, **options: Any) -> dict[str, Matrix]:
    return {name: pull(bowl, rate, **options) for name, bowl in bowls.items()}


def end_of(
    name: str, bowls: Mapping[str, Bowl], rate: float, rounds: int, start: Matrix | None = None, **options: Any
) -> Matrix:
    begin = np.zeros(len(next(iter(bowls.values())).centre)) if start is None else start
    return point(descent(make_algorithm(name, options), bowls, begin, rate).rounds(rounds))


def largest(values: Matrix) -> float:
    return float(np.abs(values).max())


def errors_as_the_rate_falls(name: str, target: Matrix, **options: Any) -> list[float]:
    """Return the distances from the target at which training from it ends, at a local rate and at a tenth of it."""
    rates = (0.05, 0.005)
    return [largest(end_of(name, SCALARS, rate, round(0.7 / rate), target, **options) - target) for rate in rates]


few = settings(repeatable, max_examples=15)


@few
@given(seeds, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.floats(0.01, 0.3))
def test_a_round_of_fedavg_is_the_mean_of_the_clients_closed_forms(seed: int, steps: list[int], rate: float) -> None:
    bowls, start = random_bowls(seed, steps), np.random.default_rng(seed).normal(size=3)
    moves = [pull(bowl, rate) @ (bowl.centre - start) for bowl in bowls.values()]
    assert_allclose(end_of("fedavg", bowls, rate, 1, start), start + np.mean(moves, axis=0), atol=1e-12)


def test_with_unequal_steps_fedavg_ends_at_its_closed_form_and_not_at_the_optimum() -> None:
    end, expected = end_of("fedavg", SCALARS, 0.1, 50), balance(pulls(SCALARS, 0.1), SCALARS)
    assert_allclose(end, expected, atol=1e-10)
    assert largest(end - optimum(SCALARS)) > 0.1


@some_bowls
def test_fedavg_ends_at_its_closed_form_whatever_the_curvatures(seed: int, steps: tuple[int, ...]) -> None:
    bowls = random_bowls(seed, steps)
    assert_allclose(end_of("fedavg", bowls, RATE, 60), balance(pulls(bowls, RATE), bowls), atol=1e-7)


def test_fedavg_by_rows_ends_at_the_closed_form_with_these_shares() -> None:
    expected = balance(pulls(SCALARS, 0.1), SCALARS, STEPS)
    assert_allclose(end_of("fedavg", SCALARS, 0.1, 50, weighting="rows"), expected, atol=1e-10)


def test_with_small_steps_fedavg_minimises_the_objectives_weighted_by_the_number_of_steps() -> None:
    by_steps = optimum(SCALARS, STEPS)
    errors = errors_as_the_rate_falls("fedavg", by_steps)
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.1)
    assert largest(by_steps - optimum(SCALARS)) > 5 * errors[0]


@some_bowls
def test_fednova_ends_at_its_closed_form(seed: int, steps: tuple[int, ...]) -> None:
    bowls = random_bowls(seed, steps)
    assert_allclose(end_of("fednova", bowls, RATE, 60), balance(pulls(bowls, RATE, per_step=True), bowls), atol=1e-7)


def test_fednovas_error_vanishes_with_the_local_rate_and_fedavgs_does_not() -> None:
    nova, avg = (errors_as_the_rate_falls(name, optimum(SCALARS)) for name in ("fednova", "fedavg"))
    assert nova[0] / nova[1] == pytest.approx(10, rel=0.1)
    assert avg[0] / avg[1] == pytest.approx(1, rel=0.2)
    assert nova[1] < avg[1] / 30


def test_fednova_by_rows_goes_to_the_optimum_with_these_shares() -> None:
    errors = errors_as_the_rate_falls("fednova", optimum(SCALARS, STEPS), weighting="rows")
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.1)


@some_bowls
def test_scaffold_ends_at_the_optimum_whatever_the_curvatures_and_steps(seed: int, steps: tuple[int, ...]) -> None:
    bowls = random_bowls(seed, steps)
    assert_allclose(end_of("scaffold", bowls, 0.2, 120), optimum(bowls), atol=1e-8)


def test_scaffold_ends_at_the_optimum_where_fedavg_does_not() -> None:
    assert_allclose(end_of("scaffold", SCALARS, 0.1, 60), optimum(SCALARS), atol=1e-8)


@few
@given(seeds, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.floats(0.01, 0.2), st.floats(0, 3))
def test_a_round_of_fedprox_is_the_mean_of_the_clients_closed_forms(
    seed: int, steps: list[int], rate: float, mu: float
) -> None:
    bowls, start = random_bowls(seed, steps), np.random.default_rng(seed).normal(size=3)
    moves = [pull(bowl, rate, mu) @ (bowl.centre - start) for bowl in bowls.values()]
    assert_allclose(end_of("fedprox", bowls, rate, 1, start, mu=mu), start + np.mean(moves, axis=0), atol=1e-12)


@pytest.mark.parametrize("mu", [0.1, 2.0])
def test_fedprox_ends_at_its_closed_form(mu: float) -> None:
    bowls = random_bowls(0, UNEQUAL)
    assert_allclose(end_of("fedprox", bowls, RATE, 70, mu=mu), balance(pulls(bowls, RATE, mu=mu), bowls), atol=1e-7)


def test_the_proximal_term_brings_clients_of_many_steps_nearer_to_the_optimum() -> None:
    errors = [largest(end_of("fedprox", SCALARS, 0.1, 40, mu=mu) - optimum(SCALARS)) for mu in (0.0, 1.0, 4.0)]
    assert errors == sorted(errors, reverse=True)
