"""Soft labels and re-estimated priors follow from what the priors are declared to speak of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from torch import Tensor

from fedul._utils.randomness import torch_generator
from fedul.core import PriorScope, UnlabeledSets
from fedul.methods import fedul_refined
from fedul.methods.fedul import FedUL
from fedul.methods.fedul_refined import MODEL_VARIANCE, FedULRefined, match_priors, match_strength, reestimate_priors
from fedul.methods.operations import set_means
from fedul.methods.task import Targets, predict_task

from ..factories import gaussian_study, make_federation, seeded_network
from ..worlds import random_priors, repeatable, seeds
from .steps import task_of_round

variances = st.sampled_from([0.0, 0.2, 0.7, 1.0, 1.5])


def one_set(seed: int, rows: int, prior: Tensor | None = None, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    """Return logits (n, K) of the rows of one set, before its priors, and the priors (1, K)."""
    generator = np.random.default_rng(seed)
    drawn = torch.from_numpy(random_priors(generator, 1, 4)) if prior is None else prior[None]
    return torch.from_numpy(spread * generator.normal(size=(rows, drawn.shape[1]))), drawn


def targets_of(rows: int, priors: Tensor, variance: float) -> Targets:
    sets = {"priors": priors, "prior_variance": torch.full((1, 1), variance, dtype=torch.float64)}
    return Targets({"set": torch.zeros(rows, dtype=torch.int64)}, sets)


@repeatable
@given(seeds)
def test_a_row_that_is_alone_in_its_set_keeps_its_posterior(seed: int) -> None:
    logits, priors = one_set(seed, 1)
    soft = match_priors(logits + priors.log(), targets_of(1, priors, 1.0))
    assert_allclose(soft, (logits + priors.log()).softmax(-1), rtol=0, atol=0.02)


@repeatable
@given(seeds, st.integers(1, 50))
def test_without_model_error_rows_of_a_population_do_not_inform_about_each_other(seed: int, rows: int) -> None:
    logits, priors = one_set(seed, rows)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(fedul_refined, "MODEL_VARIANCE", 0.0)
        soft = match_priors(logits + priors.log(), targets_of(rows, priors, 1.0))
    assert_allclose(soft, (logits + priors.log()).softmax(-1), rtol=0, atol=1e-12)


def test_the_strength_of_the_match_follows_from_what_the_priors_speak_of() -> None:
    priors = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    strengths = [match_strength(targets_of(100, priors, variance)).item() for variance in (0.0, 0.2, 1.0, 3.0)]
    c = MODEL_VARIANCE * 100
    assert_allclose(strengths, [1, 1 - 1 / (5 + c), 1 - 1 / (1 + c), 1 - 1 / (1 / 3 + c)])
    assert match_strength(targets_of(1, priors, 1.0)).item() < 0.02
    assert match_strength(targets_of(1, priors, 50.0)).item() == 0


def test_the_larger_a_set_the_closer_its_mean_is_to_its_priors() -> None:
    logits, priors = one_set(0, 5)
    distances = []
    for times in (1, 10, 100, 10_000):
        many = (logits + priors.log()).repeat(times, 1)
        soft = match_priors(many, targets_of(len(many), priors, 1.0))
        distances.append((soft.mean(0) - priors[0]).norm().item())
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.02 * distances[0]


@repeatable
@given(seeds, st.sampled_from([0.1, 0.3, 0.7, 1.0]), st.integers(1, 30))
def test_soft_labels_minimise_the_penalised_divergence(seed: int, variance: float, rows: int) -> None:
    logits, priors = one_set(seed, rows, spread=1.0)
    posterior = (logits + priors.log()).softmax(-1)
    penalty = 1 / variance - 1 + MODEL_VARIANCE * rows

    def objective(soft: Tensor) -> float:
        mean = soft.mean(0)
        divergence = (soft * (soft / posterior).log()).sum() + penalty * rows * (mean * (mean / priors[0]).log()).sum()
        return float(divergence)

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(fedul_refined, "SINKHORN_STEPS", 500)
        soft = match_priors(logits + priors.log(), targets_of(rows, priors, variance))
    generator = torch_generator(seed)
    for _ in range(20):
        noise = 0.05 * torch.randn(soft.shape, generator=generator, dtype=torch.float64)
        assert objective(soft) <= objective((soft.log() + noise).softmax(-1)) + 1e-12


@repeatable
@given(seeds, variances, st.integers(1, 30), st.booleans())
def test_reestimated_priors_are_the_most_probable_class_shares(
    seed: int, variance: float, rows: int, rare: bool
) -> None:
    prior = torch.tensor([0.02, 0.03, 0.35, 0.6], dtype=torch.float64) if rare else None
    logits, priors = one_set(seed, rows, prior)
    shares = reestimate_priors(logits + priors.log(), targets_of(rows, priors, variance))
    assert_allclose(shares.sum(), 1, rtol=1e-12)
    if not variance:
        assert_allclose(shares, priors, rtol=1e-12)
        return
    likelihood, prior_of_set = logits.exp().numpy(), priors[0].numpy()

    def minus_log_posterior(free: np.ndarray) -> float:
        rho = np.exp(free - np.logaddexp.reduce(free))
        return -float(np.log(likelihood @ rho).sum() + rows / variance * (prior_of_set * np.log(rho)).sum())

    best = minimize(minus_log_posterior, np.log(prior_of_set), options={"gtol": 1e-9}).x
    assert_allclose(shares[0], np.exp(best - np.logaddexp.reduce(best)), rtol=0, atol=1e-3)


def test_rows_that_tell_nothing_leave_the_priors_as_they_are() -> None:
    priors = torch.tensor([[0.02, 0.18, 0.8]], dtype=torch.float64)
    logits = torch.zeros(25, 3, dtype=torch.float64) + priors.log()
    assert_allclose(reestimate_priors(logits, targets_of(25, priors, 1.0)), priors, rtol=1e-12)
    assert_allclose(match_priors(logits, targets_of(25, priors, 1.0)), priors.expand(25, 3), rtol=1e-12)


@pytest.mark.parametrize("variance", [0.0, 1.0])
def test_a_set_of_one_class_has_that_class_as_its_label(variance: float) -> None:
    priors = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    logits = 5 * torch.randn(7, 3, dtype=torch.float64, generator=torch_generator(0)) + priors.log()
    assert_array_equal(match_priors(logits, targets_of(7, priors, variance)), priors.expand(7, 3))
    assert_array_equal(reestimate_priors(logits, targets_of(7, priors, variance)), priors)


@pytest.mark.parametrize("apart", [1.0, 2.0, 6.0])
@pytest.mark.parametrize("shares", [(0.4, 0.6), (0.03, 0.97)])
def test_estimated_class_shares_are_nearer_to_those_of_the_rows_than_the_priors_of_the_population(
    apart: float, shares: tuple[float, float]
) -> None:
    """True posteriors, with classes that overlap and rare ones."""
    generator, prior = np.random.default_rng(0), np.array(shares)
    before, after = [], []
    for _ in range(200):
        labels = (generator.uniform(size=40) < prior[1]).astype(int)
        inputs = apart * labels + generator.normal(size=40)
        logits = torch.from_numpy(np.stack([-0.5 * inputs**2, -0.5 * (inputs - apart) ** 2], axis=1))
        priors = torch.from_numpy(prior[None])
        found = reestimate_priors(logits + priors.log(), targets_of(40, priors, 1.0))[0, 1].item()
        before.append((prior[1] - labels.mean()) ** 2)
        after.append((found - labels.mean()) ** 2)
    assert np.mean(after) < np.mean(before)


CLIENT: UnlabeledSets = gaussian_study(("north",), rows=12, dtype=np.float64, held_out=0.4).federation.clients[0]


@pytest.mark.parametrize(("of", "rows"), [("train", CLIENT.train), ("rows", CLIENT.all_rows)])
def test_the_mean_of_exactly_the_rows_that_priors_speak_of_agrees_with_them(of: str, rows: Tensor) -> None:
    client = replace(CLIENT, prior_scope=PriorScope(of))
    method, module = FedULRefined(), seeded_network()
    task = method.task(client, make_federation(client).spec)
    assert len(task) == len(client.train)
    assert_array_equal(task.index, rows.index)
    targets = task_of_round(method, task, module, {"refine": 1.0, "reestimate": 1.0}).targets
    assert_allclose(set_means(targets.rows["soft"], targets, len(client.priors)), client.priors, rtol=0, atol=1e-6)
    assert_allclose(targets.sets["joint"], task.targets.sets["joint"], rtol=1e-12)


def test_minus_log_q_uses_the_estimated_class_shares_of_all_rows() -> None:
    method, module, spec = FedULRefined(), seeded_network(), make_federation(CLIENT).spec
    task = method.task(CLIENT, spec)
    targets = task_of_round(method, task, module, {"refine": 1.0, "reestimate": 1.0}).targets
    with torch.no_grad():
        logits = predict_task(module, task) + task.targets.sets["joint"][task.targets.rows["set"]]
    shares = reestimate_priors(logits, task.targets).numpy()
    assert np.abs(shares - CLIENT.priors).max() > 1e-3
    expected = FedUL().task(replace(CLIENT, priors=shares), spec).targets
    assert_allclose(targets.sets["joint"], expected.sets["joint"], rtol=1e-9)
    assert_allclose(targets.client["marginal"], expected.client["marginal"], rtol=0, atol=1e-9)
    assert_allclose(targets.sets["match"], match_strength(task.targets))
