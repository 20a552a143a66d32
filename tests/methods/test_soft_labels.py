"""Soft labels: the optimum is the expected prior of a row's set; with pure sets it is plain cross-entropy."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from numpy.testing import assert_allclose

from fedul._utils.randomness import torch_generator
from fedul.methods.operations import cross_entropies, soft_cross_entropies
from fedul.methods.soft_labels import SoftLabels

from ..factories import gaussian_study, seeded_network
from ..worlds import repeatable, seeds
from .steps import (
    flat_gradient,
    gradient_of,
    one_row_per_set,
    padded,
    population_gradient,
    random_logits,
    world_of_equal_sets,
)


@repeatable
@given(seeds)
def test_the_optimum_is_the_expected_prior_of_the_set_of_a_row(seed: int) -> None:
    world = world_of_equal_sets(seed, 3, 5, 2)
    joint = np.hstack([world.joint(client) for client in world.clients])  # (X, sets of all clients)
    expected = joint @ np.vstack([client.priors for client in world.clients]) / joint.sum(axis=1, keepdims=True)
    optimum = torch.from_numpy(np.log(expected))
    for logits, is_optimum in ((optimum, True), (random_logits(world, seed), False)):
        slopes = [population_gradient(SoftLabels(), world, client, logits) for client in world.clients]
        assert (torch.stack(slopes).sum(0).abs().max().item() < 1e-14) == is_optimum


@repeatable
@given(seeds)
def test_the_optimum_is_nearer_to_the_overall_mix_than_the_posterior(seed: int) -> None:
    world = world_of_equal_sets(seed, 2, 4)
    (client,) = world.clients
    mix = client.priors.mean(axis=0)
    posterior = world.likelihood * mix / (world.likelihood @ mix)[:, None]
    expected = world.set_posterior(client) @ client.priors
    assert (np.abs(expected - mix) <= np.abs(posterior - mix) + 1e-12).all()


def test_with_pure_sets_it_is_plain_cross_entropy() -> None:
    study, module = one_row_per_set("north"), seeded_network()
    assert study.truth is not None
    (step,) = SoftLabels().task(study.federation.clients[0], study.federation.spec).plan(torch_generator(0))
    labels = step.targets["priors"].argmax(-1)
    expected = cross_entropies(module(step.inputs), labels).mean()
    assert sorted(labels.tolist()) == sorted(study.truth.train_labels["north"].tolist())
    assert_allclose(SoftLabels().loss(module, step).item(), expected.item(), rtol=1e-12)
    assert_allclose(gradient_of(SoftLabels(), module, step), flat_gradient(expected, module), rtol=0, atol=1e-14)


def test_padded_rows_change_neither_loss_nor_gradient() -> None:
    study, module = gaussian_study(("north",), dtype=np.float64), seeded_network()
    step = next(iter(SoftLabels().task(study.federation.clients[0], study.federation.spec).plan(torch_generator(0), 9)))
    more = padded(step)
    assert_allclose(SoftLabels().loss(module, more).item(), SoftLabels().loss(module, step).item(), rtol=1e-12)
    assert_allclose(
        gradient_of(SoftLabels(), module, more), gradient_of(SoftLabels(), module, step), rtol=0, atol=1e-14
    )


def test_a_class_of_weight_zero_may_be_impossible() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
    loss = soft_cross_entropies(logits, torch.tensor([[0.5, 0.5, 0.0]])).sum()
    (slope,) = torch.autograd.grad(loss, logits)
    assert_allclose(slope.sum().item(), 0, atol=1e-6)
    assert loss.isfinite().item()
    assert slope[0, 2].item() == 0
