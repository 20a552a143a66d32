"""Exact sums of numbers of any size, such as moments of columns whose unit nobody has declared.

A number becomes an integer in units of 2^-`FRACTION_BITS`, and that becomes digits to the base 2^`BASE_BITS`, which are
summed one by one. The digits of a sum would tell a little more than the sum itself: how often digits of the sites
carried. So every site adds a random multiple of the base to each digit and takes it from the next one, which changes no
number, and hides the carries but for a statistical distance of about sites / 2^`BLINDING_BITS` a digit.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedul.errors import InputError
from fedul.privacy.secure_aggregation.layout import Field

FRACTION_BITS = 64
BASE_BITS = 16
BLINDING_BITS = 30
DIGITS = 12
"""The largest number is about 2^143, and numbers are exact to 2^-64."""
MOST_SITES_BITS = 6
"""Sums of digits stay exact in float64 for up to 2^6 sites with the largest digits, and for far more as they occur."""
LARGEST_DIGIT = 2.0 ** (BASE_BITS + BLINDING_BITS)
LARGEST = 2.0**140


def exact_field(name: str, numbers: int) -> Field:
    """Return the field of a vector that holds this many numbers."""
    return Field(name, DIGITS * numbers, limit=LARGEST_DIGIT, total=LARGEST_DIGIT * 2**MOST_SITES_BITS, bits=64)


def encode_exact(numbers: Sequence[float | Fraction]) -> NDArray[np.float64]:
    """Return the digits of numbers, as values of `exact_field`.

    Examples
    --------
    >>> decode_exact(encode_exact([1.5, -1e12]) + encode_exact([2.0, 0.25]))
    [Fraction(7, 2), Fraction(-3999999999999, 4)]
    """
    return np.array([digit for number in numbers for digit in _digits(number)], dtype=np.float64)


def decode_exact(digits: NDArray[np.float64]) -> list[Fraction]:
    """Return the numbers of summed digits."""
    values = np.asarray(digits, dtype=np.float64).reshape(-1, DIGITS).tolist()
    scale = 2**FRACTION_BITS
    return [Fraction(sum(int(d) << (BASE_BITS * place) for place, d in enumerate(row)), scale) for row in values]


def _digits(number: float | Fraction) -> list[int]:
    if not abs(float(number)) < LARGEST:  # nor NaN
        raise InputError(f"{float(number):g} is too large to be summed; correct the value, or ignore its column.")
    rest, base = round(Fraction(number) * 2**FRACTION_BITS), 2**BASE_BITS
    digits = []
    for _ in range(DIGITS - 1):
        blinding = secrets.randbelow(2 ** (BLINDING_BITS - 1)) - 2 ** (BLINDING_BITS - 2)
        digit = rest % base + blinding * base
        digits.append(digit)
        rest = (rest - digit) // base
    return [*digits, rest]
