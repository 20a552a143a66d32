"""fedul-combined: each term is its formula, and one class mix for all carries what clients tell between them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.testing import assert_allclose
from torch import nn

import fedul
from fedul._utils.randomness import torch_generator
from fedul.core import set_loss
from fedul.errors import InputError
from fedul.methods.consistency import consistency_loss
from fedul.methods.fedllp import FedLLP
from fedul.methods.fedul import FedUL
from fedul.methods.fedul_combined import FedULCombined
from fedul.methods.operations import prior_shift
from fedul.methods.task import Step, Task

from ..factories import gaussian_study, seeded_network
from ..worlds import Client, World, random_world, repeatable, seeds
from .steps import flat_gradient, gradient_of, task_of_round

STUDY = gaussian_study(rows=12, test_prior=np.array([0.5, 0.2, 0.3]), dtype=np.float64)
FEDERATION = STUDY.federation
CLIENT = FEDERATION.clients[0]


def combined(**weights: float | bool) -> FedULCombined:
    """Return the method with only these weights above 0."""
    return FedULCombined(**{"set_weight": 0.0, "proportion_weight": 0.0, **weights})  # type: ignore[arg-type]


def first_step(method: FedULCombined | FedUL | FedLLP, module: nn.Module) -> Step:
    task: Task = method.task(CLIENT, FEDERATION.spec)
    if method.needs_logits({}):
        task = task_of_round(method, task, module)
    return next(iter(task.plan(torch_generator(0), 8)))


def test_with_the_set_term_alone_and_the_clients_own_mix_it_is_fedul() -> None:
    module = seeded_network()
    method = combined(set_weight=1.0, common_mix=False)
    found, expected = (gradient_of(each, module, first_step(each, module)) for each in (method, FedUL()))
    assert_allclose(found, expected, rtol=1e-12)


def test_with_the_proportion_term_alone_and_the_clients_own_mix_it_is_fedllp() -> None:
    module = seeded_network()
    method = combined(proportion_weight=1.0, common_mix=False)
    found, expected = (gradient_of(each, module, first_step(each, module)) for each in (method, FedLLP()))
    assert_allclose(found, expected, rtol=1e-12)


def test_the_soft_term_is_the_cross_entropy_with_the_priors_under_the_common_mix() -> None:
    module, method = seeded_network(), combined(soft_weight=1.0)
    step = first_step(method, module)
    mix = torch.from_numpy(FEDERATION.spec.class_mix / FEDERATION.test_prior).log()
    expected = -(step.targets["priors"] * (module(step.inputs) + mix).log_softmax(-1)).sum(-1).mean()
    assert_allclose(method.loss(module, step).item(), expected.item(), rtol=1e-12)


def test_the_loss_is_the_weighted_sum_of_its_terms() -> None:
    module = seeded_network()
    weights = {"set_weight": 0.4, "proportion_weight": 0.7, "consistency_weight": 0.2, "soft_weight": 0.1}
    method = FedULCombined(**weights)
    step = first_step(method, module)
    parts = [(value, combined(**{name: 1.0})) for name, value in weights.items() if name != "consistency_weight"]
    total = sum(value * part.loss(module, step).item() for value, part in parts)
    half = step.first_half(0)  # consistency is that of a half of the rows
    assert len(half.inputs) == (len(step.inputs) + 1) // 2
    change = consistency_loss(module, half, module(half.inputs), step.shared["length"], step.shared["own"]).mean()
    assert_allclose(method.loss(module, step).item(), total + 0.2 * change.item(), rtol=1e-10)


def common_losses(world: World, client: Client, logits: torch.Tensor, mix: np.ndarray) -> torch.Tensor:
    """Return the set term (X, M) of all inputs in all sets of a client, under a mix that all clients share."""
    joint = prior_shift(client.priors, world.test_prior)
    marginal = prior_shift(mix, world.test_prior)
    return torch.stack([set_loss(logits, row, marginal) for row in joint], dim=1)


@repeatable
@given(seeds)
def test_the_true_posterior_is_a_stationary_point_of_the_set_term_over_all_clients(seed: int) -> None:
    world = random_world(np.random.default_rng(seed), 3, [2, 3])
    mix = np.mean([client.set_priors @ client.priors for client in world.clients], axis=0)
    logits = torch.from_numpy(np.log(world.posterior)).requires_grad_()
    loss = world.expected_loss(lambda client, z: common_losses(world, client, z, mix), logits)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.abs().max() < 1e-12


def test_clients_of_one_set_each_determine_the_classifier_together_under_one_mix() -> None:
    # A softmax over the single set of a client is constant, so FedUL learns nothing from these clients.
    priors = [np.array([[0.9, 0.1]]), np.array([[0.2, 0.8]])]
    generator = np.random.default_rng(0)
    clients = []
    for name, prior in zip("ab", priors, strict=True):
        labels = generator.choice(2, 400, p=prior[0])
        rows = (generator.normal(size=(400, 1)) + 3 * labels[:, None]).astype(np.float32)
        clients.append(fedul.UnlabeledSets.from_arrays(name, rows, np.zeros(400, np.int64), prior))
    federation = fedul.Federation(clients, ["low", "high"])
    run = fedul.train(federation, model="linear", seed=0)
    probability = run.classifier.predict_proba(np.array([[0.0], [3.0]], dtype=np.float32))
    assert probability[0, 0] > 0.7
    assert probability[1, 1] > 0.7


def test_perturbations_scale_with_the_features() -> None:
    client = CLIENT
    larger = replace(client, inputs=client.inputs * 10)
    method = combined(set_weight=1.0, consistency_weight=1.0)
    lengths = [float(method.task(each, FEDERATION.spec).targets.client["length"]) for each in (client, larger)]
    assert_allclose(lengths[1], 10 * lengths[0])
    rows = client.inputs[client.train.index]
    assert_allclose(lengths[0], 0.2 * math.sqrt(rows.var(0, correction=0).sum().item()))


def test_a_class_that_is_not_at_a_client_keeps_the_loss_finite() -> None:
    priors = CLIENT.priors.copy()
    priors[:, 1] += priors[:, 2]
    priors[:, 2] = 0
    client = replace(CLIENT, priors=priors)
    module = seeded_network()
    method = FedULCombined(consistency_weight=0.3, soft_weight=0.1, common_mix=False)
    task = task_of_round(method, method.task(client, FEDERATION.spec), module)
    step = next(iter(task.plan(torch_generator(0), 8)))
    assert flat_gradient(method.loss(module, step), module).isfinite().all()


def test_tables_have_a_choice_and_images_have_not() -> None:
    method = FedULCombined()
    tables, images = method.alternatives((7,), 20), method.alternatives((1, 8, 8), 20)
    assert [alternative.name for alternative in tables] == ["linear", "network", "consistent", "likelihood"]
    assert [alternative.name for alternative in images] == ["consistent"]
    # A weakly informative prior of variance 2.5^2, with sets as observations.
    assert_allclose(tables[0].training["l2"], 1 / (2 * 2.5**2 * 20))


def test_a_method_without_any_term_is_refused() -> None:
    with pytest.raises(InputError, match="must be above 0"):
        combined(consistency_weight=1.0)
