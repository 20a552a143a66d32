"""Exact samples of the discrete Laplace distribution, without floating-point numbers.

Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020, algorithms 1 and 2. Added to
a vector of whole numbers that changes by at most D in the sum of absolute differences, noise with
P(x) proportional to exp(-|x| eps / D) in every entry gives eps-differential privacy.
"""

from __future__ import annotations

from fractions import Fraction

from fedul.privacy.random_source import RandomBytes, below


def discrete_laplace(scale: Fraction, source: RandomBytes) -> int:
    """Return a whole number x with P(x) proportional to exp(-|x| / scale).

    Parameters
    ----------
    scale : Fraction
        Scale, above 0.
    source : RandomBytes
        Random bytes.
    """
    t, s = scale.numerator, scale.denominator
    while True:
        # Geometric with P(v) proportional to exp(-v / t): the remainder by rejection, the quotient by counting.
        remainder = below(t, source)
        if not _bernoulli_exp(Fraction(remainder, t), source):
            continue
        quotient = 0
        while _bernoulli_exp(Fraction(1), source):
            quotient += 1
        magnitude = (remainder + t * quotient) // s
        negative = below(2, source) == 1
        if not (negative and magnitude == 0):  # zero has one sign
            return -magnitude if negative else magnitude


def _bernoulli_exp(gamma: Fraction, source: RandomBytes) -> bool:
    """Return True with probability exp(-gamma), for gamma in 0..1."""
    k = 1
    while below(gamma.denominator * k, source) < gamma.numerator:  # with probability gamma / k
        k += 1
    return k % 2 == 1
