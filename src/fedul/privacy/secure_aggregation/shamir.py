"""Shamir's secret sharing of 32-byte secrets over the integers modulo the prime 2^256 + 297.

Shamir, How to Share a Secret, CACM 1979. A secret is the value at 0 of a random polynomial of degree t - 1, and holder
number x = 1, 2, ... receives its value at x. Any t shares determine the secret; t - 1 are independent of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fedul.privacy.secure_aggregation.problems import Refusal

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
    """Return the shares of a secret by holder.

    Parameters
    ----------
    secret : bytes
        32 bytes.
    threshold : int
        Shares that determine the secret (t).
    holders : sequence of int
        Numbers of the holders, which are different and above 0.

    Examples
    --------
    >>> secret = bytes(range(32))
    >>> shares = split(secret, 2, [1, 2, 5])
    >>> combine({1: shares[1], 5: shares[5]}) == secret
    True
    """
    if len(secret) != SECRET_BYTES or not 0 < threshold <= len(holders) or min(holders) < 1:
        raise ValueError("a secret has 32 bytes, and at least as many holders, from 1, as its threshold")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]  # of the highest power first
    coefficients.append(int.from_bytes(secret, "big"))
    shares = {}
    for x in holders:
        value = 0
        for coefficient in coefficients:
            value = (value * x + coefficient) % PRIME
        shares[x] = value.to_bytes(SHARE_BYTES, "big")
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of as many shares as the threshold.

    Parameters
    ----------
    shares : mapping of int to bytes
        Exactly t shares by holder. Wrong ones give another secret, or a Refusal.
    """
    holders = tuple(sorted(shares))
    values = [int.from_bytes(shares[x], "big") for x in holders]
    factors = _lagrange_at_zero(holders)
    secret = sum(value * factor for value, factor in zip(values, factors, strict=True)) % PRIME
    if secret.bit_length() > 8 * SECRET_BYTES:
        raise Refusal("shares of a secret do not match; a site sent a wrong one.")
    return secret.to_bytes(SECRET_BYTES, "big")


@lru_cache(maxsize=256)
def _lagrange_at_zero(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Return the factors of the values at these places in the value at 0. Secrets with the same holders share them."""
    factors = []
    for x in holders:
        numerator = denominator = 1
        for other in holders:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        factors.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(factors)
