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

from fedul.algorithms.base import TrainedClient
from fedul.algorithms.scaffold import Scaffold
from fedul.config import TrainConfig
from fedul.core import Matrix

from ..factories import make_update, random_federation, seeded_network
from ..worlds import repeatable, seeds
from .quadratics import Bowl, Descent, Point, bowl_federation, descent, optimum, point, random_bowls
from .rounds import Training, sampled_run

STEPS = (2, 4, 1, 3)
RATE = 0.1


class ByHand:
    """Algorithm 1 of the paper with option II, in NumPy."""

    def __init__(self, bowls: Mapping[str, Bowl], start: Matrix, rate: float) -> None:
        self.bowls, self.x, self.rate = bowls, start, rate
        self.c = np.zeros_like(start)
        self.control = {name: np.zeros_like(start) for name in bowls}

    def round(self, names: Iterable[str]) -> None:
        moves, changes = [], []
        for name in names:
            bowl, y = self.bowls[name], self.x
            for _ in range(bowl.steps):
                y = y - self.rate * (bowl.gradient(y) - self.control[name] + self.c)
            control = self.control[name] - self.c + (self.x - y) / (bowl.steps * self.rate)
            moves.append(y - self.x)
            changes.append(control - self.control[name])
            self.control[name] = control
        self.x = self.x + np.mean(moves, axis=0)
        self.c = self.c + len(moves) / len(self.bowls) * np.mean(changes, axis=0)


@settings(repeatable, max_examples=8)
@given(seeds, st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=5))
def test_with_any_clients_in_any_round_it_is_the_papers_algorithm(seed: int, rounds: list[set[int]]) -> None:
    bowls, start = random_bowls(seed, STEPS), np.random.default_rng(seed).normal(size=3)
    training, by_hand = descent(Scaffold(), bowls, start, RATE), ByHand(bowls, start, RATE)
    for taking_part in rounds:
        names = [f"client-{c}" for c in sorted(taking_part)]
        training.round(names)
        by_hand.round(names)
        assert_allclose(point(training), by_hand.x, atol=1e-12)
        assert_allclose(training.state["w"], by_hand.c, atol=1e-12)
        for name in names:
            assert_allclose(training.client_state(name)["w"], by_hand.control[name], atol=1e-12)


def test_a_whole_run_with_half_of_the_clients_is_the_papers_algorithm() -> None:
    bowls, start = random_bowls(3, STEPS), np.ones(3)
    training, by_hand = descent(Scaffold(), bowls, start, RATE), ByHand(bowls, start, RATE)
    state, participants = sampled_run(training, rounds=8, participation=0.5)
    assert {len(names) for names in participants} == {2}
    assert {name for names in participants for name in names} == set(bowls)
    for names in participants:
        by_hand.round(names)
    assert_allclose(state.weights["w"], by_hand.x, atol=1e-11)
    assert_allclose(state.server_state["w"], by_hand.c, atol=1e-11)


def test_with_half_of_the_clients_it_still_ends_at_the_optimum() -> None:
    bowls = random_bowls(3, STEPS)
    state, _ = sampled_run(descent(Scaffold(), bowls, np.ones(3), RATE), rounds=200, participation=0.5)
    assert_allclose(state.weights["w"], optimum(bowls), atol=1e-8)
    assert_allclose(state.server_state["w"], np.zeros(3), atol=1e-8)


@repeatable
@given(seeds, st.integers(1, 6), st.integers(0, 6))
def test_the_servers_control_moves_by_the_share_taking_part_times_the_mean_change(
    seed: int, clients: int, absent: int
) -> None:
    generator = np.random.default_rng(seed)
    changes = generator.normal(size=(clients, 3))
    before = generator.normal(size=3)
    updates = [
        make_update(str(c), {"w": torch.zeros(3).double()}, message={"w": torch.from_numpy(change)})
        for c, change in enumerate(changes)
    ]
    start, state = {"w": torch.zeros(3).double()}, {"w": torch.from_numpy(before)}
    _, found = Scaffold().aggregate(start, state, updates, clients + absent)
    assert_allclose(found["w"], before + clients / (clients + absent) * changes.mean(0), atol=1e-12)


def test_a_new_client_stores_its_gradient_and_sends_it() -> None:
    gradient = torch.tensor([1.0, 2.0])
    message, state = Scaffold().finish(TrainedClient({}, {"w": gradient}), {"w": torch.ones(2)}, {})
    assert_close(message, {"w": torch.tensor([1.0, 2.0])})
    gradient.zero_()
    assert_close(state, {"w": torch.tensor([1.0, 2.0])})


@pytest.mark.parametrize(("optimizer", "settings"), [("adam", {}), ("sgd", {"momentum": 0.9})])
def test_gradients_are_corrected_before_the_optimizer_uses_them(optimizer: str, settings: dict[str, Any]) -> None:
    bowls = random_bowls(1, (4, 3))
    config = TrainConfig(optimizer=optimizer, learning_rate=0.05, batch_size=2, **settings)
    training = Training(bowl_federation(bowls), Scaffold(), Point(np.ones(3)), config, Descent(bowls))
    makers: dict[str, Any] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    x, c = np.ones(3), np.zeros(3)
    control = {name: np.zeros(3) for name in bowls}
    for _ in range(4):
        training.round()
        moves, changes = [], []
        for name, bowl in bowls.items():
            y = torch.from_numpy(x.copy()).requires_grad_()
            optimiser, gradients = makers[optimizer]([y], lr=0.05, **settings), []
            for _ in range(bowl.steps):
                gradients.append(bowl.gradient(y.detach().numpy()))
                y.grad = torch.from_numpy(gradients[-1] - control[name] + c)
                optimiser.step()
            moves.append(y.detach().numpy() - x)
            changes.append(np.mean(gradients, axis=0) - control[name])
            control[name] = np.mean(gradients, axis=0)
        x, c = x + np.mean(moves, axis=0), c + np.mean(changes, axis=0)
        assert_allclose(point(training), x, atol=1e-10)
        assert_allclose(training.state["w"], c, atol=1e-10)


def test_the_penalty_is_part_of_a_clients_gradient() -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 8, "l1": 0.05}
    training = Training(random_federation(1), Scaffold(), seeded_network(), TrainConfig(**settings))
    before = training.weights
    after = training.round().weights
    for name, control in training.client_state("c0").items():
        assert_close(control, (before[name] - after[name]) / (training.steps["c0"] * 0.1), rtol=0, atol=1e-12)


def test_frozen_parameters_have_no_control() -> None:
    module = seeded_network()
    first = next(layer for layer in module.modules() if isinstance(layer, nn.Linear))
    first.requires_grad_(False)
    training = Training(random_federation(), Scaffold(), module, TrainConfig(batch_size=8)).rounds(2)
    learning = {name for name, p in module.named_parameters() if p.requires_grad}
    assert set(training.state) == learning == set(training.client_state("c0"))
    assert not set(training.weights) <= learning
