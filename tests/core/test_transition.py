"""The theorems of the paper, checked against finite worlds in which every probability is known."""

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
from torch.nn.functional import cross_entropy

from fedul.core import Matrix, Transition, set_loss
from fedul.core.priors import diagnose_priors, joint_rank

from ..worlds import (
    Client,
    World,
    confusable_directions,
    least,
    random_priors,
    random_shares,
    random_world,
    repeatable,
    seeds,
    twin_of,
    worlds,
)

Loss = Callable[[World, Client, Tensor], Tensor]
"""Losses (X, M) of every input in every set, from logits (X, K)."""


def transition(world: World, client: Client) -> Transition:
    return Transition(client.priors, client.set_priors, world.test_prior)


def set_probabilities(world: World, client: Client, posterior: Matrix) -> Matrix:
    return transition(world, client)(torch.from_numpy(np.log(posterior))).exp().numpy()


def largest(difference: Matrix | Tensor) -> float:
    return float(abs(difference).max())


@repeatable
@given(worlds())
def test_the_transition_of_the_class_posterior_is_the_true_set_posterior(world: World) -> None:
    for client in world.clients:
        found = set_probabilities(world, client, world.posterior)
        assert_allclose(found, world.set_posterior(client), rtol=0, atol=1e-12)


def minus_log_q(world: World, client: Client, logits: Tensor) -> Tensor:
    return -transition(world, client)(logits)


def set_by_set(world: World, client: Client, logits: Tensor) -> Tensor:
    q = transition(world, client)
    return torch.stack([set_loss(logits, joint.expand_as(logits), q.marginal) for joint in q.joint], dim=1)


def second_softmax(world: World, client: Client, logits: Tensor) -> Tensor:
    return -transition(world, client)(logits).exp().log_softmax(-1)


def without_test_prior(world: World, client: Client, logits: Tensor) -> Tensor:
    return -Transition(client.priors, client.set_priors, np.ones_like(world.test_prior))(logits)


RIGHT: list[Loss] = [minus_log_q, set_by_set]
WRONG: list[Loss] = [second_softmax, without_test_prior]


def slope_at_the_posterior(world: World, loss: Loss) -> float:
    logits = torch.from_numpy(np.log(world.posterior)).requires_grad_()
    (gradient,) = torch.autograd.grad(world.expected_loss(partial(loss, world), logits), logits)
    return largest(gradient)


def recovery_error(world: World, loss: Loss, seed: int) -> float:
    """Return the error of the posterior that minimises the expected loss, with one free logit vector per input."""
    start = np.random.default_rng(seed).normal(size=world.likelihood.shape)
    best = least(partial(world.expected_loss, partial(loss, world)), start, gtol=1e-11)
    return largest(best.softmax(-1) - torch.from_numpy(world.posterior))


def pairs_of_sets(*majorities: tuple[int, int], classes: int) -> World:
    """Each client has two sets, which are rich in one class each."""
    world = random_world(np.random.default_rng(5), classes, [2] * len(majorities), inputs=3)
    priors = [0.7 * np.eye(classes)[list(pair)] + 0.3 / classes for pair in majorities]
    clients = [Client(p, c.set_priors) for p, c in zip(priors, world.clients, strict=True)]
    return World(world.likelihood, world.test_prior, clients)


WORLDS = {
    "square": random_world(np.random.default_rng(0), 4, [4], inputs=3, purity=0.5),
    "tall": random_world(np.random.default_rng(1), 4, [9], inputs=3, purity=0.5),
    "with zeros": random_world(np.random.default_rng(2), 4, [4, 6], inputs=3, zeros=0.5, purity=0.4),
    "different at each client": random_world(np.random.default_rng(3), 3, [3, 7, 5], inputs=3, purity=0.4),
    "three classes in pairs": pairs_of_sets((0, 1), (1, 2), classes=3),
    "four classes in pairs": pairs_of_sets((0, 1), (1, 2), (2, 3), classes=4),
}
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)


@pytest.mark.parametrize("loss", RIGHT)
@repeatable
@given(world=worlds())
def test_the_class_posterior_is_a_stationary_point_of_the_set_loss(loss: Loss, world: World) -> None:
    assert slope_at_the_posterior(world, loss) < 1e-12


@pytest.mark.parametrize("loss", WRONG)
@every_world
def test_the_class_posterior_is_no_stationary_point_of_a_wrong_loss(loss: Loss, world: World) -> None:
    assert slope_at_the_posterior(world, loss) > 1e-3


@pytest.mark.parametrize("loss", RIGHT)
@every_world
def test_minimising_the_set_loss_recovers_the_class_posterior(loss: Loss, world: World) -> None:
    assert recovery_error(world, loss, seed=0) < 1e-6


@every_world
def test_minimising_the_set_loss_recovers_the_class_posterior_from_another_start(world: World) -> None:
    assert recovery_error(world, minus_log_q, seed=1) < 1e-6


@pytest.mark.parametrize("loss", WRONG)
@every_world
def test_minimising_a_wrong_loss_recovers_something_else(loss: Loss, world: World) -> None:
    assert recovery_error(world, loss, seed=0) > 0.01


def test_leaving_out_the_test_prior_is_harmless_only_where_it_is_uniform() -> None:
    world = WORLDS["square"]
    uniform = World(world.likelihood, np.full(4, 0.25), world.clients)
    assert recovery_error(uniform, without_test_prior, seed=0) < 1e-6


@pytest.mark.parametrize("name", ["three classes in pairs", "four classes in pairs"])
def test_clients_with_two_sets_can_be_identifiable_together_and_none_alone(name: str) -> None:
    federation = [client.priors for client in WORLDS[name].clients]
    free_directions = federation[0].shape[1] - 1
    assert joint_rank(federation) == free_directions
    for alone in federation:
        assert joint_rank([alone]) < free_directions
        assert not diagnose_priors(alone).sufficient


@repeatable
@given(seeds, st.integers(2, 6), st.integers(0, 5))
def test_priors_of_full_column_rank_let_the_class_posterior_be_read_off_the_set_posterior(
    seed: int, classes: int, extra_sets: int
) -> None:
    world = random_world(np.random.default_rng(seed), classes, [classes + extra_sets], purity=0.3)
    (client,) = world.clients
    assert diagnose_priors(client.priors).sufficient
    found = set_probabilities(world, client, world.posterior)
    densities = (found / client.set_priors) @ np.linalg.pinv(client.priors).T
    weighted = densities * world.test_prior
    assert_allclose(weighted / weighted.sum(axis=1, keepdims=True), world.posterior, rtol=0, atol=1e-11)


@repeatable
@given(seeds, st.integers(2, 6), st.integers(0, 5))
def test_distinct_posteriors_give_distinct_set_posteriors_under_full_column_rank(
    seed: int, classes: int, extra_sets: int
) -> None:
    world = random_world(np.random.default_rng(seed), classes, [classes + extra_sets], purity=0.3)
    one, other = world.posterior[:2]
    nearby = 0.999 * one + 0.001 * other
    found, found_nearby = set_probabilities(world, world.clients[0], np.stack([one, nearby]))
    assert largest(found - found_nearby) > 1e-5 * largest(one - nearby) > 0


ROWS = random_priors(np.random.default_rng(0), 12, 4)
INSUFFICIENT = {
    "one set each": [*ROWS[:4, None]],
    "one set each, of pure classes": [*np.eye(4)[:, None]],
    "equal sets": [np.tile(ROWS[0], (6, 1))],
    "two sets": [ROWS[:2]],
    "three sets": [ROWS[:3]],
    "two pairs": [ROWS[:2], ROWS[2:4]],
    "the same three sets twice": [ROWS[:3], ROWS[[2, 0, 1]]],
    "many mixtures of three sets": [random_priors(np.random.default_rng(1), 9, 3) @ ROWS[:3]],
    "two classes always in one ratio": [
        np.column_stack([rows[:, :3], 0.5 * rows[:, 2]]) for rows in (ROWS[:5], ROWS[5:])
    ],
}


@pytest.mark.parametrize("federation", INSUFFICIENT.values(), ids=INSUFFICIENT)
def test_where_the_joint_rank_falls_short_two_posteriors_look_the_same_to_every_client(
    federation: list[Matrix],
) -> None:
    federation = [priors / priors.sum(axis=1, keepdims=True) for priors in federation]
    assert joint_rank(federation) < 3
    world = random_world(np.random.default_rng(2), 4, [len(priors) for priors in federation], inputs=1)
    twin = twin_of(world.posterior[0], federation, world.test_prior)
    assert twin.min() > 0
    assert largest(twin - world.posterior[0]) > 0.01
    for priors, drawn in zip(federation, world.clients, strict=True):
        client = Client(priors, drawn.set_priors)
        seen = set_probabilities(world, client, np.stack([world.posterior[0], twin]))
        assert largest(seen[0] - seen[1]) < 1e-12


def test_clients_that_suffice_only_together_can_still_confuse_special_posteriors() -> None:
    federation = [np.array([[1, 2, 0], [0, 1.5, 1.5]]) / 3, np.array([[2, 1, 0], [0, 0, 3]]) / 3]
    assert joint_rank(federation) == 2
    test_prior, set_priors = np.full(3, 1 / 3), np.array([0.4, 0.6])
    one, other = np.full(3, 1 / 3), np.array([0.6, 1.2, 0.8]) / 2.6
    world = World(np.stack([one, other]), test_prior, [Client(priors, set_priors) for priors in federation])
    for client in world.clients:
        seen = set_probabilities(world, client, np.stack([one, other]))
        assert largest(seen[0] - seen[1]) < 1e-12


@st.composite
def federations(draw: st.DrawFn) -> list[Matrix]:
    """Clients whose sets are mixtures of a few basic sets, some of which they share."""
    generator = np.random.default_rng(draw(seeds))
    basic = random_priors(generator, 6, draw(st.integers(2, 5)), zeros=draw(st.sampled_from([0.0, 0.5])))
    federation = []
    for _ in range(generator.integers(1, 5)):
        shared = basic[generator.permutation(6)[: generator.integers(1, 5)]]
        federation.append(random_priors(generator, generator.integers(1, 7), len(shared)) @ shared)
    return federation


@repeatable
@given(federations(), seeds)
def test_the_joint_rank_is_the_rank_of_the_jacobian_of_all_log_q_at_a_generic_posterior(
    federation: list[Matrix], seed: int
) -> None:
    generator = np.random.default_rng(seed)
    classes = federation[0].shape[1]
    test_prior, posterior = random_shares(generator, classes), random_shares(generator, classes)
    logits = torch.from_numpy(np.log(posterior))
    jacobians = [
        torch.func.jacrev(Transition(priors, random_shares(generator, len(priors)), test_prior))(logits)
        for priors in federation
    ]
    values = torch.linalg.svdvals(torch.cat(jacobians))
    assert joint_rank(federation) == int((values > 1e-9).sum())
    unseen = confusable_directions(federation, posterior / test_prior).shape[1] - 1
    assert joint_rank(federation) == classes - 1 - unseen


def random_rows(seed: int, client: Client, rows: int = 7) -> tuple[Tensor, Tensor]:
    """Logits (n, K) and the set each row is in (n,)."""
    sets, classes = client.priors.shape
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(sets, (rows,), generator=generator)


def loss_of(world: World, client: Client, logits: Tensor, sets: Tensor) -> Tensor:
    q = transition(world, client)
    return set_loss(logits, q.joint[sets], q.marginal)


def loss_and_gradient(world: World, client: Client, logits: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.clone().requires_grad_()
    loss = loss_of(world, client, logits, sets)
    return loss.detach(), torch.autograd.grad(loss.sum(), logits)[0]


@repeatable
@given(worlds(zeros=False), seeds)
def test_the_set_loss_is_minus_log_of_the_papers_matrix_form(world: World, seed: int) -> None:
    for client in world.clients:
        logits, sets = random_rows(seed, client)
        eta = logits.softmax(-1).numpy()
        raw = eta @ (np.diag(client.set_priors) @ client.priors @ np.diag(1 / world.test_prior)).T
        chosen = (raw / raw.sum(axis=1, keepdims=True))[np.arange(len(eta)), sets]
        assert_allclose(loss_of(world, client, logits, sets), -np.log(chosen), rtol=1e-12, atol=1e-12)


@repeatable
@given(worlds(), seeds)
def test_the_set_loss_is_the_transition_layer_read_at_each_rows_set(world: World, seed: int) -> None:
    for client in world.clients:
        logits, sets = random_rows(seed, client)
        log_q = transition(world, client)(logits)
        assert_allclose(log_q.exp().sum(-1), 1, rtol=0, atol=1e-12)
        chosen = log_q.gather(1, sets[:, None])[:, 0]
        assert_allclose(loss_of(world, client, logits, sets), -chosen, rtol=1e-12, atol=1e-12)


def test_the_transition_layer_takes_any_number_of_leading_dimensions() -> None:
    world = WORLDS["tall"]
    layer = transition(world, world.clients[0])
    logits = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_allclose(layer(logits), layer(logits.reshape(6, 4)).reshape(2, 3, 9))
    assert_allclose(layer(logits)[1, 2], layer(logits[1, 2]))


@repeatable
@given(seeds, st.integers(2, 7))
def test_with_identity_priors_the_set_loss_is_cross_entropy_on_shifted_logits(seed: int, classes: int) -> None:
    world = random_world(np.random.default_rng(seed), classes, [classes])
    client = Client(np.eye(classes), world.clients[0].set_priors)
    logits, labels = random_rows(seed, client)
    shift = torch.from_numpy(np.log(client.set_priors / world.test_prior))
    expected = cross_entropy(logits + shift, labels, reduction="none")
    assert_allclose(loss_of(world, client, logits, labels), expected, rtol=1e-12, atol=1e-12)


@repeatable
@given(worlds(), seeds)
def test_renaming_sets_changes_neither_loss_nor_gradient(world: World, seed: int) -> None:
    for client in world.clients:
        logits, sets = random_rows(seed, client)
        order = np.random.default_rng(seed).permutation(len(client.priors))
        renamed = Client(client.priors[order], client.set_priors[order])
        before = loss_and_gradient(world, client, logits, sets)
        after = loss_and_gradient(world, renamed, logits, torch.from_numpy(np.argsort(order))[sets])
        for old, new in zip(before, after, strict=True):
            assert_allclose(new, old, rtol=1e-12, atol=1e-12)


@repeatable
@given(worlds(), seeds, st.floats(-50, 50))
def test_adding_a_constant_to_the_logits_changes_neither_loss_nor_gradient(
    world: World, seed: int, constant: float
) -> None:
    for client in world.clients:
        logits, sets = random_rows(seed, client)
        before = loss_and_gradient(world, client, logits, sets)
        after = loss_and_gradient(world, client, logits + constant, sets)
        for old, new in zip(before, after, strict=True):
            assert_allclose(new, old, rtol=1e-12, atol=1e-12)


@repeatable
@given(worlds(), seeds)
def test_merging_two_sets_with_equal_priors_leaves_the_gradient_as_it_is(world: World, seed: int) -> None:
    for merged in world.clients:
        split = Client(
            np.vstack([merged.priors, merged.priors[:1]]),
            np.r_[0.3 * merged.set_priors[0], merged.set_priors[1:], 0.7 * merged.set_priors[0]],
        )
        logits, sets = random_rows(seed, split)
        sets[:2] = torch.tensor([0, len(merged.priors)])
        _, before = loss_and_gradient(world, split, logits, sets)
        _, after = loss_and_gradient(world, merged, logits, sets % len(merged.priors))
        assert_allclose(after, before, rtol=0, atol=1e-12)


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_gradients_of_loss_and_layer_are_those_of_finite_differences(zeros: float) -> None:
    world = random_world(np.random.default_rng(4), 4, [5], zeros=zeros)
    (client,) = world.clients
    logits, sets = random_rows(0, client)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss_of(world, client, z, sets), (logits,))
    everywhere = Client(np.maximum(client.priors, 1e-3), client.set_priors)
    assert torch.autograd.gradcheck(transition(world, everywhere), (logits,))


@repeatable
@given(worlds(), seeds)
def test_the_gradient_is_the_clients_class_posterior_less_the_sets(world: World, seed: int) -> None:
    for client in world.clients:
        logits, sets = random_rows(seed, client)
        q = transition(world, client)
        _, gradient = loss_and_gradient(world, client, logits, sets)
        expected = (logits + q.marginal).softmax(-1) - (logits + q.joint[sets]).softmax(-1)
        assert_allclose(gradient, expected, rtol=0, atol=1e-12)


def test_a_batch_of_clients_has_the_gradients_of_each_client() -> None:
    world = random_world(np.random.default_rng(6), 4, [5, 3, 7], zeros=0.3)
    rows = [random_rows(i, client) for i, client in enumerate(world.clients)]
    layers = [transition(world, client) for client in world.clients]
    joint = torch.stack([q.joint[sets] for q, (_, sets) in zip(layers, rows, strict=True)])
    marginal = torch.stack([q.marginal for q in layers])
    gradient = torch.func.grad(lambda z, j, s: set_loss(z, j, s).sum())
    stacked = torch.func.vmap(gradient)(torch.stack([z for z, _ in rows]), joint, marginal)
    for found, client, (logits, sets) in zip(stacked, world.clients, rows, strict=True):
        assert_allclose(found, loss_and_gradient(world, client, logits, sets)[1], rtol=0, atol=1e-14)


EXTREME_PRIORS = {
    "pure sets": np.eye(3),
    "zeros": np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]]),
    "vanishing entries": np.array([[1, 1e-30, 1e-30], [1e-30, 1, 0], [0, 1e-30, 1]]),
    "a single set": np.array([[0.2, 0.3, 0.5]]),
    "a single pure set": np.array([[0.0, 1.0, 0.0]]),
    "an absent class": np.array([[0.5, 0.5, 0], [0.1, 0.9, 0]]),
    "a vanishing class": np.array([[0.5, 0.5, 1e-30], [0.1, 0.9, 1e-30]]),
}


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("test_prior", [[1 / 3, 1 / 3, 1 / 3], [1 - 2e-6, 1e-6, 1e-6]], ids=["even", "rare"])
@pytest.mark.parametrize("priors", EXTREME_PRIORS.values(), ids=EXTREME_PRIORS)
def test_loss_and_gradient_stay_finite_at_extreme_priors_and_logits(
    priors: Matrix, test_prior: list[float], precision: torch.dtype
) -> None:
    count = len(priors)
    q = Transition(torch.tensor(priors, dtype=precision), np.full(count, 1 / count), np.array(test_prior))
    levels = torch.tensor([-1e4, 0.0, 1e4], dtype=precision)
    logits = torch.cartesian_prod(levels, levels, levels).repeat(count, 1).requires_grad_()
    sets = torch.arange(count).repeat_interleave(27)
    losses = set_loss(logits, q.joint[sets], q.marginal)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    (layer_gradient,) = torch.autograd.grad(q(logits).gather(1, sets[:, None]).sum(), logits)
    assert losses.dtype == precision
    assert losses.isfinite().all()
    assert gradient.isfinite().all()
    assert layer_gradient.isfinite().all()
    assert largest(gradient.sum(-1)) < 1e4 * torch.finfo(precision).eps


def test_a_class_that_a_client_does_not_have_gets_no_gradient_from_it() -> None:
    q = Transition(EXTREME_PRIORS["an absent class"], np.array([0.5, 0.5]), np.full(3, 1 / 3))
    logits = torch.tensor([[0.3, -0.2, 5.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(set_loss(logits, q.joint[[0]], q.marginal).sum(), logits)
    assert gradient[0, 2] == 0
    assert gradient[0, 0] != 0


def test_the_loss_of_a_single_set_is_zero_and_teaches_nothing() -> None:
    world = random_world(np.random.default_rng(7), 4, [1])
    logits, sets = random_rows(0, world.clients[0])
    loss, gradient = loss_and_gradient(world, world.clients[0], logits, sets)
    assert largest(loss) < 1e-14
    assert largest(gradient) < 1e-14


def test_the_layers_state_holds_no_class_priors_that_could_be_sent_or_saved() -> None:
    world = WORLDS["square"]
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), transition(world, world.clients[0]))
    assert set(model.state_dict()) == {"0.weight", "0.bias"}


@pytest.mark.parametrize(
    ("precision", "expected"),
    [(torch.float32, torch.float32), (torch.float64, torch.float64), (torch.int64, torch.float32)],
)
def test_the_tables_have_the_precision_of_the_priors_and_are_never_integers(
    precision: torch.dtype, expected: torch.dtype
) -> None:
    q = Transition(torch.eye(2, dtype=precision), np.array([0.5, 0.5]), np.array([0.2, 0.8]))
    assert q.joint.dtype == q.marginal.dtype == expected
    assert_allclose(q.joint.exp(), np.diag([2.5, 0.625]), rtol=1e-6)
