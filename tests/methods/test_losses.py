"""FedUL's scores of the predicted set: two are proper, and recover the class posterior; the published code's is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor

from fedul.core import Matrix, Transition
from fedul.errors import InputError
from fedul.methods import METHODS, make_method
from fedul.methods.fedul import LOSSES, FedUL, set_probabilities
from fedul.methods.task import Step

from ..worlds import Client, World, least, random_world, repeatable, seeds, worlds

PROPER = ("log", "brier")
WORLDS = {
    "square": random_world(np.random.default_rng(0), 4, [4], inputs=3, purity=0.5),
    "tall": random_world(np.random.default_rng(1), 4, [9], inputs=3, purity=0.5),
    "with zeros": random_world(np.random.default_rng(2), 4, [4, 6], inputs=3, zeros=0.5, purity=0.4),
    "different at each client": random_world(np.random.default_rng(3), 3, [3, 7, 5], inputs=3, purity=0.4),
}
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
every_loss = pytest.mark.parametrize("loss", LOSSES)


def rows_of(world: World, client: Client, sets: Tensor) -> Step:
    """A step whose rows are in these sets."""
    q = Transition(client.priors, client.set_priors, world.test_prior)
    shared = {"joint": q.joint, "marginal": q.marginal}
    return Step(torch.zeros(len(sets), 1), {"set": sets, "joint": q.joint[sets]}, shared)


def in_every_set(loss: str, world: World, client: Client, logits: Tensor) -> Tensor:
    """Losses (X, M) of every input in every set, from logits (X, K)."""
    count = len(client.priors)
    step = rows_of(world, client, torch.arange(count).repeat(len(logits)))
    return LOSSES[loss](logits.repeat_interleave(count, 0), step).reshape(-1, count)


def expected_loss(world: World, loss: str, logits: Tensor) -> Tensor:
    return world.expected_loss(partial(in_every_set, loss, world), logits)


def optimum(world: World, loss: str) -> Matrix:
    """The posterior (X, K) with the least expected loss, one free logit vector an input."""
    best = least(partial(expected_loss, world, loss), np.zeros(world.likelihood.shape), gtol=1e-12)
    return best.softmax(-1).numpy()


def slope_at_the_posterior(world: World, loss: str) -> float:
    logits = torch.from_numpy(np.log(world.posterior)).requires_grad_()
    (gradient,) = torch.autograd.grad(expected_loss(world, loss, logits), logits)
    return float(gradient.abs().max())


@pytest.mark.parametrize("loss", PROPER)
@every_world
def test_the_optimum_of_a_proper_loss_is_the_class_posterior(world: World, loss: str) -> None:
    assert_allclose(optimum(world, loss), world.posterior, rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", PROPER)
@repeatable
@given(world=worlds())
def test_the_class_posterior_is_a_stationary_point_of_a_proper_loss(loss: str, world: World) -> None:
    assert slope_at_the_posterior(world, loss) < 1e-12


@every_world
def test_the_optimum_of_the_authors_loss_is_over_confident(world: World) -> None:
    found = optimum(world, "authors")
    assert np.abs(found - world.posterior).max() > 0.05
    assert found.max(axis=1).mean() > world.posterior.max(axis=1).mean() + 0.05
    assert slope_at_the_posterior(world, "authors") > 1e-3


@pytest.mark.parametrize("posterior", [0.5, 0.55, 0.6, 0.7])
def test_with_two_pure_sets_the_authors_loss_adds_half_the_log_odds_to_one_half(posterior: float) -> None:
    # p log(e^q + e^(1-q)) less p q + (1-p) (1-q) is least where tanh(q - 1/2) = 2 p - 1.
    likelihood = np.array([[posterior, 1 - posterior], [1 - posterior, posterior]])
    world = World(likelihood, np.full(2, 0.5), [Client(np.eye(2), np.full(2, 0.5))])
    expected = 0.5 + 0.5 * np.log(posterior / (1 - posterior))
    assert_allclose(optimum(world, "authors")[0, 0], expected, atol=1e-6)


def random_rows(seed: int, client: Client, rows: int = 7) -> tuple[Tensor, Tensor]:
    """Logits (n, K) and the set each row is in (n,)."""
    sets, classes = client.priors.shape
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(sets, (rows,), generator=generator)


@repeatable
@given(worlds(), seeds)
def test_the_predicted_sets_are_those_of_the_transition(world: World, seed: int) -> None:
    for client in world.clients:
        logits, sets = random_rows(seed, client)
        predicted, own = set_probabilities(logits, rows_of(world, client, sets))
        log_q = Transition(client.priors, client.set_priors, world.test_prior)(logits)
        assert_allclose(predicted.sum(-1), 1, rtol=0, atol=1e-12)
        assert_allclose(predicted, log_q.exp(), rtol=0, atol=1e-12)
        assert_allclose(own, log_q.exp()[torch.arange(len(sets)), sets], rtol=0, atol=1e-12)


def by_hand(loss: str, q: Matrix, own: int) -> float:
    """The loss of a row in set `own`, from the posterior of all sets, as the papers write it."""
    if loss == "log":
        return -np.log(q[own])
    if loss == "brier":
        return float(((q - np.eye(len(q))[own]) ** 2).sum() - 1)
    return -np.log(np.exp(q[own]) / np.exp(q).sum())


@every_loss
@repeatable
@given(world=worlds(), seed=seeds)
def test_a_loss_is_its_formula(loss: str, world: World, seed: int) -> None:
    for client in world.clients:
        logits, sets = random_rows(seed, client)
        q = Transition(client.priors, client.set_priors, world.test_prior)(logits).exp().numpy()
        expected = [by_hand(loss, row, m) for row, m in zip(q, sets.tolist(), strict=True)]
        assert_allclose(LOSSES[loss](logits, rows_of(world, client, sets)), expected, rtol=1e-9, atol=1e-12)


@every_loss
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_the_gradient_of_a_loss_is_that_of_finite_differences(loss: str, zeros: float) -> None:
    world = random_world(np.random.default_rng(4), 4, [5], zeros=zeros)
    logits, sets = random_rows(0, world.clients[0])
    step = rows_of(world, world.clients[0], sets)
    assert torch.autograd.gradcheck(lambda z: LOSSES[loss](z, step), (logits.requires_grad_(),))


@every_loss
@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
def test_a_class_that_a_client_does_not_have_leaves_loss_and_gradient_finite(loss: str, size: float) -> None:
    world = random_world(np.random.default_rng(0), 3, [4])
    priors = np.array([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0], [0.6, 0.4, 0.0]])
    client = Client(priors, world.clients[0].set_priors)
    logits, sets = random_rows(0, client)
    logits = (size * logits).requires_grad_()
    losses = LOSSES[loss](logits, rows_of(world, client, sets))
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert bool(losses.isfinite().all())
    assert bool(gradient.isfinite().all())
    assert_allclose(gradient[:, 2], 0, atol=0)


@repeatable
@given(seeds, st.integers(2, 6))
def test_with_pure_sets_briers_score_is_that_of_the_classes_in_the_clients_mix(seed: int, classes: int) -> None:
    world = random_world(np.random.default_rng(seed), classes, [classes])
    client = Client(np.eye(classes), world.clients[0].set_priors)
    logits, labels = random_rows(seed, client)
    posterior = (logits + torch.from_numpy(np.log(client.set_priors / world.test_prior))).softmax(-1)
    expected = (posterior - torch.nn.functional.one_hot(labels, classes)).square().sum(-1) - 1
    found = LOSSES["brier"](logits, rows_of(world, client, labels))
    assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("loss", "low", "high"), [("brier", -1.0, 1.0), ("authors", 0.0, np.log(9) + 1)])
@repeatable
@given(world=worlds(), seed=seeds)
def test_bounded_losses_stay_in_their_bounds(loss: str, low: float, high: float, world: World, seed: int) -> None:
    for client in world.clients:
        logits, sets = random_rows(seed, client)
        losses = LOSSES[loss](50 * logits, rows_of(world, client, sets))
        assert low - 1e-12 <= losses.min().item() <= losses.max().item() <= high + 1e-12


@every_loss
def test_the_loss_option_sets_the_score_of_a_method(loss: str) -> None:
    assert make_method("fedul", {}, loss=loss) == FedUL(loss)
    for name in ("fedul-refined", "fedul-combined"):
        assert getattr(make_method(name, {}, loss=loss), "score", None) == loss


@pytest.mark.parametrize("method", [name for name in METHODS if not name.startswith("fedul")])
def test_a_method_with_a_fixed_loss_refuses_another(method: str) -> None:
    with pytest.raises(
        InputError,
        match=f"^loss: 'brier' is a loss of fedul, -refined and -combined; method {method} has its own",
    ):
        make_method(method, {}, loss="brier")


def test_an_unknown_score_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="score: 'hinge' is not one of log, brier, authors"):
        make_method("fedul", {"score": "hinge"})


@every_loss
def test_the_loss_of_a_step_is_the_weighted_mean_over_its_rows(loss: str) -> None:
    world = random_world(np.random.default_rng(0), 3, [4])
    logits, sets = random_rows(0, world.clients[0])
    step = rows_of(world, world.clients[0], sets)
    weight = torch.tensor([0.5, 0.0, 0.25, 0.25, 0.0, 0.0, 0.0], dtype=torch.float64)
    weighted = Step(step.inputs, step.targets, step.shared, weight)
    predict: Callable[[Tensor], Tensor] = lambda inputs: logits  # noqa: E731
    expected = (LOSSES[loss](logits, step) * weight).sum().item()
    assert_allclose(FedUL(loss).loss(predict, weighted).item(), expected, rtol=1e-12)
