"""Prior-adjusted standardisation: what a site would have at the test prior, whatever its scale and its class mix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import fedul
from fedul.core import Federation, Matrix, UnlabeledSets
from fedul.core.site_adjustment import (
    Columns,
    SetWeights,
    SiteAdjustment,
    SiteAdjustments,
    fit_adjustment,
    is_determined,
    with_adjusted_rows,
)
from fedul.errors import InputError

from ..factories import set_numbers
from ..worlds import random_priors, random_shares, repeatable, seeds

BOTH: Columns = {0: None, 1: None}


def class_values(generator: np.random.Generator, classes: int) -> Matrix:
    """Return ten values of two features for each class (K, 10, 2)."""
    values: Matrix = generator.normal(size=(classes, 1, 2)) + generator.normal(size=(classes, 10, 2))
    return values


def exact_client(values: Matrix, counts: Matrix, name: str = "north") -> UnlabeledSets:
    """Return a client whose sets (M, K) hold each value of a class equally often: its moments are linear in priors."""
    rows = [values[k].repeat(count, axis=0) for own in counts for k, count in enumerate(own)]
    sets = set_numbers(len(counts), (counts.sum(axis=1) * values.shape[1]).tolist())
    priors = counts / counts.sum(axis=1, keepdims=True)
    return UnlabeledSets.from_arrays(name, np.concatenate(rows), sets, priors)


def moments_at(values: Matrix, prior: Matrix) -> tuple[Matrix, Matrix]:
    """Return the mean and standard deviation (2,) of the mixture of classes with this class mix."""
    mean = prior @ values.mean(axis=1)
    return mean, np.sqrt(prior @ (values**2).mean(axis=1) - mean**2)


@repeatable
@given(seeds, st.integers(2, 5), st.integers(0, 6))
def test_in_the_population_the_mixture_of_sets_has_the_test_prior(seed: int, classes: int, more: int) -> None:
    generator = np.random.default_rng(seed)
    priors = random_priors(generator, classes + more, classes, purity=0.3)
    prior = random_shares(generator, classes)
    counts = generator.uniform(0.1, 1, len(priors)) * 1e12
    found = SetWeights.of(priors, counts, prior)
    assert_allclose(found.weights.sum(), 1)
    assert_allclose(found.weights @ priors, prior, atol=1e-6)
    assert found.expected_error < 1e-6


def test_moments_at_the_test_prior_are_recovered_from_sets_of_other_class_mixes() -> None:
    values = class_values(np.random.default_rng(0), 3)
    client = exact_client(values, np.array([[800, 100, 100], [100, 700, 200], [300, 100, 600], [300, 300, 400]]))
    prior = np.array([0.2, 0.5, 0.3])
    found, (mean, deviation) = fit_adjustment(client, prior, BOTH), moments_at(values, prior)
    assert_allclose(found.location, mean, atol=2e-3)
    assert_allclose(found.deviation, deviation, rtol=2e-3)


@repeatable
@given(seeds, st.integers(1, 6), st.booleans())
def test_adjusted_rows_do_not_depend_on_the_scale_of_the_site(seed: int, sets: int, alike: bool) -> None:
    generator = np.random.default_rng(seed)
    priors = random_priors(generator, sets, 3)
    priors = priors[[0] * sets] if alike else priors
    numbers = np.arange(60) % sets
    rows = generator.normal(size=(60, 2)) + numbers[:, None] % 2
    factor, shift = np.exp(generator.normal(size=2, scale=2)), generator.normal(size=2, scale=30)
    prior = random_shares(generator, 3)
    sites = [UnlabeledSets.from_arrays("a", x, numbers, priors) for x in (rows, rows * factor + shift)]
    one, other = (adjusted(client, prior) for client in sites)
    assert_allclose(one, other, atol=1e-6)


def adjusted(client: UnlabeledSets, prior: Matrix, columns: Columns = BOTH) -> Matrix:
    """Return the adjusted rows of a client, training rows first."""
    adjustments = SiteAdjustments({client.name: fit_adjustment(client, prior, columns)}, columns)
    client = with_adjusted_rows([client], adjustments)[0]
    rows: Matrix = client.inputs[torch.cat([client.train.index, client.held_out.index])].double().numpy()
    return rows


def test_sites_that_do_not_differ_are_adjusted_alike_although_their_class_mixes_differ() -> None:
    values = class_values(np.random.default_rng(1), 2)
    ill = exact_client(values, np.array([[900, 100], [600, 400]]), "ill")
    well = exact_client(values, np.array([[400, 600], [100, 900]]), "well")
    prior = np.array([0.5, 0.5])
    one, other = (fit_adjustment(client, prior, BOTH) for client in (ill, well))
    assert_allclose(one.location, other.location, atol=0.01)
    assert_allclose(one.deviation, other.deviation, rtol=0.01)
    plain = (ill.inputs.mean(dim=0) - well.inputs.mean(dim=0)).abs()
    assert float(plain.max()) > 0.1  # the class information that plain z-scores would remove


@pytest.mark.parametrize("priors", [[[0.7, 0.3]], [[0.7, 0.3]] * 3, [[1.0, 0.0], [1.0, 0.0]]])
def test_a_site_whose_priors_do_not_vary_is_standardised_by_its_plain_moments(priors: list[list[float]]) -> None:
    rows = np.random.default_rng(0).normal(3, 2, size=(30, 2))
    client = UnlabeledSets.from_arrays("a", rows, np.arange(30) % len(priors), priors)
    found = fit_adjustment(client, np.array([0.5, 0.5]), BOTH)
    assert_allclose(found.location, rows.mean(axis=0))
    assert_allclose(found.deviation, rows.std(axis=0))
    assert not is_determined(client, np.array([0.1, 0.9]))


def test_a_constant_feature_becomes_zero_and_is_not_rescaled() -> None:
    rows = np.column_stack([np.full(40, 1e4), np.random.default_rng(0).normal(size=40)])
    client = UnlabeledSets.from_arrays("a", rows, np.arange(40) % 2, [[0.9, 0.1], [0.2, 0.8]])
    assert fit_adjustment(client, np.array([0.5, 0.5]), BOTH).deviation[0] == 1
    assert_allclose(adjusted(client, np.array([0.5, 0.5]))[:, 0], 0, atol=1e-9)


def test_a_deviation_is_positive_where_the_extrapolated_variance_is_not() -> None:
    """The set with more of the first class varies less, so its extrapolation to pure classes is negative."""
    generator = np.random.default_rng(0)
    rows = np.concatenate([generator.normal(0, 0.1, (500, 1)), generator.normal(0, 5, (500, 1))])
    client = UnlabeledSets.from_arrays("a", rows, set_numbers(2, 500), [[0.6, 0.4], [0.4, 0.6]])
    found = fit_adjustment(client, np.array([0.99, 0.01]), {0: None})
    assert_allclose(found.deviation**2, rows.var() / 10)


def test_missing_values_are_left_out_and_become_the_mean() -> None:
    generator = np.random.default_rng(0)
    present = generator.normal(5, 2, 50)
    inputs = np.zeros((60, 2))
    inputs[:50, 0], inputs[50:, 1] = present, 1
    client = UnlabeledSets.from_arrays("a", inputs, np.arange(60) % 2, [[0.5, 0.5]] * 2, held_out=0)
    found = adjusted(client, np.array([0.5, 0.5]), {0: 1})
    assert_allclose(found[:50, 0], (present - present.mean()) / present.std())
    assert_allclose(found[50:, 0], 0)
    assert_allclose(found[:, 1], inputs[:, 1])


def test_rows_that_clients_share_are_adjusted_for_each_of_them() -> None:
    inputs = np.random.default_rng(0).normal(size=(30, 2))
    priors = [[0.9, 0.1], [0.2, 0.8]]
    parts = {"a": np.arange(20), "b": np.arange(10, 30)}
    clients = [
        UnlabeledSets.from_arrays(name, inputs, np.arange(20) % 2, priors, rows=rows) for name, rows in parts.items()
    ]
    federation = fedul.adjust_sites(Federation(clients, ["ill", "well"]))
    assert federation.site_adjustments is not None
    for before, after in zip(clients, federation.clients, strict=True):
        adjustment = federation.site_adjustments.sites[before.name]
        for old, new in ((before.train, after.train), (before.held_out, after.held_out)):
            expected = (inputs[old.index] - adjustment.location) / adjustment.deviation
            assert_allclose(after.inputs[new.index], expected)
            assert (old.sets == new.sets).all()


def test_rows_of_unknown_sites_get_the_mean_adjustment() -> None:
    sites = {"a": SiteAdjustment(np.zeros(1), np.ones(1)), "b": SiteAdjustment(np.full(1, 4.0), np.full(1, 3.0))}
    found = SiteAdjustments(sites, {0: None}).apply(torch.full((4, 1), 6.0), ["b", "a", "c", None])
    assert_allclose(found[:, 0], [2 / 3, 6, 2, 2], rtol=1e-6)


def test_images_and_rows_that_are_adjusted_already_are_refused() -> None:
    priors, sets = [[0.9, 0.1], [0.2, 0.8]], np.arange(8) % 2
    images = UnlabeledSets.from_arrays("a", np.zeros((8, 1, 2, 2)), sets, priors)
    with pytest.raises(InputError, match="for images, use --algorithm fedbn"):
        fedul.adjust_sites(Federation([images], ["ill", "well"]))
    with pytest.warns(UserWarning, match="hardly vary, or rows are few"):
        once = fedul.adjust_sites(
            Federation([UnlabeledSets.from_arrays("a", np.eye(8), sets, priors)], ["ill", "well"])
        )
    with pytest.raises(InputError, match="adjusted already"):
        fedul.adjust_sites(once)
