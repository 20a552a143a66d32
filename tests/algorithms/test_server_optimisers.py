"""FedAvgM, FedAdam and FedYogi take the papers' server steps along the mean update, on parameters alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedul._utils.files import tensors_digest
from fedul.algorithms import make_algorithm
from fedul.core import Matrix, Update, Weights
from fedul.errors import InputError

from ..factories import make_update, random_updates, random_weights
from ..worlds import repeatable, seeds
from .rounds import aggregate_rounds


def mean_update(updates: list[Update], name: str, weighting: str) -> Matrix:
    changes = np.stack([{**u.delta, **u.buffers}[name].numpy() for u in updates])
    rows = [u.rows for u in updates] if weighting == "rows" else np.ones(len(updates))
    return np.average(changes, axis=0, weights=rows)


def momentum_steps(w: Matrix, means: list[Matrix], step: float, momentum: float) -> Matrix:
    """Hsu et al. 2019: v = beta v + D; w = w + v."""
    v = np.zeros_like(w)
    for mean in means:
        v = momentum * v + mean
        w = w + step * v
    return w


def adam_square(v: Matrix, square: Matrix, memory: float) -> Matrix:
    return memory * v + (1 - memory) * square


def yogi_square(v: Matrix, square: Matrix, memory: float) -> Matrix:
    return v - (1 - memory) * square * np.sign(v - square)


def adaptive_steps(
    square_of: Callable[[Matrix, Matrix, float], Matrix],
) -> Callable[..., Matrix]:
    """Reddi et al. 2021, algorithm 2."""

    def steps(w: Matrix, means: list[Matrix], step: float, momentum: float, memory: float, tau: float) -> Matrix:
        m, v = np.zeros_like(w), np.full_like(w, tau**2)
        for mean in means:
            m = momentum * m + (1 - momentum) * mean
            v = square_of(v, mean**2, memory)
            w = w + step * m / (np.sqrt(v) + tau)
        return w

    return steps


BY_HAND = {
    "fedavgm": momentum_steps,
    "fedadam": adaptive_steps(adam_square),
    "fedyogi": adaptive_steps(yogi_square),
}
ADAPTIVE = ("fedadam", "fedyogi")


@repeatable
@given(
    seeds,
    st.sampled_from(list(BY_HAND)),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from(["uniform", "rows"]),
    st.floats(0, 2),
    st.floats(0, 0.99),
    st.floats(0, 0.999),
    st.sampled_from([1e-3, 0.1]),
)
def test_some_rounds_are_those_of_the_paper(
    seed: int,
    name: str,
    clients: int,
    count: int,
    weighting: str,
    step: float,
    momentum: float,
    memory: float,
    tau: float,
) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(count)]
    options: dict[str, Any] = {"step": step, "momentum": momentum}
    if name in ADAPTIVE:
        options |= {"memory": memory, "tau": tau}
    found = aggregate_rounds(make_algorithm(name, {**options, "weighting": weighting}), rounds, start)
    for part in ("a", "b"):
        means = [mean_update(updates, part, weighting) for updates in rounds]
        expected = BY_HAND[name](start[part].numpy(), means, **options)
        assert_allclose(found[part], expected, rtol=1e-9, atol=1e-9)


def test_the_defaults_of_the_adaptive_ones_are_those_of_the_paper() -> None:
    for name in ADAPTIVE:
        algorithm: Any = make_algorithm(name, {})
        assert (algorithm.momentum, algorithm.memory, algorithm.tau) == (0.9, 0.99, 1e-3)


@repeatable
@given(seeds, st.sampled_from(list(BY_HAND)), st.integers(1, 5), st.floats(0, 2))
def test_buffers_are_averaged_and_untouched_by_the_servers_steps(
    seed: int, name: str, clients: int, step: float
) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    found, expected = (
        aggregate_rounds(make_algorithm(*which), rounds, start) for which in ((name, {"step": step}), ("fedavg", {}))
    )
    for part in ("level", "count"):
        assert found[part].dtype == start[part].dtype
        assert_allclose(found[part], expected[part], rtol=1e-12)


@pytest.mark.parametrize("name", BY_HAND)
def test_arguments_are_neither_changed_nor_kept(name: str) -> None:
    generator = np.random.default_rng(0)
    start = random_weights(generator)
    one, two = (random_updates(generator, start, 2) for _ in range(2))
    algorithm = make_algorithm(name, {})
    weights, state = algorithm.aggregate(start, {}, one, 2)
    before = [tensors_digest(group) for group in (start, weights, state, *(u.delta for u in two))]
    algorithm.aggregate(weights, state, two, 2)
    assert [tensors_digest(group) for group in (start, weights, state, *(u.delta for u in two))] == before
    for update in one:
        for tensor in update.delta.values():
            tensor.fill_(float("nan"))
    assert all(bool(tensor.isfinite().all()) for tensor in state.values())


@pytest.mark.parametrize("name", BY_HAND)
def test_single_precision_is_kept(name: str) -> None:
    start: Weights = {"w": torch.ones(3)}
    update = make_update("a", {"w": torch.ones(3)})
    weights, state = make_algorithm(name, {}).aggregate(start, {}, [update], 1)
    assert {tensor.dtype for tensor in (*weights.values(), *state.values())} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("fedavgm", {"momentum": 1}, "momentum: must be at most 0.999"),
        ("fedadam", {"memory": 1}, "memory: must be at most 0.99999"),
        ("fedyogi", {"tau": 0}, "tau: must be at least 1e-12"),
        ("fedadam", {"beta": 1}, "unknown option of algorithm fedadam 'beta'"),
    ],
)
def test_an_invalid_option_is_refused(name: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        make_algorithm(name, options)
