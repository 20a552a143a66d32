"""Random whole numbers from bytes are equally likely, at an error probability of 1e-6."""

import os

import numpy as np
import pytest
from scipy import stats

from fedul.privacy.random_source import below, random_source

ERROR = 1e-6
"""Probability that a test of a distribution fails by chance; with a seed it never does or always."""


def seeded(*key):
    return random_source(7, *key)


@pytest.mark.parametrize("limit", [1, 2, 7, 256, 300])
def test_whole_numbers_below_a_limit_are_equally_likely(limit):
    source = seeded("below", limit)
    counts = np.bincount([below(limit, source) for _ in range(30 * limit)], minlength=limit)
    assert len(counts) == limit
    assert limit == 1 or stats.chisquare(counts).pvalue > ERROR


def test_the_bytes_of_the_operating_system_are_used_without_a_seed():
    assert random_source(None, "noise") is os.urandom
    assert random_source(3, "noise")(8) == random_source(3, "noise")(8) != random_source(3, "other")(8)
