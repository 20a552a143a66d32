"""Where an algorithm has nothing to do it is FedAvg, in what it sends clients and in what it makes of their updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from fedul.algorithms import make_algorithm
from fedul.algorithms.base import Algorithm, Weights
from fedul.config import TrainConfig
from fedul.files import tensors_digest

from ..worlds import repeatable, seeds
from .federations import Training, bowls_of, combined, descent, network, random_start, random_updates, table_federation

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
    return Training(table_federation(clients), algorithm, module or network(), config).rounds(4).weights


@repeatable
@given(seeds, st.integers(1, 6), weightings, st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_fedprox_combines_updates_as_fedavg_does(seed: int, clients: int, weighting: str, step: float) -> None:
    generator = np.random.default_rng(seed)
    start = random_start(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    options = {"weighting": weighting, "step": step}
    assert_same_bits(
        combined(make_algorithm("fedprox", {"mu": 0.5, **options}), rounds, start),
        combined(fedavg(**options), rounds, start),
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
    start = random_start(generator)
    rounds = [random_updates(generator, start, clients, steps) for _ in range(3)]
    options = {"weighting": weighting, "step": step}
    assert_same(combined(make_algorithm("fednova", options), rounds, start), combined(fedavg(**options), rounds, start))


@pytest.mark.parametrize("epochs", [1, 3])
@every_optimiser
def test_scaffold_with_one_client_is_fedavg(settings: dict[str, Any], epochs: int) -> None:
    settings = {**settings, "batch_size": "all", "epochs": epochs}
    assert_same(trained(make_algorithm("scaffold", {}), settings, 1), trained(fedavg(), settings, 1))


@repeatable
@given(seeds, st.integers(1, 5), st.floats(0.01, 0.3))
def test_scaffold_with_one_plain_step_of_every_client_is_fedavg(seed: int, clients: int, rate: float) -> None:
    bowls, start = bowls_of(seed, [1] * clients), np.random.default_rng(seed).normal(size=3)
    found, expected = (
        descent(make_algorithm(name, {}), bowls, start, rate).rounds(4).weights for name in ("scaffold", "fedavg")
    )
    assert_same(found, expected)


def test_scaffold_with_several_steps_of_several_clients_is_not() -> None:
    bowls = bowls_of(0, [3, 3])
    one, other = (descent(make_algorithm(name, {}), bowls, np.ones(3), 0.1) for name in ("scaffold", "fedavg"))
    assert_same(one.round().weights, other.round().weights)
    assert float((one.round().weights["w"] - other.round().weights["w"]).abs().max()) > 1e-3


@repeatable
@given(seeds, st.integers(1, 6), weightings)
def test_fedavgm_at_momentum_0_is_fedavg(seed: int, clients: int, weighting: str) -> None:
    generator = np.random.default_rng(seed)
    start = random_start(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    found = combined(make_algorithm("fedavgm", {"momentum": 0, "weighting": weighting}), rounds, start)
    assert_same_bits(found, combined(fedavg(weighting=weighting), rounds, start))


@repeatable
@given(seeds, st.integers(1, 6), st.sampled_from(["fedavgm", "fedbn"]), st.floats(0, 2))
def test_fedavgm_at_momentum_0_and_fedbn_step_parameters_as_fedavg_does(
    seed: int, clients: int, name: str, step: float
) -> None:
    generator = np.random.default_rng(seed)
    start = random_start(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    options = {"momentum": 0, "step": step} if name == "fedavgm" else {"step": step}
    assert_same_bits(combined(make_algorithm(name, options), rounds, start), combined(fedavg(step=step), rounds, start))


@repeatable
@given(seeds, st.integers(1, 7), st.floats(0, 2))
def test_the_mean_trimmed_of_nothing_is_fedavg(seed: int, clients: int, step: float) -> None:
    generator = np.random.default_rng(seed)
    start = random_start(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    found = combined(make_algorithm("trimmed-mean", {"trim": 0, "step": step}), rounds, start)
    assert_same(found, combined(fedavg(step=step), rounds, start))


@repeatable
@given(seeds, st.integers(1, 7), st.sampled_from(["median", "trimmed-mean"]))
def test_of_clients_that_agree_the_centre_is_what_they_say(seed: int, clients: int, name: str) -> None:
    generator = np.random.default_rng(seed)
    start = random_start(generator)
    rounds = [random_updates(generator, start, 1) * clients for _ in range(3)]
    assert_same(combined(make_algorithm(name, {}), rounds, start), combined(fedavg(), rounds, start))


@repeatable
@given(seeds, st.integers(1, 6), weightings)
def test_fedbn_without_batch_norm_is_fedavg(seed: int, clients: int, weighting: str) -> None:
    generator = np.random.default_rng(seed)
    start = random_start(generator)
    rounds = [random_updates(generator, start, clients) for _ in range(3)]
    found = combined(make_algorithm("fedbn", {"weighting": weighting}), rounds, start)
    assert_same_bits(found, combined(fedavg(weighting=weighting), rounds, start))


@pytest.mark.parametrize("name", ["fedbn", "median", "trimmed-mean", "fedavgm"])
def test_with_nothing_to_do_a_whole_training_is_that_of_fedavg(name: str) -> None:
    options = {"fedbn": {}, "median": {}, "trimmed-mean": {"trim": 0}, "fedavgm": {"momentum": 0}}[name]
    clients = 1 if name == "median" else 3
    found = trained(make_algorithm(name, options), SETTINGS["adam"], clients)
    assert_close(found, trained(fedavg(), SETTINGS["adam"], clients), rtol=1e-9, atol=1e-9)


def test_fedprox_at_mu_0_keeps_batch_norm_as_fedavg_does() -> None:
    one, other = (
        trained(make_algorithm(name, options), SETTINGS["adam"], module=network(nn.BatchNorm1d(5).double()))
        for name, options in (("fedprox", {"mu": 0}), ("fedavg", {}))
    )
    assert_same_bits(one, other)
    assert not torch.equal(one["1.running_mean"], torch.zeros(5))
