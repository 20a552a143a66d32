"""Information of sets compared with labels: against autograd, at its extremes, and under splits and mergers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedul.core import Matrix, Transition
from fedul.evaluation.set_information import (
    ExpectedRows,
    at_boundary,
    at_uninformative_inputs,
    average_over_pairs,
    split,
)

from ..worlds import World, random_world, repeatable, seeds, worlds

Measure = Callable[[ExpectedRows], Matrix]
MEASURES: list[Measure] = [lambda e: at_boundary(e).pairs, lambda e: at_boundary(e, 0.9).pairs, at_uninformative_inputs]
measures = pytest.mark.parametrize("measure", MEASURES, ids=["boundary", "sure", "open"])
ROWS = 1000.0


def expected_of(world: World) -> ExpectedRows:
    """Every client with a thousand rows."""
    tables = [ROWS * client.set_priors[:, None] * client.priors for client in world.clients]
    starts = np.cumsum([0, *(len(table) for table in tables[:-1])])
    return ExpectedRows(np.concatenate(tables), starts, world.test_prior)


def one_client(rows: Matrix) -> ExpectedRows:
    return ExpectedRows(rows, np.array([0]), np.full(rows.shape[1], 1 / rows.shape[1]))


def fisher(world: World, eta: Matrix, *, labels: bool) -> Matrix:
    """Information about the logits at an input, by autograd of Q, weighted by how many rows are there."""
    logits = torch.from_numpy(eta).clamp_min(1e-300).log()
    total = np.zeros((len(eta), len(eta)))
    for client in world.clients:
        mix = client.set_priors @ client.priors
        present = mix > 0  # as sets of one class each, labels are only of classes that are there
        priors, shares = (np.eye(len(mix))[present], mix[present]) if labels else (client.priors, client.set_priors)
        transition = Transition(priors, shares, world.test_prior)
        slopes = torch.func.jacrev(transition)(logits).nan_to_num().numpy()  # (M, K); sets that cannot be there: 0
        there = ROWS * float((mix * eta / world.test_prior).sum())
        total += there * (slopes.T * transition(logits).exp().numpy()) @ slopes
    return total


@repeatable
@given(worlds(zeros=False), st.sampled_from([0.5, 0.9, 0.02]))
def test_on_a_boundary_it_is_the_ratio_of_fisher_informations_by_autograd(world: World, share: float) -> None:
    classes = len(world.test_prior)
    eta, contrast = np.zeros(classes), np.zeros(classes)
    eta[:2], contrast[:2] = (share, 1 - share), (1, -1)
    sets, labels = (contrast @ fisher(world, eta, labels=known) @ contrast for known in (False, True))
    assert_allclose(at_boundary(expected_of(world), share).pairs[0, 1], sets / labels, rtol=1e-6, atol=1e-9)


@repeatable
@given(seeds, st.integers(2, 5))
def test_at_uninformative_inputs_it_is_the_ratio_of_cramer_rao_bounds_by_autograd(seed: int, classes: int) -> None:
    world = random_world(np.random.default_rng(seed), classes, [classes + 1, classes])
    contrast = np.eye(classes)[0] - np.eye(classes)[1]
    labels, sets = (
        contrast @ np.linalg.pinv(fisher(world, world.test_prior, labels=known), rcond=1e-9) @ contrast
        for known in (True, False)
    )
    assert_allclose(at_uninformative_inputs(expected_of(world))[0, 1], labels / sets, rtol=1e-5)


@measures
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_sets_of_one_class_each_are_labels(measure: Measure, classes: int) -> None:
    rows = np.diag(np.arange(1.0, classes + 1) * 10)
    assert_allclose(measure(one_client(rows)) + np.eye(classes), 1)


@measures
def test_sets_with_the_same_mix_say_nothing(measure: Measure) -> None:
    assert_allclose(measure(one_client(np.outer([10, 50, 7], [0.2, 0.3, 0.5]))), 0, atol=1e-12)


@measures
def test_clients_with_one_set_say_nothing(measure: Measure) -> None:
    rows = np.array([[90.0, 10, 1], [10, 90, 1]])
    assert_allclose(measure(ExpectedRows(rows, np.array([0, 1]), np.full(3, 1 / 3))), 0, atol=1e-12)


@measures
def test_classes_that_never_meet_at_a_client_are_not_compared(measure: Measure) -> None:
    rows = np.array([[70.0, 0], [30, 0], [0, 50], [0, 10]])
    assert_allclose(measure(ExpectedRows(rows, np.array([0, 2]), np.array([0.3, 0.7]))), 0)


@measures
@repeatable
@given(worlds())
def test_a_set_never_says_more_than_a_label(measure: Measure, world: World) -> None:
    found = measure(expected_of(world))
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6


@measures
@repeatable
@given(worlds())
def test_halves_with_equal_priors_change_nothing(measure: Measure, world: World) -> None:
    whole = expected_of(world)
    halves = ExpectedRows(np.repeat(whole.rows / 2, 2, axis=0), 2 * whole.starts, whole.test_prior)
    assert_allclose(measure(halves), measure(whole), rtol=1e-6, atol=1e-9)


@measures
@repeatable
@given(seeds)
def test_merging_two_sets_never_helps(measure: Measure, seed: int) -> None:
    before = expected_of(random_world(np.random.default_rng(seed), 3, [5, 4]))
    merged = np.concatenate([before.rows[:1] + before.rows[1:2], before.rows[2:]])
    after = ExpectedRows(merged, np.array([0, 4]), before.test_prior)
    assert (measure(after) <= measure(before) + 1e-9).all()


@measures
@repeatable
@given(seeds)
def test_the_order_of_clients_and_sets_does_not_matter(measure: Measure, seed: int) -> None:
    whole = expected_of(random_world(np.random.default_rng(seed), 4, [3, 5]))
    turned = ExpectedRows(whole.rows[::-1], np.array([0, 5]), whole.test_prior)
    assert_allclose(measure(turned), measure(whole), rtol=1e-6)


@repeatable
@given(seeds)
def test_splitting_a_set_adds_its_rows_times_the_squared_shift_at_uninformative_inputs(seed: int) -> None:
    world = random_world(np.random.default_rng(seed), 3, [4, 3])
    before = expected_of(world)
    found = split(before, 0, 1, everywhere=False)
    contrast = np.array([1.0, -1, 0])
    label = 1 / (contrast @ np.linalg.pinv(fisher(world, world.test_prior, labels=True), rcond=1e-9) @ contrast)
    gained = before.sizes[found.sets[0]] * found.shift**2
    assert_allclose(
        at_uninformative_inputs(found.after)[0, 1], at_uninformative_inputs(before)[0, 1] + gained / label, rtol=1e-6
    )


@repeatable
@given(seeds)
def test_splitting_all_sets_helps_at_least_as_much_as_splitting_one(seed: int) -> None:
    before = expected_of(random_world(np.random.default_rng(seed), 3, [4, 3]))
    one, every = (split(before, 0, 1, everywhere=everywhere).after for everywhere in (False, True))
    for measure in MEASURES:
        none, some, most = (measure(expected)[0, 1] for expected in (before, one, every))
        assert none <= some + 1e-9
        assert some <= most + 1e-9


def test_one_figure_for_all_pairs_is_their_harmonic_mean_and_zero_if_one_is() -> None:
    prior = np.full(3, 1 / 3)
    pairs = np.array([[0, 0.5, 0.25], [0.5, 0, 0.25], [0.25, 0.25, 0]])
    assert average_over_pairs(pairs, prior) == pytest.approx(3 / (2 + 4 + 4))
    assert average_over_pairs(np.where(pairs == 0.5, 0.0, pairs), prior) == 0
