"""Algorithms with neutral settings equal FedAvg in what they broadcast and how they aggregate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from fedul._utils.files import tensors_digest
from fedul.algorithms import make_algorithm
from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import Weights

from ..factories import random_federation, random_updates, random_weights, seeded_network
from ..worlds import repeatable, seeds
from .quadratics import descent, random_bowls
from .rounds import Training, aggregate_rounds

weightings = st.sampled_from(["uniform", "rows"])
SETTINGS: dict[str, dict[str, Any]] = {
    "adam": {"batch_size": 8, "learning_rate": 0.02},
    "sgd": {"batch_size": 8, "optimizer": "sgd", "learning_rate": 0.1},
    "momentum": {"batch_size": 8, "optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9},
}
every_optimiser = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def fedavg(**options: Any) -> Algorithm:
    return make_algorithm("fedavg", options)


def assert_same_bits(one: Weights, other: Weights) -> None:
    assert tensors_digest(one) == tensors_digest(other)


def assert_same(one: Weights, other: Weights) -> None:
    assert_close(one, other, rtol=1e-12, atol=1e-12)


def trained(
    algorithm: Algorithm, settings: dict[str, Any], clients: int = 3, module: nn.Module | None = None
) -> Weights:
    config = TrainConfig(**settings)
    return Training(random_federation(clients), algorithm, module or seeded_network(), config).rounds(4).weights


@repeatable
@given(seeds, st.integers(1, 6), weightings, st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_fedprox_combines_updates_as_fedavg_does(seed: int, clients: int, weighting: str, step: float) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    options = {"weighting": weighting, "step": step}
    assert_same_bits(
        aggregate_rounds(make_algorithm("fedprox", {"mu": 0.5, **options}), rounds, start),
        aggregate_rounds(fedavg(**options), rounds, start),
    )


@every_optimiser
def test_fedprox_at_mu_0_trains_as_fedavg_does(settings: dict[str, Any]) -> None:
    assert_same_bits(trained(make_algorithm("fedprox", {"mu": 0}), settings), trained(fedavg(), settings))


@every_optimiser
def test_fedprox_at_another_mu_does_not(settings: dict[str, Any]) -> None:
    found = trained(make_algorithm("fedprox", {"mu": 1.0}), settings)
    assert tensors_digest(found) != tensors_digest(trained(fedavg(), settings))


@repeatable
@given(seeds, st.integers(1, 6), st.integers(1, 50), weightings, st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_fednova_of_equal_steps_is_fedavg(seed: int, clients: int, steps: int, weighting: str, step: float) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, clients, steps) for _ in range(3)]
    options = {"weighting": weighting, "step": step}
    assert_same(
        aggregate_rounds(make_algorithm("fednova", options), rounds, start),
        aggregate_rounds(fedavg(**options), rounds, start),
    )


@pytest.mark.parametrize("epochs", [1, 3])
@every_optimiser
def test_scaffold_with_one_client_is_fedavg(settings: dict[str, Any], epochs: int) -> None:
    settings = {**settings, "batch_size": "all", "epochs": epochs}
    assert_same(trained(make_algorithm("scaffold", {}), settings, 1), trained(fedavg(), settings, 1))


@repeatable
@given(seeds, st.integers(1, 5), st.floats(0.01, 0.3))
def test_scaffold_with_one_plain_step_of_every_client_is_fedavg(seed: int, clients: int, rate: float) -> None:
    bowls, start = random_bowls(seed, [1] * clients), np.random.default_rng(seed).normal(size=3)
    found, expected = (
        descent(make_algorithm(name, {}), bowls, start, rate).rounds(4).weights for name in ("scaffold", "fedavg")
    )
    assert_same(found, expected)


def test_scaffold_with_several_steps_of_several_clients_is_not() -> None:
    bowls = random_bowls(0, [3, 3])
    one, other = (descent(make_algorithm(name, {}), bowls, np.ones(3), 0.1) for name in ("scaffold", "fedavg"))
    assert_same(one.round().weights, other.round().weights)
    assert float((one.round().weights["w"] - other.round().weights["w"]).abs().max()) > 1e-3


@repeatable
@given(seeds, st.integers(1, 6), weightings)
def test_fedavgm_at_momentum_0_is_fedavg(seed: int, clients: int, weighting: str) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    found = aggregate_rounds(make_algorithm("fedavgm", {"momentum": 0, "weighting": weighting}), rounds, start)
    assert_same_bits(found, aggregate_rounds(fedavg(weighting=weighting), rounds, start))


@repeatable
@given(seeds, st.integers(1, 6), st.sampled_from(["fedavgm", "fedbn"]), st.floats(0, 2))
def test_fedavgm_at_momentum_0_and_fedbn_step_parameters_as_fedavg_does(
    seed: int, clients: int, name: str, step: float
) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    options = {"momentum": 0, "step": step} if name == "fedavgm" else {"step": step}
    assert_same_bits(
        aggregate_rounds(make_algorithm(name, options), rounds, start),
        aggregate_rounds(fedavg(step=step), rounds, start),
    )


@repeatable
@given(seeds, st.integers(1, 7), st.floats(0, 2))
def test_the_mean_trimmed_of_nothing_is_fedavg(seed: int, clients: int, step: float) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    found = aggregate_rounds(make_algorithm("trimmed-mean", {"trim": 0, "step": step}), rounds, start)
    assert_same(found, aggregate_rounds(fedavg(step=step), rounds, start))


@repeatable
@given(seeds, st.integers(1, 7), st.sampled_from(["median", "trimmed-mean"]))
def test_the_center_of_equal_updates_is_that_update(seed: int, clients: int, name: str) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, 1) * clients for _ in range(3)]
    assert_same(aggregate_rounds(make_algorithm(name, {}), rounds, start), aggregate_rounds(fedavg(), rounds, start))


@repeatable
@given(seeds, st.integers(1, 6), weightings)
def test_fedbn_without_batch_norm_is_fedavg(seed: int, clients: int, weighting: str) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    found = aggregate_rounds(make_algorithm("fedbn", {"weighting": weighting}), rounds, start)
    assert_same_bits(found, aggregate_rounds(fedavg(weighting=weighting), rounds, start))


@pytest.mark.parametrize("name", ["fedbn", "median", "trimmed-mean", "fedavgm"])
def test_in_its_degenerate_case_an_algorithm_trains_as_fedavg(name: str) -> None:
    options = {"fedbn": {}, "median": {}, "trimmed-mean": {"trim": 0}, "fedavgm": {"momentum": 0}}[name]
    clients = 1 if name == "median" else 3
    found = trained(make_algorithm(name, options), SETTINGS["adam"], clients)
    assert_close(found, trained(fedavg(), SETTINGS["adam"], clients), rtol=1e-9, atol=1e-9)


def test_fedprox_at_mu_0_keeps_batch_norm_as_fedavg_does() -> None:
    one, other = (
        trained(make_algorithm(name, options), SETTINGS["adam"], module=seeded_network((2,), 3, nn.BatchNorm1d(6)))
        for name, options in (("fedprox", {"mu": 0}), ("fedavg", {}))
    )
    assert_same_bits(one, other)
    assert not torch.equal(one["2.running_mean"], torch.zeros(6).double())
