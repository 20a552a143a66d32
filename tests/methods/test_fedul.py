"""FedUL's task and loss are the paper's formula, and supervised learning where every set is one class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

import fedul
from fedul._utils.randomness import torch_generator
from fedul.core import Federation, Matrix, Scaling, Study, UnlabeledSets
from fedul.engines.held_out import TEMPERATURES
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.methods import make_method
from fedul.methods.fedul import FedUL, set_task
from fedul.models import build
from fedul.models.weights import weights_of

from ..factories import dense_network, gaussian_study, make_client, make_federation, make_rows, random_client
from ..runs import largest_difference
from ..worlds import random_shares
from .steps import SETTINGS


def plain_losses(logits: Matrix, client: UnlabeledSets, sets: Matrix, test_prior: Matrix) -> Matrix:
    """-log Q (n,) by the matrices of Theorem 1."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    posterior = odds / odds.sum(axis=1, keepdims=True)
    raw = posterior @ (np.diag(client.set_priors) @ client.priors @ np.diag(1 / test_prior)).T
    q = raw / raw.sum(axis=1, keepdims=True)
    return -np.log(q[np.arange(len(q)), sets])


@pytest.fixture
def world() -> tuple[UnlabeledSets, Federation, nn.Module]:
    generator = np.random.default_rng(0)
    client = random_client("north", 50)
    torch.manual_seed(0)
    return client, Federation([client], "abc", random_shares(generator, 3), Scaling(0.5, 0.1)), nn.Linear(2, 3).double()


def test_the_loss_is_minus_log_q_of_the_papers_matrices(world: tuple[UnlabeledSets, Federation, nn.Module]) -> None:
    client, federation, module = world
    task = FedUL().task(client, federation.spec)
    (step,) = task.plan(torch_generator(0))
    order = torch.randperm(len(task), generator=torch_generator(0))
    logits = module(client.inputs[client.train.index[order]] * 0.5 + 0.1).detach().numpy()
    expected = plain_losses(logits, client, client.train.sets[order].numpy(), federation.test_prior)
    assert_allclose(FedUL().loss(module, step).item(), expected.mean(), rtol=1e-12)


def test_the_loss_is_pure(world: tuple[UnlabeledSets, Federation, nn.Module]) -> None:
    client, federation, module = world
    (step,) = FedUL().task(client, federation.spec).plan(torch_generator(0))
    assert FedUL().loss(module, step).item() == FedUL().loss(module, step).item()


def test_held_out_losses_are_the_sums_of_minus_log_q_at_every_temperature(
    world: tuple[UnlabeledSets, Federation, nn.Module],
) -> None:
    client, federation, module = world
    with torch.no_grad():
        evaluator = HeldOutEvaluator([set_task(client, client.held_out, federation.spec)])
        of_evaluator = evaluator.logits(module, batch_size=3)
        found = evaluator.sums(of_evaluator, of_evaluator.flip(-1), 2.0, batch_size=3)
        alone = evaluator.sums(of_evaluator)
        logits = module(client.inputs[client.held_out.index] * 0.5 + 0.1).numpy()
    sets = client.held_out.sets.numpy()
    losses = [plain_losses(logits / t, client, sets, federation.test_prior) for t in TEMPERATURES]
    assert_allclose(found.losses, [one.sum() for one in losses], rtol=1e-12)
    reference = plain_losses(logits[:, ::-1] / 2, client, sets, federation.test_prior)
    assert_allclose(found.squared_differences, [((one - reference) ** 2).sum() for one in losses], rtol=1e-9)
    assert_allclose(found.reference_loss, reference.sum(), rtol=1e-12)
    lowest = min(losses, key=np.sum)
    difference = lowest - reference
    assert_allclose(found.loss, lowest.mean(), rtol=1e-12)
    assert_allclose(found.difference, difference.mean(), rtol=1e-9)
    assert_allclose(found.standard_error, difference.std(ddof=1) / np.sqrt(len(difference)), rtol=1e-9)
    assert (alone.reference_loss, set(alone.squared_differences)) == (0, {0})
    assert_allclose(alone.losses, found.losses, rtol=1e-12)


def test_a_task_computes_in_the_precision_of_its_inputs() -> None:
    client = make_client("north", np.eye(3))
    single = replace(client, inputs=client.inputs.float())
    for one, kind in ((client, torch.float64), (single, torch.float32)):
        (step,) = FedUL().task(one, make_federation(one).spec).plan(torch_generator(0))
        numbers = [t for t in (step.inputs, *step.targets.values(), *step.shared.values()) if t.is_floating_point()]
        assert {t.dtype for t in numbers} == {kind}


def trained(data: Federation | Study, **settings: Any) -> Mapping[str, Tensor]:
    return weights_of(fedul.train(data, **{**SETTINGS, **settings}).classifier.module)


def pure_study(sizes: list[int]) -> Study:
    """Return a study whose sets are the classes."""
    return gaussian_study(("north", "south"), rows=sizes, priors=lambda generator: np.eye(3), dtype=np.float64)


@pytest.mark.parametrize("sizes", [[20, 20, 20], [40, 10, 25]], ids=["as the test prior", "unlike the test prior"])
def test_with_pure_sets_a_whole_run_is_supervised_learning(sizes: list[int]) -> None:
    study = pure_study(sizes)
    without, with_labels = trained(study, method="fedul"), trained(study, method="supervised")
    assert largest_difference(without, with_labels) < 1e-10
    start = build(dense_network, (2,), 3, seed=5)
    assert largest_difference(without, weights_of(start)) > 1e-2


def test_with_pure_sets_of_the_test_priors_mix_the_loss_is_plain_cross_entropy() -> None:
    study = pure_study([20, 20, 20])
    client = study.federation.clients[0]
    (step,) = FedUL().task(client, study.federation.spec).plan(torch_generator(0))
    labels = client.train.sets[torch.randperm(len(client.train), generator=torch_generator(0))]
    torch.manual_seed(0)
    module = nn.Linear(2, 3).double()
    expected = nn.functional.cross_entropy(module(step.inputs), labels)
    assert_allclose(FedUL().loss(module, step).item(), expected.item(), rtol=1e-12)


def test_renaming_the_sets_of_clients_gives_the_same_weights() -> None:
    clients = [random_client(name, 70) for name in ("north", "south")]
    order = np.array([2, 0, 3, 1])
    place = torch.from_numpy(np.argsort(order))
    renamed = [
        UnlabeledSets(
            c.name,
            c.inputs,
            make_rows(c.train.index, place[c.train.sets]),
            make_rows(c.held_out.index, place[c.held_out.sets]),
            c.priors[order],
        )
        for c in clients
    ]
    before, after = (trained(Federation(some, "abc")) for some in (clients, renamed))
    assert largest_difference(before, after) < 1e-10


def test_an_option_that_fedul_does_not_have_is_refused() -> None:
    with pytest.raises(fedul.InputError, match="unknown option of method fedul 'labels'"):
        make_method("fedul", {"labels": 0.1})


def test_an_unknown_method_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(fedul.InputError, match="unknown method 'fedull': did you mean 'fedul'"):
        make_method("fedull", {})
