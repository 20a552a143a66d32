"""FedNova counts the plain gradient steps that a client's local steps amount to, momentum included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedul.algorithms.base import Algorithm, effective_steps
from fedul.algorithms.fedavg import FedAvg
from fedul.algorithms.fednova import FedNova

from ..worlds import repeatable, seeds
from .quadratics import Bowl, descent, optimum, point


def steps_by_brute_force(momentum: float, steps: int, rate: float = 0.1, *, nesterov: bool = False) -> float:
    """Return the distance that unit gradients move torch's SGD, in units of its step size."""
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([w], lr=rate, momentum=momentum, nesterov=nesterov)
    for _ in range(steps):
        w.grad = -torch.ones_like(w)
        sgd.step()
    return w.item() / rate


@repeatable
@given(st.floats(0, 0.999), st.integers(1, 60))
def test_effective_steps_are_the_distance_covered_by_unit_gradients(momentum: float, steps: int) -> None:
    assert effective_steps("sgd", momentum, steps) == pytest.approx(steps_by_brute_force(momentum, steps), rel=1e-9)


@repeatable
@given(st.floats(0.001, 0.999), st.integers(1, 60))
def test_effective_steps_of_nesterov_momentum_are_that_distance_too(momentum: float, steps: int) -> None:
    expected = steps_by_brute_force(momentum, steps, nesterov=True)
    assert effective_steps("sgd", momentum, steps, nesterov=True) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_of_adam_the_steps_themselves_are_counted(momentum: float) -> None:
    assert effective_steps("adam", momentum, 7) == 7


@settings(repeatable, max_examples=20)
@given(
    seeds,
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.sampled_from(["uniform", "rows"]),
)
def test_under_constant_gradients_the_model_moves_along_their_mean_whatever_the_numbers_of_steps(
    seed: int, steps: list[int], momentum: float, weighting: str
) -> None:
    generator = np.random.default_rng(seed)
    slopes = generator.normal(size=(len(steps), 3))
    bowls = {f"c{i}": Bowl(np.zeros((3, 3)), np.zeros(3), n, slopes[i]) for i, n in enumerate(steps)}
    shares = np.array(steps) / sum(steps) if weighting == "rows" else np.full(len(steps), 1 / len(steps))
    tau = shares @ [steps_by_brute_force(momentum, n) for n in steps]
    found = point(descent(FedNova(weighting=weighting), bowls, np.zeros(3), 0.05, momentum=momentum).round())
    assert_allclose(found, -0.05 * tau * (shares @ slopes), atol=1e-12)


def test_with_unequal_steps_and_momentum_the_error_vanishes_with_the_local_rate() -> None:
    bowls = {"few": Bowl(2 * np.eye(1), np.array([2.0]), 1), "many": Bowl(3 * np.eye(1), np.array([-1.0]), 4)}
    best = optimum(bowls)

    def error(algorithm: Algorithm, rate: float) -> float:
        end = descent(algorithm, bowls, best, rate, momentum=0.9).rounds(round(0.4 / rate))
        return float(np.abs(point(end) - best).max())

    assert error(FedNova(), 0.05) / error(FedNova(), 0.005) == pytest.approx(10, rel=0.1)
    assert error(FedNova(), 0.005) < error(FedAvg(), 0.005) / 30
