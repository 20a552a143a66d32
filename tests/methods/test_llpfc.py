"""LLPFC: the transition of a group gives the posterior of its sets; with one group it is FedUL."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedul._utils.randomness import torch_generator
from fedul.core import TaskSpec
from fedul.methods import make_method
from fedul.methods.fedul import FedUL
from fedul.methods.llpfc import LLPFC, closest_mix, transition_matrix
from fedul.methods.task import Task

from ..factories import gaussian_study, make_client, seeded_network
from ..worlds import random_priors, random_shares, repeatable, seeds
from .steps import gradient_of, padded, population_gradient, population_loss, random_logits, world_of_equal_sets


def task_of(method: LLPFC, priors: np.ndarray, rows: int | list[int] = 4) -> Task:
    client = make_client("north", priors, rows)
    return method.task(client, TaskSpec("abc", np.full(3, 1 / 3), (2,)))


@repeatable
@given(seeds, st.integers(2, 5), st.integers(1, 5))
def test_the_transition_turns_the_class_posterior_of_a_group_into_that_of_its_sets(
    seed: int, classes: int, sets: int
) -> None:
    generator = np.random.default_rng(seed)
    priors, weights = random_priors(generator, sets, classes, zeros=0.4), random_shares(generator, sets)
    likelihood = generator.dirichlet(np.ones(6), classes).T  # (X, K)
    mix = priors.T @ weights
    joint = likelihood @ priors.T * weights  # (X, J)
    classes_given_x = likelihood * mix / (likelihood @ mix)[:, None]
    transition = transition_matrix(priors, weights)
    assert_allclose(transition.sum(axis=0), 1)
    assert_allclose(classes_given_x @ transition.T, joint / joint.sum(axis=1, keepdims=True), atol=1e-12)


@repeatable
@given(seeds, st.integers(2, 6))
def test_the_closest_mix_is_the_least_squares_optimum_on_the_simplex(seed: int, classes: int) -> None:
    generator = np.random.default_rng(seed)
    priors, mix = random_priors(generator, classes, classes), random_shares(generator, classes)
    weights = closest_mix(priors, mix)
    assert weights.min() >= 0
    assert_allclose(weights.sum(), 1)
    # No direction within the simplex decreases the error.
    slope = priors @ (priors.T @ weights - mix)
    assert slope.min() >= slope @ weights - 1e-6


@repeatable
@given(seeds)
def test_a_mix_within_reach_is_reached(seed: int) -> None:
    generator = np.random.default_rng(seed)
    priors, weights = random_priors(generator, 4, 4, purity=0.5), random_shares(generator, 4)
    assert_allclose(closest_mix(priors, weights @ priors), weights, atol=1e-9)


@repeatable
@given(seeds, st.integers(1, 4))
def test_with_at_most_one_group_loss_and_gradient_are_those_of_fedul(seed: int, sets: int) -> None:
    world = world_of_equal_sets(seed, 4, sets, purity=0.5)
    (client,), logits = world.clients, random_logits(world, seed)
    ours, theirs = (population_loss(method, world, client, logits).item() for method in (LLPFC(), FedUL()))
    assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    found = population_gradient(LLPFC(), world, client, logits)
    assert_allclose(found, population_gradient(FedUL(), world, client, logits), rtol=0, atol=1e-9)


def test_with_one_pure_set_per_class_it_is_supervised_learning() -> None:
    study = gaussian_study(("north",), rows=[5, 9, 14], priors=lambda _: np.eye(3), dtype=np.float64)
    module, (client,) = seeded_network(), study.federation.clients
    supervised = make_method("supervised", {}, study.truth)
    (step,) = LLPFC().task(client, study.federation.spec).plan(torch_generator(0))
    (other,) = supervised.task(client, study.federation.spec).plan(torch_generator(0))
    assert_allclose(LLPFC().loss(module, step).item(), supervised.loss(module, other).item(), rtol=1e-6)
    assert_allclose(gradient_of(LLPFC(), module, step), gradient_of(supervised, module, other), rtol=0, atol=1e-6)


@repeatable
@given(seeds, st.sampled_from(["approx", "uniform"]), st.integers(1, 11))
def test_rows_have_weight_one_on_average_and_sets_beyond_whole_groups_have_none(
    seed: int, noisy_prior: str, sets: int
) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.integers(1, 9, sets).tolist()
    targets = task_of(LLPFC(noisy_prior, 4), random_priors(generator, sets, 3, zeros=0.2), rows).targets
    weight = targets.sets["set_weight"].double()  # (M, groupings)
    assert weight.min() >= 0
    assert_allclose(weight[targets.rows["set"]].mean(0), 1, rtol=1e-6)
    used = (weight > 0).sum(0).tolist()
    most = sets - sets % min(sets, 3)
    assert used == [most] * 4 if noisy_prior == "uniform" else max(used) <= most


def test_a_group_of_equal_weights_gives_every_set_the_same_weight() -> None:
    weight = task_of(LLPFC("uniform", 1), np.eye(3)[[0, 1, 2]], [2, 4, 6]).targets.sets["set_weight"][:, 0]
    assert_allclose(weight * torch.tensor([2, 4, 6]), 4)  # 12 rows, three sets


def test_the_groupings_differ_and_follow_from_the_seed_and_the_name() -> None:
    priors = random_priors(np.random.default_rng(0), 9, 3)
    tables = [task_of(LLPFC(seed=seed), priors).targets.sets["transition"] for seed in (0, 0, 1)]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    assert len({tuple(tables[0][:, i].flatten().tolist()) for i in range(10)}) == 10


def test_an_epoch_uses_one_grouping_and_epochs_use_all_of_them() -> None:
    task, generator = task_of(LLPFC(groupings=3), random_priors(np.random.default_rng(0), 9, 3)), torch_generator(0)
    epochs = [{int(g) for s in task.plan(generator, 5) for g in s.targets["grouping"]} for _ in range(20)]
    assert {len(epoch) for epoch in epochs} == {1}
    assert set().union(*epochs) == {0, 1, 2}


@pytest.mark.parametrize("noisy_prior", ["approx", "uniform"])
def test_the_loss_is_the_weighted_forward_correction(noisy_prior: str) -> None:
    study = gaussian_study(("north",), rows=6, sets=8, dtype=np.float64)
    (client,), module, method = study.federation.clients, seeded_network(), LLPFC(noisy_prior, 3)
    step = next(iter(method.task(client, study.federation.spec).plan(torch_generator(0), 10)))
    posterior = (module(step.inputs) + torch.from_numpy(np.log(client.class_mix * 3))).softmax(-1)
    expected = torch.zeros(())
    for i in range(10):
        grouping = int(step.targets["grouping"][i])
        row = step.targets["transition"][i, grouping].exp()
        expected = expected - step.targets["set_weight"][i, grouping] * (row @ posterior[i]).log() / 10
    assert_allclose(method.loss(module, step).item(), expected.item(), rtol=1e-12)
    found = gradient_of(method, module, step)
    assert_allclose(gradient_of(method, module, padded(step)), found, rtol=0, atol=1e-14)


def test_a_class_that_a_group_lacks_leaves_loss_and_gradient_finite() -> None:
    priors = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0, 1, 0], [0, 0, 1], [0, 0.1, 0.9], [0.1, 0, 0.9]])
    study = gaussian_study(("north",), priors=lambda _: priors, dtype=np.float64)
    module = seeded_network()
    for noisy_prior in ("approx", "uniform"):
        method = LLPFC(noisy_prior)
        for step in method.task(study.federation.clients[0], study.federation.spec).plan(torch_generator(0), 10):
            assert np.isfinite(method.loss(module, step).item())
            assert bool(gradient_of(method, module, step).isfinite().all())
