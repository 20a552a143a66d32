"""RCM: the expected loss at the true posterior is the risk under the test prior, and its gradient there is zero."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor

from fedul._utils.randomness import torch_generator
from fedul.methods.fedul import FedUL
from fedul.methods.operations import soft_cross_entropies
from fedul.methods.rcm import RCM, importance_weights

from ..factories import gaussian_study, seeded_network
from ..worlds import World, random_priors, repeatable, seeds
from .steps import (
    gradient_of,
    one_row_per_set,
    padded,
    population_gradient,
    population_loss,
    random_logits,
    world_of_equal_sets,
)


def risk(world: World, logits: Tensor) -> Tensor:
    """Return the expected cross-entropy under the test prior."""
    joint = torch.from_numpy(world.likelihood * world.test_prior)
    return -(joint * logits.log_softmax(-1)).sum()


@repeatable
@given(seeds)
def test_at_the_true_posterior_loss_and_gradient_of_every_client_are_those_of_the_risk(seed: int) -> None:
    world = world_of_equal_sets(seed, 3, 5, 2, 1)
    truth = torch.from_numpy(np.log(world.posterior))
    for client in world.clients:
        assert_allclose(population_loss(RCM(), world, client, truth), risk(world, truth), rtol=1e-12)
        assert population_gradient(RCM(), world, client, truth).abs().max().item() < 1e-14


@repeatable
@given(seeds)
def test_weights_of_the_true_posterior_give_the_risk_of_any_classifier(seed: int) -> None:
    world = world_of_equal_sets(seed, 4, 6)
    (client,), other = world.clients, random_logits(world, seed)
    densities = world.likelihood[:, None, :] * client.priors  # (X, M, K): p(x, k | m)
    mix = client.priors.mean(axis=0)
    weights = torch.from_numpy(densities / densities.sum(axis=-1, keepdims=True) * world.test_prior / mix)
    losses = soft_cross_entropies(other[:, None].expand(weights.shape), weights)
    assert_allclose((torch.from_numpy(world.joint(client)) * losses).sum(), risk(world, other), rtol=1e-12)


@repeatable
@given(seeds, st.sampled_from([0.0, 0.3]))
def test_where_the_mix_is_the_test_prior_the_gradient_is_that_of_fedul(seed: int, zeros: float) -> None:
    world = world_of_equal_sets(seed, 3, 6, zeros=zeros)
    (client,) = world.clients
    mix = client.priors.mean(axis=0)
    assume((mix > 0).all())
    world, logits = replace(world, test_prior=mix), random_logits(world, seed)
    found = population_gradient(RCM(), world, client, logits)
    assert_allclose(found, population_gradient(FedUL(), world, client, logits), rtol=0, atol=1e-14)


def test_with_pure_sets_rows_are_weighted_to_the_test_prior() -> None:
    study, module = one_row_per_set("north"), seeded_network()
    (client,) = study.federation.clients
    (step,) = RCM().task(client, study.federation.spec).plan(torch_generator(0))
    labels = torch.from_numpy(client.priors.argmax(axis=1))[step.targets["set"]]
    weight = torch.from_numpy(study.federation.test_prior / client.class_mix)[labels]
    log_posterior = module(step.inputs).log_softmax(-1)
    expected = -(weight * log_posterior.gather(-1, labels[:, None])[:, 0]).mean()
    assert_allclose(RCM().loss(module, step).item(), expected.item(), rtol=1e-12)


@pytest.mark.parametrize("zeros", [0.0, 0.7])
def test_weights_have_no_gradient_and_padded_rows_no_weight(zeros: float) -> None:
    study = gaussian_study(("north",), priors=lambda g: random_priors(g, 4, 3, zeros=zeros), dtype=np.float64)
    module = seeded_network()
    step = next(iter(RCM().task(study.federation.clients[0], study.federation.spec).plan(torch_generator(0), 10)))
    weights = importance_weights(module(step.inputs).detach(), step)
    assert bool(weights.isfinite().all())
    logits = module(step.inputs)
    loss = step.mean(soft_cross_entropies(logits, weights))
    slope = torch.autograd.grad(loss, list(module.parameters()))
    found = gradient_of(RCM(), module, step)
    assert_allclose(found, torch.cat([g.flatten() for g in slope]), rtol=0, atol=1e-14)
    assert_allclose(gradient_of(RCM(), module, padded(step)), found, rtol=0, atol=1e-14)


def test_a_client_learns_nothing_about_a_class_that_it_does_not_have() -> None:
    world = world_of_equal_sets(0, 3, 2)
    (client,), truth = world.clients, torch.from_numpy(np.log(world.posterior))
    client.priors[:] = [[0.7, 0.3, 0.0], [0.2, 0.8, 0.0]]
    assert population_gradient(RCM(), world, client, truth).abs().max().item() < 1e-14
    slope = population_gradient(RCM(), world, client, random_logits(world, 0))
    assert slope[:, 2].tolist() == [0.0] * len(slope)
    assert slope[:, 0].abs().min().item() > 1e-6
