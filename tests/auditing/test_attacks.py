"""Attacks find what is there where nothing protects it, and what they state holds where something does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedul
from fedul.auditing.canaries import add_canaries
from fedul.auditing.canary_bound import bound_epsilon
from fedul.auditing.class_priors import reconstruct_priors
from fedul.auditing.document import CanaryResult, NotMeasured, PriorResult, Protection
from fedul.auditing.gradient_inversion import invert_gradients
from fedul.auditing.inversion import divide_gradients, first_dense_layer, match_gradients, row_errors
from fedul.auditing.membership import MembershipAttack, likelihood_ratios
from fedul.auditing.prior_equations import SetSizes, constant_losses, share_error, solve_shares
from fedul.auditing.protections import Condition, make_conditions
from fedul.auditing.roc import area, hits
from fedul.core import Federation
from fedul.errors import InputError
from fedul.models.weights import weights_of
from fedul.training import Callback, Recipe, RunInfo

from ..factories import make_client, make_federation


def digits(clients: int = 3, sets: int = 2, rows: int = 300) -> Federation:
    return fedul.load("digits", clients=clients, sets=sets, rows=rows).federation


def conditions(federation: Federation, rounds: int = 2, **settings: object) -> dict[str, Condition]:
    config = fedul.TrainConfig(method="fedul", model="linear", rounds=rounds, select="last", **settings)
    made = make_conditions(Recipe.of(config), rounds, federation, 8.0)
    return {each.protection.name: each for each in made}


def canary_bound(**private: float) -> CanaryResult:
    config = fedul.TrainConfig(
        method="fedul", model="linear", rounds=8, select="last", optimizer="sgd", learning_rate=1.0, **private
    )
    condition = Condition(Protection("dp", "", True), Recipe.of(config))
    return bound_epsilon(digits(rows=400), condition, 120, 1, Callback(), RunInfo(8))


@pytest.mark.slow
def test_without_noise_canaries_contradict_the_epsilon_that_the_noise_would_give() -> None:
    with_noise, without = canary_bound(dp_epsilon=1.0), canary_bound(dp_noise=0.0)
    assert with_noise.stated == pytest.approx(1.0, abs=0.01)
    assert with_noise.bound <= with_noise.stated
    assert without.stated is None
    assert without.bound > 1.0


def test_a_canary_that_is_left_out_of_private_rows_leaves_a_gap_of_the_same_size() -> None:
    federation = digits()
    gaps, absent = (add_canaries(federation, 30, 0, leaves_gaps=each) for each in (True, False))
    counts = [len(client.train) for client in gaps.federation.clients]
    assert counts == [len(client.train) for client in gaps.complete.clients]
    assert sum(counts) - sum(len(client.train) for client in absent.federation.clients) == (~gaps.included).sum()
    missing = sum(int(client.inputs.isnan().flatten(1).any(1).sum()) for client in gaps.federation.clients)
    assert missing == (~gaps.included).sum()


@pytest.mark.slow
def test_class_priors_are_found_exactly_without_protection_and_not_from_totals() -> None:
    federation = digits()
    found = {name: reconstruct_priors(federation, each) for name, each in conditions(federation).items()}
    alone, total = found["none"], found["secure-aggregation"]
    assert isinstance(alone, PriorResult)
    assert isinstance(total, PriorResult)
    assert alone.error < 0.001 < alone.guess_error
    assert total.error > 10 * alone.error
    assert isinstance(found["dp"], NotMeasured)


def test_shares_of_sets_follow_from_the_loss_of_constant_predictions() -> None:
    odds, sizes = np.exp(np.linspace(-6, 6, 25)), SetSizes(np.array([0.3, 0.7]), np.array([0.4, 0.6]))
    observed = constant_losses([0.8, 0.3], odds, sizes)
    (shares,) = solve_shares(observed, odds, [sizes], np.ones(1))
    assert share_error(shares, [0.8, 0.3]) < 1e-4


@pytest.mark.slow
def test_one_row_is_recovered_exactly_from_one_step_and_not_with_noise() -> None:
    federation = digits()
    made = conditions(federation)
    alone, protected = (next(invert_gradients(federation, made[name], 0)) for name in ("none", "dp"))
    assert (alone.batch, alone.recovered) == (1, 1.0)
    assert alone.error < 1e-4
    assert (protected.recovered, protected.clients) == (0.0, 1)
    assert next(invert_gradients(federation, made["secure-aggregation"], 0)).clients == 3


def test_the_gradient_of_a_dense_layer_divided_by_that_of_its_bias_is_the_row() -> None:
    torch.manual_seed(0)
    network, row = nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 3)), torch.rand(1, 3, 4)
    network(row)[0, 1].backward()
    gradient = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    layer = first_dense_layer(network)
    assert layer == "1"
    assert torch.allclose(divide_gradients(gradient, layer, 1, torch.Size((3, 4))).float(), row, atol=1e-5)


def test_matching_gradients_comes_closer_to_the_row_of_a_convolution() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 6, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(6 * 16, 3))
    row, weights = torch.rand(1, 1, 6, 6), {k: t.clone() for k, t in weights_of(network).items()}
    (network(row) @ torch.tensor([1.0, -0.4, -0.6])).sum().backward()
    gradient = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    start = torch.full_like(row, 0.5)
    found = match_gradients(network, weights, gradient, start, 3, torch.Generator().manual_seed(0))
    low, high = torch.zeros_like(row[0]), torch.ones_like(row[0])
    assert first_dense_layer(network) is None
    assert row_errors(found, row, start[0], low, high)[0] < 0.5


def test_rows_that_no_reconstruction_is_left_for_count_as_the_mean_row() -> None:
    true, mean = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(2)
    errors = row_errors(true[:1], true, mean, mean, mean + 1)
    assert sorted(errors.tolist()) == [0.0, 1.0]


def test_the_likelihood_ratio_finds_the_members_of_models_that_remember() -> None:
    generator = np.random.default_rng(0)
    members = generator.random((8, 400)) < 0.5
    odds = generator.normal(size=400) + members + 0.3 * generator.normal(size=(8, 400))
    assert area(likelihood_ratios(odds, members).ravel(), members.ravel()) > 0.9
    assert area(odds.ravel(), members.ravel()) < 0.8  # the loss alone says less
    unrelated = generator.normal(size=(8, 400))
    assert abs(area(likelihood_ratios(unrelated, members).ravel(), members.ravel()) - 0.5) < 0.03


def test_hits_are_counted_above_one_percent_of_the_others() -> None:
    scores, members = np.arange(200.0), np.arange(200) >= 100
    assert hits(scores, members) == 1.0
    assert hits(-scores, members) == 0.0


def test_membership_needs_rows_and_shadow_models() -> None:
    few = make_federation(make_client())
    with pytest.raises(InputError, match="different rows, and at least 40 are needed"):
        MembershipAttack(few, 4, 0)
    with pytest.raises(InputError, match="shadows: 2 are too few"):
        MembershipAttack(digits(), 2, 0)


def test_membership_is_measured_for_every_model() -> None:
    federation = digits()
    attack = MembershipAttack(federation, 4, 0)
    (loss, _) = attack.run(conditions(federation)["none"], Callback(), lambda model: RunInfo(2, "", model + 1, 4))
    assert (loss.models, loss.attack) == (4, "loss threshold")
    assert loss.auc_low <= loss.auc <= loss.auc_high
