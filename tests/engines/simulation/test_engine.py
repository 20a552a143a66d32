"""The simulation engine takes the steps that can be computed by hand, in any order of clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn
from torch.testing import assert_close

from fedul._utils.files import tensors_digest
from fedul._utils.randomness import torch_generator
from fedul.algorithms.fedavg import FedAvg
from fedul.config import TrainConfig
from fedul.core import Federation, Matrix, UnlabeledSets, Update
from fedul.engines.base import Broadcast
from fedul.engines.held_out import TEMPERATURES, Reference, sum_held_out
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.engines.simulation.engine import SimulationEngine
from fedul.methods.fedul import FedUL, set_task

from ...factories import CLASSES, make_rows, random_client
from ...runs import copy_update, copy_weights
from ...worlds import random_shares

FEDERATION = Federation(
    [random_client("north"), random_client("southern", 17), random_client("middle-east", 24, 2)],
    CLASSES,
    random_shares(np.random.default_rng(0), 3),
)
NAMES = [client.name for client in FEDERATION.clients]


def linear(seed: int = 0) -> nn.Module:
    module = nn.Linear(2, 3).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_generator(seed), dtype=torch.float64))
    return module


def engine(module: nn.Module, federation: Federation = FEDERATION, **settings: Any) -> SimulationEngine:
    return SimulationEngine(federation, FedUL(), FedAvg(), module, TrainConfig(**settings))


def trained(module: nn.Module, names: list[str] = NAMES, number: int = 1, **settings: Any) -> dict[str, Update]:
    run = engine(module, **settings).train(Broadcast(number, copy_weights(module)), names)
    return {update.client: copy_update(update) for update in run}


def gradient_by_hand(weight: Matrix, bias: Matrix, client: UnlabeledSets) -> tuple[Matrix, Matrix]:
    """Of the mean of -log Q over all training rows, with logits x W^T + b: class posterior less that within the set."""
    x, sets = client.inputs[client.train.index].numpy(), client.train.sets.numpy()
    odds = np.exp(x @ weight.T + bias) / FEDERATION.test_prior
    mixed, in_set = odds * client.class_mix, odds * client.priors[sets]
    error = mixed / mixed.sum(1, keepdims=True) - in_set / in_set.sum(1, keepdims=True)
    return error.T @ x / len(x), error.mean(axis=0)


OPTIMISERS = [{"batch_size": 8}, {"batch_size": 8, "optimizer": "sgd", "momentum": 0.9}]
FULL_BATCH = {"optimizer": "sgd", "learning_rate": 0.3, "batch_size": "all"}


@pytest.mark.parametrize("client", FEDERATION.clients, ids=NAMES)
def test_one_full_batch_step_is_the_one_computed_by_hand(client: UnlabeledSets) -> None:
    module = linear()
    weight, bias = module.weight.detach().numpy().copy(), module.bias.detach().numpy().copy()
    update = trained(module, [client.name], **FULL_BATCH)[client.name]
    by_weight, by_bias = gradient_by_hand(weight, bias, client)
    assert_allclose(update.delta["weight"], -0.3 * by_weight, rtol=0, atol=1e-14)
    assert_allclose(update.delta["bias"], -0.3 * by_bias, rtol=0, atol=1e-14)


def steps_by_autograd(
    module: nn.Module, client: UnlabeledSets, optimizer: torch.optim.Optimizer, steps: int, l1: float = 0.0
) -> dict[str, Tensor]:
    """Full-batch steps with torch's own optimiser and the penalty in the loss."""
    before = copy_weights(module)
    (step,) = FedUL().task(client, FEDERATION.spec).plan(torch_generator(0))
    for _ in range(steps):
        optimizer.zero_grad()
        penalty = sum(p.abs().sum() for p in module.parameters())
        (FedUL().loss(module, step) + l1 * penalty).backward()
        optimizer.step()
    return {name: tensor.detach() - before[name] for name, tensor in module.named_parameters()}


def moved_as(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    for name, tensor in expected.items():
        assert_close(found[name], tensor, rtol=0, atol=1e-12)


def test_the_l1_penalty_is_that_of_autograd() -> None:
    update = trained(linear(), ["north"], **FULL_BATCH, l1=0.05)["north"]
    module = linear()
    sgd = torch.optim.SGD(module.parameters(), 0.3)
    moved_as(update.delta, steps_by_autograd(module, FEDERATION.clients[0], sgd, 1, l1=0.05))


def test_momentum_gathers_over_the_steps_of_a_round() -> None:
    update = trained(linear(), ["north"], **FULL_BATCH, momentum=0.9, epochs=4)["north"]
    module = linear()
    sgd = torch.optim.SGD(module.parameters(), 0.3, momentum=0.9)
    moved_as(update.delta, steps_by_autograd(module, FEDERATION.clients[0], sgd, 4))


def test_adam_is_torchs_adam() -> None:
    update = trained(linear(), ["north"], learning_rate=0.1, batch_size="all", epochs=4)["north"]
    module = linear()
    adam = torch.optim.Adam(module.parameters(), 0.1, foreach=False)
    moved_as(update.delta, steps_by_autograd(module, FEDERATION.clients[0], adam, 4))


@pytest.mark.parametrize("settings", OPTIMISERS, ids=["adam", "sgd"])
def test_the_optimiser_is_made_anew_for_every_client_and_round(settings: dict[str, Any]) -> None:
    module = linear()
    run, start = engine(module, **settings), copy_weights(module)
    first, again = ([tensors_digest(u.delta) for u in run.train(Broadcast(1, start), NAMES)] for _ in range(2))
    assert first == again


@pytest.mark.parametrize("settings", OPTIMISERS, ids=["adam", "sgd"])
def test_updates_come_in_the_requested_order_and_do_not_depend_on_it(settings: dict[str, Any]) -> None:
    one, other = trained(linear(), NAMES, **settings), trained(linear(), NAMES[::-1], **settings)
    assert list(one) == NAMES == list(other)[::-1]
    for name in NAMES:
        assert tensors_digest(one[name].delta) == tensors_digest(other[name].delta)


def test_rounds_and_seeds_draw_other_orders_of_rows() -> None:
    draws = [trained(linear(), ["north"], number, seed=seed, batch_size=8) for number, seed in ((1, 0), (2, 0), (1, 1))]
    assert len({tensors_digest(draw["north"].delta) for draw in draws}) == 3


def test_an_update_has_the_numbers_of_rows_and_steps() -> None:
    updates = trained(linear(), batch_size=8, epochs=2)
    assert {name: u.rows for name, u in updates.items()} == {c.name: len(c.train) for c in FEDERATION.clients}
    assert updates["north"].steps == 2 * 3


def test_the_loss_of_an_update_is_the_mean_over_its_rows() -> None:
    module = linear()
    (step,) = FedUL().task(FEDERATION.clients[1], FEDERATION.spec).plan(torch_generator(0))
    expected = FedUL().loss(module, step).item()
    update = trained(module, ["southern"], optimizer="sgd", learning_rate=0, batch_size=4)["southern"]
    assert_allclose(update.loss, expected, rtol=1e-12)


def test_a_learning_rate_of_zero_moves_nothing() -> None:
    update = trained(linear(), ["north"], optimizer="sgd", learning_rate=0)["north"]
    assert all(not bool(tensor.any()) for tensor in update.delta.values())


def test_frozen_weights_do_not_move_and_are_not_penalised() -> None:
    module = linear()
    module.bias.requires_grad_(False)
    delta = trained(module, ["north"], l1=0.1)["north"].delta
    assert not bool(delta["bias"].any())
    assert bool(delta["weight"].any())


def test_the_weights_that_were_given_are_left_as_they_are() -> None:
    module = linear()
    start = copy_weights(module)
    before = tensors_digest(start)
    list(engine(module).train(Broadcast(1, start), NAMES))
    assert tensors_digest(start) == before


class WithDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(2, 16), nn.Dropout(0.5), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.first(x).relu()))


def with_dropout() -> nn.Module:
    torch.manual_seed(0)
    return WithDropout().double()


def test_dropout_depends_neither_on_the_global_generator_nor_on_the_order_of_clients() -> None:
    torch.manual_seed(1)
    one = trained(with_dropout(), NAMES, batch_size=8)
    torch.manual_seed(2)
    other = trained(with_dropout(), NAMES[::-1], batch_size=8)
    assert all(tensors_digest(one[name].delta) == tensors_digest(other[name].delta) for name in NAMES)


def test_dropout_is_on_in_training_and_off_on_held_out_rows() -> None:
    module = with_dropout()
    run, start = engine(module, optimizer="sgd", learning_rate=0, batch_size="all"), copy_weights(module)
    losses = [next(iter(run.train(Broadcast(number, start), ["north"]))).loss for number in (1, 2)]
    assert losses[0] != losses[1]
    assert run.evaluate_held_out(start) == run.evaluate_held_out(start)


def test_the_global_generator_of_torch_is_unchanged() -> None:
    module = with_dropout()
    run, start = engine(module), copy_weights(module)
    before = torch.random.get_rng_state()
    list(run.train(Broadcast(1, start), NAMES))
    assert torch.equal(torch.random.get_rng_state(), before)
    stopped = run.train(Broadcast(1, start), NAMES)
    next(stopped)
    stopped.close()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_batch_norms_statistics_are_part_of_the_update() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    update = trained(module, ["north"], batch_size=8)["north"]
    assert bool(update.buffers["1.running_mean"].any())
    assert update.buffers["1.num_batches_tracked"].is_floating_point()
    assert update.buffers["1.num_batches_tracked"] == update.steps


def test_held_out_losses_are_summed_over_clients() -> None:
    module = linear()
    found = sum_held_out(engine(module).evaluate_held_out(copy_weights(module)).values())
    evaluators = [HeldOutEvaluator([set_task(c, c.held_out, FEDERATION.spec)]) for c in FEDERATION.clients]
    with torch.no_grad():
        each = [evaluator.sums(evaluator.logits(module)) for evaluator in evaluators]
    assert found.rows == sum(len(client.held_out) for client in FEDERATION.clients)
    assert_allclose(found.losses, np.sum([one.losses for one in each], axis=0), rtol=1e-12)


def test_a_reference_is_evaluated_with_its_own_weights_in_any_order() -> None:
    module, other = linear(), linear()
    nn.init.constant_(other.weight, 0.5)
    first, second = copy_weights(module), copy_weights(other)
    run = engine(module)
    alone = {key: sum_held_out(run.evaluate_held_out(w).values()) for key, w in (("a", first), ("b", second))}
    for weights, best, names in ((first, second, "ab"), (second, first, "ba"), (first, first, "aa")):
        for evaluator in (run, engine(linear())):  # with and without logits that are known already
            found = sum_held_out(evaluator.evaluate_held_out(weights, Reference(1, 0.0, 1.0, best)).values())
            assert_allclose(found.losses, alone[names[0]].losses, rtol=1e-12)
            assert_allclose(found.reference_loss, alone[names[1]].losses[TEMPERATURES.index(1.0)], rtol=1e-12)


def test_without_held_out_rows_there_is_nothing_to_sum() -> None:
    alone = replace(random_client("north"), held_out=make_rows())
    module = linear()
    found = sum_held_out(engine(module, Federation([alone], CLASSES)).evaluate_held_out(copy_weights(module)).values())
    assert (found.losses, found.rows) == ((0.0,) * len(TEMPERATURES), 0)
    assert found.loss is None
    assert found.temperature == 1


def test_single_precision_is_kept() -> None:
    federation = Federation([random_client("north", dtype=np.float32)], CLASSES)
    module = nn.Linear(2, 3)
    (update,) = engine(module, federation).train(Broadcast(1, copy_weights(module)), ["north"])
    assert {tensor.dtype for tensor in update.delta.values()} == {torch.float32}
