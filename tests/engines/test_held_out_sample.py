"""Held-out rows of which only a sample is evaluated at every temperature."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

import fedul
from fedul.core import Federation, Study, UnlabeledSets
from fedul.engines import held_out_evaluator
from fedul.engines.held_out import TEMPERATURES, HeldOutSums, sum_held_out
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.engines.held_out_rows import spread
from fedul.methods.fedul import set_task

from ..factories import gaussian_study

ROWS, SAMPLE = 3000, 300
PRIORS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.0, 0.3, 0.7]])


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out_evaluator, "GRID_ROWS", SAMPLE)


def clients(dtype: type = np.float32) -> list[UnlabeledSets]:
    """Three clients; the second has no held-out rows, and all share their inputs."""
    generator = np.random.default_rng(0)
    sets = generator.integers(0, 3, ROWS)
    classes = np.array([generator.choice(3, p=PRIORS[m]) for m in sets])
    x = (2 * np.eye(4)[classes] + generator.normal(size=(ROWS, 4))).astype(dtype)
    parts = np.split(generator.permutation(ROWS), [ROWS // 2, ROWS // 2 + 50])
    return [
        UnlabeledSets.from_arrays(name, x, sets[rows], PRIORS, rows=rows, held_out=share)
        for name, rows, share in zip("abc", parts, (0.9, 0.0, 0.9), strict=True)
    ]


def evaluator(seed: int = 0, of: str = "ac", dtype: type = np.float32) -> HeldOutEvaluator:
    federation = Federation(clients(dtype), ["x", "y", "z"])
    chosen = [client for client in federation.clients if client.name in of]
    return HeldOutEvaluator([set_task(c, c.held_out, federation.spec) for c in chosen], seed)


def network(scale: float, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    module = nn.Linear(4, 3).eval()
    with torch.no_grad():
        module.weight.mul_(0.3).add_(2 * torch.eye(4)[:3]).mul_(scale)
    return module


@torch.no_grad()
def compared(judge: HeldOutEvaluator, one: nn.Module, other: nn.Module, temperature: float) -> HeldOutSums:
    return judge.compare(judge.predictions(one), judge.predictions(other, temperature), temperature)


@torch.no_grad()
def full_grid(judge: HeldOutEvaluator, one: nn.Module, other: nn.Module, temperature: float) -> HeldOutSums:
    return judge.sums(judge.logits(one), judge.logits(other), temperature)


def test_few_rows_are_all_evaluated_at_every_temperature() -> None:
    judge, one, other = evaluator(), network(3), network(2, seed=1)
    assert not judge.is_sampled
    assert compared(judge, one, other, 2.0) == full_grid(judge, one, other, 2.0)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("scale", [0.5, 3.0, 12.0])
def test_at_the_best_temperature_the_sums_are_those_of_all_rows(scale: float) -> None:
    judge, one, other = evaluator(), network(scale), network(2, seed=1)
    found, exact = compared(judge, one, other, 2.0), full_grid(judge, one, other, 2.0)
    at = found.losses.index(min(found.losses))
    assert judge.is_sampled
    assert found.rows == exact.rows
    assert abs(at - exact.losses.index(min(exact.losses))) <= 1
    for sums in ("losses", "squared_differences"):
        assert_allclose(getattr(found, sums)[at], getattr(exact, sums)[at], rtol=1e-5)
    assert_allclose(found.reference_loss, exact.reference_loss, rtol=1e-6)
    assert_allclose(found.temperature, exact.temperature, rtol=0.1)


@pytest.mark.usefixtures("sampled")
def test_sums_at_other_temperatures_are_unbiased_and_their_sampling_variance_is_in_the_squares() -> None:
    module, reference, at = network(3), network(2, seed=1), 16
    every = []
    for seed in range(200):
        judge = evaluator(seed)
        with torch.no_grad():
            chosen, other = (judge.predictions(each, TEMPERATURES[at]) for each in (module, reference))
        every.append(judge.compare(chosen, other, TEMPERATURES[at]))
    exact = full_grid(evaluator(), module, reference, TEMPERATURES[at])
    found = np.array([sums.losses for sums in every])
    others = np.arange(len(TEMPERATURES)) != at
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - exact.losses) < 4 * error)[others].all()
    added = np.mean([sums.squared_differences for sums in every], axis=0) - exact.squared_differences
    assert_allclose(added[others], found.var(axis=0)[others], rtol=0.5)


@pytest.mark.usefixtures("sampled")
def test_sums_of_sites_are_comparable_with_those_of_one_table() -> None:
    one, other = network(3), network(2, seed=1)
    sites = sum_held_out(compared(evaluator(of=name), one, other, 2.0) for name in "ac")
    together = compared(evaluator(), one, other, 2.0)
    assert sites.rows == together.rows
    assert_allclose(sites.reference_loss, together.reference_loss, rtol=1e-6)
    assert_allclose(sites.losses, together.losses, rtol=0.1)
    assert_allclose(sites.difference, together.difference, atol=0.02)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_beyond_the_range_of_exponentials_are_evaluated_exactly(dtype: type) -> None:
    judge, module = evaluator(dtype=dtype), network(1e4).to(torch.from_numpy(np.zeros(1, dtype)).dtype)
    with torch.no_grad():
        found, exact = judge.compare(judge.predictions(module)), judge.sums(judge.logits(module))
    assert_allclose(min(found.losses), min(exact.losses), rtol=1e-5)


def test_a_sample_is_expected_to_contain_every_row_equally_often() -> None:
    drawn = torch.cat([spread(7, 3, torch.Generator().manual_seed(seed)) for seed in range(4000)])
    assert_allclose(drawn.bincount(minlength=7).numpy() / 4000, 3 / 7, atol=0.04)


def rounds(study: Study) -> list[Tensor | float | None]:
    run = fedul.train(study, model="mlp", rounds=8, method="fedul", learning_rate=0.03, seed=1)
    return [run.selected_round, *(metrics.held_out_loss for metrics in run.history)]


def test_a_sample_selects_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    study = gaussian_study(rows=100)
    every = rounds(study)
    monkeypatch.setattr(held_out_evaluator, "GRID_ROWS", 60)
    found = rounds(study)
    assert found[0] == every[0]
    assert_allclose(found[1:], every[1:], rtol=0.02)  # type: ignore[arg-type]
