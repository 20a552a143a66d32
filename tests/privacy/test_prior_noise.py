"""Perturbed class priors: sensitivity, the exact distribution of the noise, and the proportions that follow."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from fedul.core import Federation, PriorScope, UnlabeledSets
from fedul.errors import InputError
from fedul.privacy.discrete_laplace import discrete_laplace
from fedul.privacy.prior_noise import (
    GRID,
    PerturbedPriors,
    count_noise,
    noise_scale,
    perturb_client,
    perturb_federation,
    perturb_shares,
    proportions,
)
from fedul.privacy.random_source import random_source

from ..factories import CLASSES, make_client, make_federation, random_federation
from ..worlds import repeatable, seeds

ERROR = 1e-6
"""Probability that a test of a distribution fails by chance; with a seed it never does or always."""


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40)])
def test_discrete_laplace_numbers_have_their_distribution(scale):
    source = random_source(1, "laplace", str(scale))
    drawn = np.array([discrete_laplace(scale, source) for _ in range(4000)])
    ratio = math.exp(-1 / scale)
    edge = max(1, math.ceil(3 * scale))
    values = np.arange(-edge + 1, edge)
    pmf = (1 - ratio) / (1 + ratio) * ratio ** np.abs(values)
    tail = (1 - pmf.sum()) / 2
    expected = 4000 * np.array([tail, *pmf, tail])
    observed = [(drawn <= -edge).sum(), *((drawn == v).sum() for v in values), (drawn >= edge).sum()]
    assert stats.chisquare(observed, expected).pvalue > ERROR


def stated(counts, decimals):
    """Return the shares of counts as a table states them: rounded, and divided by their sum when they are read."""
    shares = counts / counts.sum()
    shares = shares if decimals is None else np.round(shares, decimals)
    return shares / shares.sum()


@repeatable
@given(seeds, st.integers(2, 6), st.integers(2, 400), st.sampled_from([None, 1, 2, 3]), st.floats(0.01, 50))
def test_the_noise_covers_what_one_row_changes(seed, classes, rows, decimals, epsilon):
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(rows, generator.dirichlet(np.ones(classes))).astype(float)
    moved = counts.copy()
    first = generator.choice(np.flatnonzero(counts))
    moved[first] -= 1
    moved[generator.choice([k for k in range(classes) if k != first])] += 1
    rounding = 0.0 if decimals is None else 0.5 * 10.0**-decimals
    drawn = 1 if classes == 2 else classes
    change = sum(
        abs(int(np.rint(GRID * rows * a)) - int(np.rint(GRID * rows * b)))
        for a, b in list(zip(stated(counts, decimals), stated(moved, decimals), strict=True))[:drawn]
    )
    # P(noise) / P(shifted noise) is exp(change / scale) at most, for the product over all entries.
    assert change / noise_scale(rows, classes, rounding, epsilon) <= epsilon * (1 + 1e-12)


def test_the_noise_is_not_larger_than_needed():
    assert noise_scale(100, 3, 0.0, 1.0) / GRID == pytest.approx(2, rel=2e-3)
    assert noise_scale(100, 2, 0.0, 1.0) / GRID == pytest.approx(1, rel=2e-3)
    assert count_noise(2.0, 3) == pytest.approx(math.sqrt(2), rel=2e-3)


@repeatable
@given(st.integers(1, 200), st.floats(0.05, 60), st.floats(-100, 300))
def test_a_share_is_the_mean_of_its_posterior(rows, scale, noisy):
    pair = np.array([[noisy, rows - noisy]])
    share = proportions(pair, np.array([rows]), np.array([scale]))[0, 0]
    at = min(max(noisy, 0.0), float(rows))

    def density(x):
        return math.exp(-abs(x - at) / scale)

    points = [at] if 0 < at < rows else None
    mass, _ = integrate.quad(density, 0, rows, points=points, limit=400)
    moment, _ = integrate.quad(lambda x: x * density(x), 0, rows, points=points, limit=400)
    assert share == pytest.approx(moment / mass / rows, rel=1e-4, abs=1e-6)


@repeatable
@given(seeds, st.integers(2, 5), st.floats(1e-3, 1e4))
def test_perturbed_shares_are_positive_and_sum_to_one(seed, classes, epsilon):
    generator = np.random.default_rng(seed)
    rows = generator.integers(1, 60, 3)
    priors = np.stack([generator.multinomial(n, np.ones(classes) / classes) / n for n in rows])
    noisy = perturb_shares(priors, rows, 0.0, epsilon, random_source(seed, "priors"))
    assert (noisy > 0).all()
    assert np.allclose(noisy.sum(1), 1)


def test_much_budget_returns_the_priors_and_little_budget_uniform_ones():
    priors, rows = np.array([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]]), np.array([10, 20])
    source = random_source(0, "priors")
    assert np.abs(perturb_shares(priors, rows, 0.0, 1e4, source) - priors).max() < 2e-3
    assert np.abs(perturb_shares(priors, rows, 0.0, 1e-5, source) - 1 / 3).max() < 1e-3


def test_a_federation_uses_only_its_perturbed_priors():
    federation = random_federation()
    federation = Federation(federation.clients, CLASSES, federation.columns.class_mix)
    perturbed = perturb_federation(federation, 1.0, random_source(3, "priors"))
    noisy = perturbed.apply(federation)
    assert np.array_equal(noisy.columns.stacked_priors, perturbed.priors)
    assert np.abs(perturbed.priors - federation.columns.stacked_priors).min() > 0
    assert np.allclose(noisy.test_prior, noisy.columns.class_mix)  # the class mix of all rows would disclose the priors
    assert all(client.prior_scope.noise == count_noise(1.0, 3) for client in noisy.clients)
    assert not any(client.prior_scope.exact for client in noisy.clients)
    assert noisy.fingerprint() != federation.fingerprint()
    given_prior = Federation(federation.clients, CLASSES, [0.2, 0.3, 0.5])
    assert perturbed.apply(given_prior).test_prior.tolist() == [0.2, 0.3, 0.5]


def test_very_many_clients_are_perturbed_as_objects_are():
    x, sets = np.zeros((24, 2)), np.repeat(np.arange(4), 6)
    priors = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    table = Federation.from_arrays(x, sets, priors, ["a", "a", "b", "b"], CLASSES[:2], held_out=0.5)
    objects = Federation(list(table.clients), CLASSES[:2])
    one, other = (perturb_federation(each, 0.5, random_source(0, "priors")) for each in (table, objects))
    assert np.array_equal(one.priors, other.priors)
    assert one.apply(table).fingerprint() == other.apply(objects).fingerprint()


def test_the_noise_is_for_the_rows_that_priors_speak_of():
    rows = {"rows": 40, "train": 20, "population": 40}
    for scope, count in rows.items():
        client = make_client(priors=[[0.5, 0.5]], rows=40, held_out=0.5, priors_of=PriorScope(scope, rounding=0.1))
        direct = perturb_shares(client.priors, np.array([count]), 0.1, 1.0, random_source(2, "priors"))
        assert np.array_equal(perturb_client(client, 1.0, random_source(2, "priors")), direct)


def test_rows_with_labels_are_refused():
    client = make_client(priors=np.eye(3))
    labelled = UnlabeledSets("north", client.inputs, client.train, client.held_out, np.eye(3), labelled_sets=[1])
    with pytest.raises(InputError, match="has rows with labels"):
        perturb_federation(make_federation(labelled), 1.0, random_source(0, "priors"))


def test_stored_priors_of_other_sets_are_refused():
    with pytest.raises(InputError, match="of other sets"):
        PerturbedPriors(np.ones((2, 3)) / 3, 1.0).apply(random_federation())


def test_noise_counts_in_the_variance_of_priors():
    priors, rows = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]), np.array([50, 50])
    multinomial = (0.25 + 2 * 0.1875) / 50
    noisy = PriorScope("rows", noise=3.0).relative_variance(priors, rows)
    assert noisy == pytest.approx([3 * (3.0 / 50) ** 2 / multinomial, 0.0])
    drawn = [
        perturb_shares(np.array([[0.4, 0.3, 0.3]]), np.array([400]), 0.0, 1.0, random_source(i, "variance"))
        for i in range(300)
    ]
    scope = PriorScope("rows", noise=count_noise(1.0, 3))
    stated_variance = scope.relative_variance(np.array([[0.4, 0.3, 0.3]]), np.array([400])) * 0.66 / 400
    # The sum of the counts is known, which takes one of three directions from the noise.
    assert np.var(np.concatenate(drawn), axis=0).sum() == pytest.approx(stated_variance[0] * 2 / 3, rel=0.2)
