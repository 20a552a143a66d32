"""Shamir's secret sharing: any t shares give the secret, t - 1 say nothing about it."""

from __future__ import annotations

import contextlib
import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedul.privacy.secure_aggregation import shamir
from fedul.privacy.secure_aggregation.problems import Refusal

from ...worlds import repeatable

secrets = st.binary(min_size=32, max_size=32)


@repeatable
@given(secrets, st.integers(1, 12), st.integers(0, 6), st.randoms(use_true_random=False))
def test_any_shares_up_to_the_threshold_give_the_secret(
    secret: bytes, threshold: int, more: int, choice: random.Random
) -> None:
    holders = choice.sample(range(1, 300), threshold + more)
    shares = shamir.split(secret, threshold, holders)
    chosen = choice.sample(holders, threshold)
    assert shamir.combine({x: shares[x] for x in chosen}) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_the_smallest_and_largest_secret_can_be_shared(secret: bytes) -> None:
    shares = shamir.split(secret, 3, [1, 2, 3, 4, 5])
    for chosen in combinations(shares, 3):
        assert shamir.combine({x: shares[x] for x in chosen}) == secret


@repeatable
@given(secrets, secrets, st.integers(2, 6))
def test_one_share_less_fits_every_other_secret(secret: bytes, other: bytes, threshold: int) -> None:
    """For any other secret there is a last share with which the first t - 1 give it: they do not exclude any."""
    shares = shamir.split(secret, threshold, range(1, threshold + 1))
    known = dict(list(shares.items())[: threshold - 1])
    last = threshold
    factors = dict(zip(range(1, threshold + 1), shamir._lagrange_at_zero(tuple(range(1, threshold + 1))), strict=True))
    rest = sum(int.from_bytes(share, "big") * factors[x] for x, share in known.items())
    needed = (int.from_bytes(other, "big") - rest) * pow(factors[last], -1, shamir.PRIME) % shamir.PRIME
    assert shamir.combine({**known, last: needed.to_bytes(shamir.SHARE_BYTES, "big")}) == other


def test_shares_of_the_same_secret_are_different_every_time() -> None:
    one, other = (shamir.split(bytes(32), 3, [1, 2, 3]) for _ in range(2))
    assert all(one[x] != other[x] for x in one)


def test_a_wrong_share_gives_another_secret_or_a_refusal() -> None:
    shares = shamir.split(bytes(32), 3, [1, 2, 3])
    shares[2] = bytes(33)
    with contextlib.suppress(Refusal):
        assert shamir.combine(shares) != bytes(32)


def test_the_modulus_is_a_prime_above_every_secret() -> None:
    """Miller and Rabin's test, which a composite passes with probability below 4^-50."""
    p, generator = shamir.PRIME, random.Random(0)
    assert p > 2**256
    odd, twos = p - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(50):
        x = pow(generator.randrange(2, p - 1), odd, p)
        seen = [pow(x, 2**i, p) for i in range(twos)]
        assert x == 1 or p - 1 in seen


@pytest.mark.parametrize(("threshold", "holders"), [(0, [1]), (3, [1, 2]), (1, [0, 1])])
def test_impossible_thresholds_and_holders_are_refused(threshold: int, holders: list[int]) -> None:
    with pytest.raises(ValueError, match="at least as many holders"):
        shamir.split(bytes(32), threshold, holders)
