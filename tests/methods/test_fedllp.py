"""FedLLP: the loss is that of whole sets, whatever the steps; with sets of one pure row it is supervised learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor, nn

import fedul
from fedul._utils.randomness import torch_generator
from fedul.core import PriorScope, UnlabeledSets
from fedul.methods import make_method
from fedul.methods.fedllp import MIN_SHARE, FedLLP
from fedul.methods.task import Task
from fedul.models import build
from fedul.models.weights import weights_of

from ..factories import dense_network, gaussian_study, seeded_network
from ..runs import largest_difference
from ..worlds import repeatable, seeds
from .steps import SETTINGS, flat_gradient, gradient_of, one_row_per_set, padded, task_of_round, with_priors_of

NAMES = ("north", "south")
STUDY = with_priors_of(gaussian_study(NAMES, rows=12, test_prior=np.array([0.5, 0.2, 0.3]), dtype=np.float64), "train")
CLIENT = STUDY.federation.clients[0]


def whole_set_loss(module: nn.Module, client: UnlabeledSets = CLIENT) -> Tensor:
    """sum_m n_m / n * CE(Pi_m, mean prediction over set m), predictions under the client's class mix."""
    offset = torch.from_numpy(np.log(client.class_mix / STUDY.federation.test_prior))
    posterior = (module(client.inputs[client.train.index]) + offset).softmax(-1)
    means = torch.stack([posterior[client.train.sets == m].mean(0) for m in range(len(client.priors))])
    losses = -(torch.from_numpy(client.priors) * means.log()).sum(-1)
    return (torch.from_numpy(client.set_priors) * losses).sum()


def round_of(method: FedLLP, module: nn.Module) -> Task:
    return task_of_round(method, method.task(CLIENT, STUDY.federation.spec), module)


def gradient_over_an_epoch(method: FedLLP, module: nn.Module, batch_size: int, seed: int = 0) -> tuple[float, Tensor]:
    """Loss and gradient over all steps of an epoch in which nothing moves, each counting by its rows."""
    loss, gradient = 0.0, torch.zeros(())
    for step in round_of(method, module).plan(torch_generator(seed), batch_size):
        share = len(step.inputs) / len(CLIENT.train)
        loss += share * method.loss(module, step).item()
        gradient = gradient + share * gradient_of(method, module, step)
    return loss, gradient


@repeatable
@given(seeds, st.integers(1, 40))
def test_at_the_rounds_start_the_steps_of_an_epoch_have_the_gradient_of_whole_sets(seed: int, batch_size: int) -> None:
    module = seeded_network(seed=seed)
    expected = whole_set_loss(module)
    loss, gradient = gradient_over_an_epoch(FedLLP(), module, batch_size, seed)
    assert_allclose(loss, expected.item(), rtol=1e-12)
    assert_allclose(gradient, flat_gradient(expected, module), rtol=0, atol=1e-14)


@pytest.mark.parametrize("of", ["rows", "population"])
def test_the_mean_is_that_of_all_rows_of_a_set_if_the_priors_speak_of_them(of: str) -> None:
    client, module = replace(CLIENT, prior_scope=PriorScope(of)), seeded_network()
    task = task_of_round(FedLLP(), FedLLP().task(client, STUDY.federation.spec), module)
    assert len(task) == len(client.train)
    offset = torch.from_numpy(np.log(client.class_mix / STUDY.federation.test_prior))
    with torch.no_grad():
        posterior = (module(client.inputs[client.all_rows.index]) + offset).softmax(-1)
    for m in range(len(client.priors)):
        assert_allclose(task.targets.sets["full"][m], posterior[client.all_rows.sets == m].mean(0), rtol=1e-12)
    rows = [step.inputs for step in FedLLP(mean="batch").task(client, STUDY.federation.spec).batches(1000)]
    assert_allclose(torch.cat(rows), client.inputs[client.train.index])


def bias(method: FedLLP, batch_size: int) -> float:
    """Return the relative error of the gradient over steps against that of whole sets, averaged over many epochs."""
    module = seeded_network()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= 2  # a new network predicts about the same for all rows, and then no mean can be far off
    expected = flat_gradient(whole_set_loss(module), module)
    epochs = [gradient_over_an_epoch(method, module, batch_size, seed)[1] for seed in range(30)]
    return ((torch.stack(epochs).mean(0) - expected).norm() / expected.norm()).item()


def test_the_mean_over_the_rows_of_small_steps_is_biased_and_the_corrected_one_is_not() -> None:
    assert bias(FedLLP(mean="batch"), 6) > 0.05
    assert bias(FedLLP(mean="full"), 6) < 1e-12


def test_with_all_rows_in_one_step_the_two_means_are_the_same() -> None:
    module, then = seeded_network(seed=0), seeded_network(seed=1)
    (step,) = round_of(FedLLP(), then).plan(torch_generator(0))
    full, batch = (gradient_of(FedLLP(mean=mean), module, step) for mean in ("full", "batch"))
    assert_allclose(full, batch, rtol=0, atol=1e-13)
    assert_allclose(full, flat_gradient(whole_set_loss(module), module), rtol=0, atol=1e-13)


def test_in_a_step_the_mean_over_a_set_is_corrected_by_how_far_the_steps_rows_have_moved() -> None:
    module, then = seeded_network(seed=0), seeded_network(seed=1)
    step = next(iter(round_of(FedLLP(), then).plan(torch_generator(0), 10)))
    offset = step.shared["offset"]
    rows = CLIENT.inputs[CLIENT.train.index]
    with torch.no_grad():
        before, now = ((net(step.inputs) + offset).softmax(-1) for net in (then, module))
        whole = (then(rows) + offset).softmax(-1)
        loss = 0.0
        for m in step.targets["set"]:
            here = step.targets["set"] == m
            mean = whole[CLIENT.train.sets == m].mean(0) + (now - before)[here].mean(0)
            loss -= (torch.from_numpy(CLIENT.priors[m]) * mean.clamp_min(MIN_SHARE).log()).sum().item() / 10
        assert_allclose(FedLLP().loss(module, step).item(), loss, rtol=1e-12)


def test_a_corrected_mean_below_zero_leaves_loss_and_gradient_finite() -> None:
    module = seeded_network()
    step = next(iter(round_of(FedLLP(), module).plan(torch_generator(0), 6)))
    sunk = replace(step, targets={**step.targets, "full": step.targets["full"] - 1})
    assert np.isfinite(FedLLP().loss(module, sunk).item())
    assert bool(gradient_of(FedLLP(), module, sunk).isfinite().all())


@pytest.mark.parametrize("mean", ["full", "batch"])
def test_padded_rows_change_neither_loss_nor_gradient(mean: str) -> None:
    method, module = FedLLP(mean=mean), seeded_network()
    step = next(iter(round_of(FedLLP(), seeded_network(seed=1)).plan(torch_generator(0), 10)))
    assert_allclose(method.loss(module, padded(step)).item(), method.loss(module, step).item(), rtol=1e-12)
    assert_allclose(gradient_of(method, module, padded(step)), gradient_of(method, module, step), rtol=0, atol=1e-14)


def test_steps_mix_rows_of_several_sets() -> None:
    steps = list(FedLLP().task(CLIENT, STUDY.federation.spec).plan(torch_generator(0), 10))
    assert all(len(step.targets["set"].unique()) > 1 for step in steps)


@pytest.mark.parametrize("mean", ["full", "batch"])
def test_with_one_pure_row_a_set_loss_and_gradient_are_those_of_supervised_learning(mean: str) -> None:
    study, module = one_row_per_set(*NAMES), seeded_network()
    method, supervised = FedLLP(mean=mean), make_method("supervised", {}, study.truth)
    for client in study.federation.clients:
        ours = task_of_round(method, method.task(client, study.federation.spec), module).plan(torch_generator(0), 8)
        theirs = supervised.task(client, study.federation.spec).plan(torch_generator(0), 8)
        for one, other in zip(ours, theirs, strict=True):
            assert_allclose(method.loss(module, one).item(), supervised.loss(module, other).item(), rtol=1e-12)
            expected = gradient_of(supervised, module, other)
            assert_allclose(gradient_of(method, module, one), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("mean", ["full", "batch"])
def test_with_one_pure_row_a_set_a_whole_run_is_supervised_learning(mean: str) -> None:
    study, settings = one_row_per_set(*NAMES), {**SETTINGS, "optimizer": "sgd", "learning_rate": 0.1, "epochs": 2}
    ours, theirs = (
        weights_of(fedul.train(study, **settings, **chosen).classifier.module)
        for chosen in ({"method": "fedllp", "method_option": {"mean": mean}}, {"method": "supervised"})
    )
    assert largest_difference(ours, theirs) < 1e-10
    assert largest_difference(ours, weights_of(build(dense_network, (2,), 3, seed=5))) > 1e-2
