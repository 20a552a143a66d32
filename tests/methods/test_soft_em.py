"""Soft-label EM: at the start of a round it has the gradient of FedUL; with pure sets it is supervised learning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedul._utils.randomness import torch_generator
from fedul.methods import make_method
from fedul.methods.fedul import FedUL
from fedul.methods.soft_em import SoftEM

from ..factories import gaussian_study, seeded_network
from ..worlds import random_priors, repeatable, seeds
from .steps import (
    gradient_of,
    one_row_per_set,
    padded,
    population_gradient,
    random_logits,
    task_of_round,
    world_of_equal_sets,
)


@repeatable
@given(seeds, st.sampled_from([0.0, 0.4]))
def test_at_the_start_of_a_round_the_gradient_is_that_of_fedul(seed: int, zeros: float) -> None:
    world = world_of_equal_sets(seed, 4, 5, 2, zeros=zeros)
    logits = random_logits(world, seed)
    for client in world.clients:
        found = population_gradient(SoftEM(), world, client, logits)
        assert_allclose(found, population_gradient(FedUL(), world, client, logits), rtol=0, atol=1e-14)


@repeatable
@given(seeds)
def test_the_true_posterior_is_a_fixed_point(seed: int) -> None:
    world = world_of_equal_sets(seed, 3, 4)
    slope = population_gradient(SoftEM(), world, world.clients[0], torch.from_numpy(np.log(world.posterior)))
    assert slope.abs().max().item() < 1e-14


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_later_in_the_round_the_soft_labels_are_those_of_its_start(zeros: float) -> None:
    study = gaussian_study(("north",), priors=lambda g: random_priors(g, 4, 3, zeros=zeros), dtype=np.float64)
    (client,), method = study.federation.clients, SoftEM()
    start, now = seeded_network(seed=1), seeded_network(seed=2)
    step = next(iter(task_of_round(method, method.task(client, study.federation.spec), start).plan(torch_generator(0))))
    with torch.no_grad():
        odds = start(step.inputs).exp() * torch.from_numpy(client.priors)[step.targets["set"]]
        soft = odds / odds.sum(-1, keepdim=True)  # the test prior is uniform
        predicted = (now(step.inputs) + torch.from_numpy(np.log(client.class_mix))).log_softmax(-1)
        assert_allclose(step.targets["soft"], soft, rtol=1e-12)
        assert_allclose(method.loss(now, step).item(), -(soft * predicted).sum(-1).mean().item(), rtol=1e-12)
    assert_allclose(gradient_of(method, now, padded(step)), gradient_of(method, now, step), rtol=0, atol=1e-14)


def test_with_pure_sets_loss_and_gradient_are_those_of_supervised_learning() -> None:
    study, module, method = one_row_per_set("north", "south"), seeded_network(), SoftEM()
    supervised = make_method("supervised", {}, study.truth)
    for client in study.federation.clients:
        ours = task_of_round(method, method.task(client, study.federation.spec), seeded_network(seed=3))
        theirs = supervised.task(client, study.federation.spec)
        pairs = zip(ours.plan(torch_generator(0), 8), theirs.plan(torch_generator(0), 8), strict=True)
        for one, other in pairs:
            assert_allclose(method.loss(module, one).item(), supervised.loss(module, other).item(), rtol=1e-12)
            expected = gradient_of(supervised, module, other)
            assert_allclose(gradient_of(method, module, one), expected, rtol=0, atol=1e-14)
