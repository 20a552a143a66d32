"""What priors speak of: the variance of the class shares of rows around them follows from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedul.core import Matrix, PriorScope
from fedul.errors import InputError

from ..factories import make_client, make_federation
from ..worlds import random_priors, repeatable, seeds


def observed_variance(shares: Matrix, priors: Matrix) -> float:
    """Return the mean squared distance of shares (draws, K) from priors (K,)."""
    return float(np.square(shares - priors).sum(axis=1).mean())


@repeatable
@given(seeds, st.integers(5, 60))
def test_shares_of_rows_from_a_population_have_multinomial_variance(seed: int, rows: int) -> None:
    generator = np.random.default_rng(seed)
    priors = random_priors(generator, 1, 3)
    shares = generator.multinomial(rows, priors[0], size=4000) / rows
    multinomial = float((priors * (1 - priors)).sum()) / rows
    relative = PriorScope().relative_variance(priors, np.array([rows]))
    assert_allclose(observed_variance(shares, priors[0]), relative[0] * multinomial, rtol=0.15)


@repeatable
@given(seeds, st.integers(10, 50))
def test_shares_of_a_part_of_the_counted_rows_have_the_variance_of_what_is_missing(seed: int, part: int) -> None:
    generator, counts = np.random.default_rng(seed), np.array([40, 30, 30])
    priors = counts[None] / 100
    shares = generator.multivariate_hypergeometric(counts, part, size=4000) / part
    multinomial = float((priors * (1 - priors)).sum()) / part
    relative = PriorScope("rows", missing=1 - part / 100).relative_variance(priors, np.array([part]))
    assert_allclose(observed_variance(shares, priors[0]), relative[0] * multinomial, rtol=0.15)


def test_rounded_shares_of_the_rows_have_the_variance_of_rounding() -> None:
    generator, rows = np.random.default_rng(0), 5000
    shares = generator.dirichlet([5, 5, 5], size=4000)
    priors = np.array([[1, 1, 1]]) / 3
    relative = PriorScope("rows", rounding=0.05).relative_variance(priors, np.array([rows]))
    multinomial = float((priors * (1 - priors)).sum()) / rows
    assert_allclose(observed_variance(shares.round(1), shares), relative[0] * multinomial, rtol=0.1)


@pytest.mark.parametrize("of", ["rows", "train"])
def test_counts_of_the_rows_have_no_variance(of: str) -> None:
    priors = random_priors(np.random.default_rng(0), 4, 3)
    assert PriorScope(of).exact
    assert_array_equal(PriorScope(of).relative_variance(priors, np.full(4, 10)), 0)


def test_priors_are_those_of_a_population_unless_declared() -> None:
    client = make_client(held_out=0.5)
    assert client.prior_scope == PriorScope("population")
    assert not client.prior_scope.exact
    assert make_client(priors_of="rows").prior_scope == PriorScope("rows")
    assert make_client(priors_of=PriorScope("rows", 0.005)).prior_scope.rounding == 0.005


def test_priors_of_training_rows_speak_of_these_and_all_others_of_all_rows() -> None:
    client = make_client(held_out=0.5)
    assert len(client.held_out)
    assert_array_equal(client.all_rows.index[: len(client.train)], client.train.index)
    for of, rows in (("train", client.train), ("rows", client.all_rows), ("population", client.all_rows)):
        found = replace(client, prior_scope=PriorScope(of)).prior_rows
        assert_array_equal(found.index, rows.index)
        assert_array_equal(found.sets, rows.sets)


def test_the_fingerprint_includes_what_priors_speak_of() -> None:
    scopes = [PriorScope(), PriorScope("rows"), PriorScope("train"), PriorScope(rounding=0.005)]
    prints = {make_federation(make_client(priors_of=scope)).fingerprint() for scope in scopes}
    assert len(prints) == len(scopes)


@pytest.mark.parametrize("wrong", [{"of": "sample"}, {"rounding": -0.1}, {"missing": 1.0}])
def test_a_wrong_scope_is_refused(wrong: dict[str, str | float]) -> None:
    with pytest.raises(InputError, match="priors-of"):
        PriorScope(**wrong)  # type: ignore[arg-type]
