"""Algorithms that need only the mean of prepared updates, and those that need every single update."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import fedul
from fedul.algorithms import ALGORITHMS, make_algorithm
from fedul.algorithms.mean import mean_update
from fedul.core import Update, Weights

from ..factories import random_updates, random_weights

ORDERED = {"median", "trimmed-mean"}
NAMES = sorted(name for name in ALGORITHMS if name not in ORDERED)


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_of_updates_that_clients_prepared_is_all_that_the_coordinator_needs(name: str) -> None:
    generator = np.random.default_rng(3)
    start, algorithm = random_weights(generator), make_algorithm(name, {})
    updates = random_updates(generator, start, 4)
    assert algorithm.single_updates_reason == ""
    mean = mean_update([algorithm.prepare(start, update) for update in updates], algorithm.weighting)
    found, state = algorithm.advance(start, {}, mean, 4)
    expected, expected_state = algorithm.aggregate(start, {}, updates, 4)
    assert_close(found, expected, rtol=0, atol=0)
    assert_close(state, expected_state, rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(ORDERED))
def test_algorithms_that_order_updates_say_that_they_need_every_single_one(name: str) -> None:
    assert "orders the updates of all clients" in make_algorithm(name, {}).single_updates_reason


def test_an_algorithm_that_overrides_aggregate_is_recognised() -> None:
    @dataclass(frozen=True)
    class First(fedul.Algorithm):
        """The model of the first client."""

        def aggregate(
            self, weights: Weights, server_state: Weights, updates: Iterable[Update], clients: int
        ) -> tuple[Weights, Weights]:
            first = next(iter(updates))
            return {name: weights[name] + change for name, change in first.delta.items()}, server_state

    assert "its class overrides aggregate" in First().single_updates_reason
    assert fedul.Algorithm().single_updates_reason == ""


def test_fednova_divides_an_update_by_its_steps_at_the_client() -> None:
    update = Update("a", {"w": torch.tensor([4.0])}, rows=10, steps=8.0, loss=0.0)
    prepared = make_algorithm("fednova", {}).prepare({"w": torch.zeros(1)}, update)
    assert prepared.delta["w"] == 0.5
    assert update.delta["w"] == 4.0
