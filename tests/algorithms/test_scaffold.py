"""SCAFFOLD's control variates are the paper's, also where only some clients take part and under any optimiser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import nn
from torch.testing import assert_close

from fedul.algorithms.base import Trained, Update
from fedul.algorithms.scaffold import Scaffold
from fedul.config import TrainConfig
from fedul.priors import Matrix

from ..worlds import repeatable, seeds
from .federations import (
    Bowl,
    Descent,
    Point,
    Training,
    bowls_of,
    descent,
    federation_of,
    network,
    optimum,
    point,
    sampled_run,
    table_federation,
)

STEPS = (2, 4, 1, 3)
RATE = 0.1


class ByHand:
    """Algorithm 1 of the paper with option II, in NumPy."""

    def __init__(self, bowls: Mapping[str, Bowl], start: Matrix, rate: float) -> None:
        self.bowls, self.x, self.rate = bowls, start, rate
        self.c = np.zeros_like(start)
        self.own = {name: np.zeros_like(start) for name in bowls}

    def round(self, names: Iterable[str]) -> None:
        moves, changes = [], []
        for name in names:
            bowl, y = self.bowls[name], self.x
            for _ in range(bowl.steps):
                y = y - self.rate * (bowl.gradient(y) - self.own[name] + self.c)
            own = self.own[name] - self.c + (self.x - y) / (bowl.steps * self.rate)
            moves.append(y - self.x)
            changes.append(own - self.own[name])
            self.own[name] = own
        self.x = self.x + np.mean(moves, axis=0)
        self.c = self.c + len(moves) / len(self.bowls) * np.mean(changes, axis=0)


@settings(repeatable, max_examples=8)
@given(seeds, st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=5))
def test_with_any_clients_in_any_round_it_is_the_papers_algorithm(seed: int, rounds: list[set[int]]) -> None:
    bowls, start = bowls_of(seed, STEPS), np.random.default_rng(seed).normal(size=3)
    training, by_hand = descent(Scaffold(), bowls, start, RATE), ByHand(bowls, start, RATE)
    for taking_part in rounds:
        names = [f"client-{c}" for c in sorted(taking_part)]
        training.round(names)
        by_hand.round(names)
        assert_allclose(point(training), by_hand.x, atol=1e-12)
        assert_allclose(training.state["w"], by_hand.c, atol=1e-12)
        for name in names:
            assert_allclose(training.kept(name)["w"], by_hand.own[name], atol=1e-12)


def test_a_whole_run_with_half_of_the_clients_is_the_papers_algorithm() -> None:
    bowls, start = bowls_of(3, STEPS), np.ones(3)
    training, by_hand = descent(Scaffold(), bowls, start, RATE), ByHand(bowls, start, RATE)
    state, asked = sampled_run(training, rounds=8, participation=0.5)
    assert {len(names) for names in asked} == {2}
    assert {name for names in asked for name in names} == set(bowls)
    for names in asked:
        by_hand.round(names)
    assert_allclose(state.weights["w"], by_hand.x, atol=1e-11)
    assert_allclose(state.server["w"], by_hand.c, atol=1e-11)


def test_with_half_of_the_clients_it_still_ends_at_the_optimum() -> None:
    bowls = bowls_of(3, STEPS)
    state, _ = sampled_run(descent(Scaffold(), bowls, np.ones(3), RATE), rounds=200, participation=0.5)
    assert_allclose(state.weights["w"], optimum(bowls), atol=1e-8)
    assert_allclose(state.server["w"], np.zeros(3), atol=1e-8)


@repeatable
@given(seeds, st.integers(1, 6), st.integers(0, 6))
def test_the_servers_control_moves_by_the_share_taking_part_times_the_mean_change(
    seed: int, clients: int, absent: int
) -> None:
    generator = np.random.default_rng(seed)
    changes = generator.normal(size=(clients, 3))
    before = generator.normal(size=3)
    updates = [
        Update(str(c), {"w": torch.zeros(3).double()}, 1, 1, 0.0, message={"w": torch.from_numpy(change)})
        for c, change in enumerate(changes)
    ]
    start, state = {"w": torch.zeros(3).double()}, {"w": torch.from_numpy(before)}
    _, found = Scaffold().aggregate(start, state, updates, clients + absent)
    assert_allclose(found["w"], before + clients / (clients + absent) * changes.mean(0), atol=1e-12)


def test_a_client_that_is_new_keeps_its_gradient_and_sends_it() -> None:
    gradient = torch.tensor([1.0, 2.0])
    message, kept = Scaffold().finish(Trained({}, {"w": gradient}), {"w": torch.ones(2)}, {})
    assert_close(message, {"w": torch.tensor([1.0, 2.0])})
    gradient.zero_()
    assert_close(kept, {"w": torch.tensor([1.0, 2.0])})


@pytest.mark.parametrize(("optimizer", "settings"), [("adam", {}), ("sgd", {"momentum": 0.9})])
def test_gradients_are_corrected_before_the_optimiser_sees_them(optimizer: str, settings: dict[str, Any]) -> None:
    bowls = bowls_of(1, (4, 3))
    config = TrainConfig(optimizer=optimizer, learning_rate=0.05, batch_size=2, **settings)
    training = Training(federation_of(bowls), Scaffold(), Point(np.ones(3)), config, Descent(bowls))
    makers: dict[str, Any] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    x, c = np.ones(3), np.zeros(3)
    own = {name: np.zeros(3) for name in bowls}
    for _ in range(4):
        training.round()
        moves, changes = [], []
        for name, bowl in bowls.items():
            y = torch.from_numpy(x.copy()).requires_grad_()
            optimiser, gradients = makers[optimizer]([y], lr=0.05, **settings), []
            for _ in range(bowl.steps):
                gradients.append(bowl.gradient(y.detach().numpy()))
                y.grad = torch.from_numpy(gradients[-1] - own[name] + c)
                optimiser.step()
            moves.append(y.detach().numpy() - x)
            changes.append(np.mean(gradients, axis=0) - own[name])
            own[name] = np.mean(gradients, axis=0)
        x, c = x + np.mean(moves, axis=0), c + np.mean(changes, axis=0)
        assert_allclose(point(training), x, atol=1e-10)
        assert_allclose(training.state["w"], c, atol=1e-10)


def test_the_penalty_is_part_of_a_clients_gradient() -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 8, "l1": 0.05}
    training = Training(table_federation(1), Scaffold(), network(), TrainConfig(**settings))
    before = training.weights
    steps: list[float] = []
    training.changed = lambda update: (steps.append(update.steps), update)[1]
    after = training.round().weights
    for name, own in training.kept("c0").items():
        assert_close(own, (before[name] - after[name]) / (steps[0] * 0.1), rtol=0, atol=1e-12)


def test_frozen_parameters_have_no_control() -> None:
    module = network()
    first = next(layer for layer in module.modules() if isinstance(layer, nn.Linear))
    first.requires_grad_(False)
    training = Training(table_federation(), Scaffold(), module, TrainConfig(batch_size=8)).rounds(2)
    learning = {name for name, p in module.named_parameters() if p.requires_grad}
    assert set(training.state) == learning == set(training.kept("c0"))
    assert not set(training.weights) <= learning
