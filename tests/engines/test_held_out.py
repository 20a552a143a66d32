"""Held-out sums: temperature and paired differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor

from fedul.engines.held_out import LOG_SCALE, TEMPERATURES, HeldOutSums, sum_held_out
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.methods.fedul import set_task

from ..factories import make_client, make_federation
from ..worlds import repeatable

LOGS = np.log(TEMPERATURES)


def parabola(center: float, rows: int = 10) -> HeldOutSums:
    """Sums whose loss is a parabola in log temperature."""
    return HeldOutSums(tuple(rows * (2 + 0.3 * (LOGS - math.log(center)) ** 2)), rows=rows)


@repeatable
@given(st.floats(0.3, 14), st.integers(1, 10_000))
def test_the_temperature_is_a_weighted_mean_of_the_best_one_and_1_in_logarithms(center: float, rows: int) -> None:
    precision = 2 * 0.3 * rows, 1 / LOG_SCALE**2  # of the rows, and of the prior
    expected = math.log(center) * precision[0] / sum(precision)
    assert_allclose(math.log(parabola(center, rows).temperature), expected, atol=1e-5)


@pytest.mark.parametrize(("center", "edge"), [(0.01, 0.25), (100, 16)])
def test_the_temperature_stays_in_the_grid(center: float, edge: float) -> None:
    assert parabola(center, rows=100).temperature == parabola(center).grid_temperature == edge


def test_without_rows_and_for_a_flat_loss_the_temperature_is_1() -> None:
    assert HeldOutSums().temperature == HeldOutSums((3.0,) * len(TEMPERATURES), rows=4).temperature == 1
    assert HeldOutSums().loss is None
    steep = HeldOutSums(tuple(1.0 if t == 1 else math.inf for t in TEMPERATURES), rows=1)
    assert (steep.temperature, steep.loss) == (1, 1)


def evaluated(logits: Tensor, classes: Tensor) -> HeldOutSums:
    """Sums of a client whose sets are the classes, so that -log Q is the cross-entropy."""
    client = make_client("north", np.eye(2))
    task = set_task(client, client.train, make_federation(client).spec)
    evaluator = HeldOutEvaluator([task])
    evaluator._set = classes
    return evaluator.sums(logits)


@pytest.mark.parametrize("confidence", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_the_confidence_of_the_logits(confidence: float) -> None:
    # Exact shares of the classes at each log-odds: the loss is that of the population.
    odds = torch.tensor([-2.0, -1.0, 0.5, 1.5], dtype=torch.float64)
    counts = [(round(1000 * p), 1000 - round(1000 * p)) for p in odds.sigmoid().tolist()]
    classes = torch.cat([torch.tensor([1] * ones + [0] * zeros) for ones, zeros in counts])
    rows = odds.repeat_interleave(1000)
    logits = confidence * torch.stack([torch.zeros_like(rows), rows], dim=1)
    assert_allclose(evaluated(logits, classes).temperature, confidence, rtol=0.02)


def test_a_reference_with_the_same_losses_has_no_difference_and_no_standard_error() -> None:
    sums = HeldOutSums((6.0,) * len(TEMPERATURES), (0.0,) * len(TEMPERATURES), 6.0, 3)
    assert (sums.difference, sums.standard_error) == (0, 0)


def test_sums_of_clients_are_those_of_all_their_rows() -> None:
    a, b, best_a, best_b = (np.random.default_rng(n).uniform(size=5) for n in range(4))
    count = len(TEMPERATURES)
    parts = [
        HeldOutSums((x.sum(),) * count, (((x - y) ** 2).sum(),) * count, y.sum(), 5)
        for x, y in ((a, best_a), (b, best_b))
    ]
    differences = np.concatenate([a - best_a, b - best_b])
    total = sum_held_out(parts)
    assert total.rows == 10
    assert_allclose(total.difference, differences.mean())
    assert_allclose(total.standard_error, differences.std(ddof=1) / math.sqrt(10))
