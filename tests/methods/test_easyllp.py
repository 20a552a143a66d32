"""EasyLLP: over random bags the debiased label of a row is on average its class posterior, and so is the loss."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedul._utils.randomness import torch_generator
from fedul.methods.easyllp import EasyLLP, debiased_labels

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
@given(seeds, st.integers(2, 3), st.integers(1, 3))
def test_over_all_random_bags_the_debiased_label_and_loss_are_unbiased(seed: int, classes: int, size: int) -> None:
    world = world_of_equal_sets(seed, classes, 1)
    likelihood, mix = world.likelihood[:3] / world.likelihood[:3].sum(axis=0), world.test_prior
    joint = likelihood * mix  # (X, K): p(x, k)
    predicted = np.random.default_rng(seed).dirichlet(np.ones(classes), 3)  # p of any classifier
    mean_label, mean_loss = np.zeros_like(joint), 0.0
    for bag in product(np.ndindex(joint.shape), repeat=size):  # all rows (x, y) of a bag
        chance = np.prod([joint[row] for row in bag])
        shares = np.bincount([y for _, y in bag], minlength=classes) / size
        (label,) = debiased_labels(shares[None], np.array([size]), mix)
        x = bag[0][0]
        mean_label[x] += chance * label
        mean_loss += chance * (predicted[x] @ predicted[x] - 2 * predicted[x] @ label)
    assert_allclose(mean_label, joint, atol=1e-14)
    scores = np.square(predicted).sum(axis=1, keepdims=True) - 2 * predicted  # Brier score of each class
    assert_allclose(mean_loss, (joint * scores).sum(), atol=1e-14)


@repeatable
@given(seeds)
def test_debiased_labels_sum_to_one(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shares, mix = generator.dirichlet(np.ones(4), 5), generator.dirichlet(np.ones(4))
    assert_allclose(debiased_labels(shares, generator.integers(1, 90, 5), mix).sum(axis=1), 1, atol=1e-12)


@repeatable
@given(seeds)
def test_where_sets_are_not_random_bags_the_optimum_exaggerates_the_expected_prior(seed: int) -> None:
    world = world_of_equal_sets(seed, 3, 4)
    (client,), inputs = world.clients, len(world.likelihood)
    mix = client.priors.mean(axis=0)
    excess = world.set_posterior(client) @ client.priors - mix
    logits = random_logits(world, seed)
    posterior = (logits + torch.from_numpy(np.log(mix / world.test_prior))).softmax(-1)
    slope = 2 * (posterior - torch.from_numpy(inputs * excess + mix))  # of the Brier score in p; sets have X rows
    slope = posterior * (slope - (posterior * slope).sum(-1, keepdim=True))  # in the logits
    slope = torch.from_numpy(world.joint(client).sum(axis=1, keepdims=True)) * slope
    assert_allclose(population_gradient(EasyLLP(), world, client, logits), slope, rtol=0, atol=1e-13)


def test_with_one_pure_row_a_set_it_is_supervised_learning_by_the_brier_score() -> None:
    study, module = one_row_per_set("north"), seeded_network()
    (client,) = study.federation.clients
    (step,) = EasyLLP().task(client, study.federation.spec).plan(torch_generator(0))
    truth = torch.from_numpy(client.priors)[step.targets["set"]]
    shift = torch.from_numpy(np.log(client.class_mix / study.federation.test_prior))
    expected = (((module(step.inputs) + shift).softmax(-1) - truth).square().sum(-1) - 1).mean()
    assert_allclose(EasyLLP().loss(module, step).item(), expected.item(), rtol=1e-12)
    assert_allclose(gradient_of(EasyLLP(), module, step), flat_gradient(expected, module), rtol=0, atol=1e-14)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_loss_is_bounded_and_padded_rows_do_not_change_it(scale: float) -> None:
    study, module = gaussian_study(("north",), rows=40, dtype=np.float64), seeded_network()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= scale
    step = next(iter(EasyLLP().task(study.federation.clients[0], study.federation.spec).plan(torch_generator(0), 10)))
    largest = 2 * step.targets["debiased"].abs().max().item() + 1
    assert abs(EasyLLP().loss(module, step).item()) <= largest
    found = gradient_of(EasyLLP(), module, step)
    assert bool(found.isfinite().all())
    assert_allclose(gradient_of(EasyLLP(), module, padded(step)), found, rtol=0, atol=1e-12)
