"""Uniform, normal and whole random numbers from bytes have their distributions, at an error probability of 1e-6."""

import os

import numpy as np
import pytest
from scipy import stats

from fedul.privacy.random_source import below, normal, random_source, uniform

ERROR = 1e-6
"""Probability that a test of a distribution fails by chance; with a seed it never does or always."""


def seeded(*key):
    return random_source(7, *key)


def test_uniform_numbers_are_uniform_and_never_zero():
    numbers = uniform(20_000, seeded("uniform"))
    assert stats.kstest(numbers, "uniform").pvalue > ERROR
    assert numbers.min() > 0
    assert numbers.max() <= 1
    assert uniform(1, bytes).tolist() == [2.0**-53]  # the smallest word; its logarithm is finite
    assert uniform(1, lambda count: b"\xff" * count).tolist() == [1.0]


def test_normal_numbers_are_normal_and_uncorrelated():
    numbers = normal(40_001, seeded("normal"))
    assert len(numbers) == 40_001
    assert stats.kstest(numbers, "norm").pvalue > ERROR
    halves = np.split(numbers[:40_000], 2)  # both come from the same angle and radius
    assert abs(np.corrcoef(*halves)[0, 1]) < stats.norm.isf(ERROR) / np.sqrt(20_000)
    assert abs(np.corrcoef(*(half**2 for half in halves))[0, 1]) < stats.norm.isf(ERROR) / np.sqrt(20_000)


@pytest.mark.parametrize("limit", [1, 2, 7, 256, 300])
def test_whole_numbers_below_a_limit_are_equally_likely(limit):
    source = seeded("below", limit)
    counts = np.bincount([below(limit, source) for _ in range(30 * limit)], minlength=limit)
    assert len(counts) == limit
    assert limit == 1 or stats.chisquare(counts).pvalue > ERROR


def test_the_bytes_of_the_operating_system_are_used_without_a_seed():
    assert random_source(None, "noise") is os.urandom
    assert random_source(3, "noise")(8) == random_source(3, "noise")(8) != random_source(3, "other")(8)
