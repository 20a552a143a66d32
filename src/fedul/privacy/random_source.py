"""Random whole numbers for privacy, from bytes: of the operating system, or of a seed in simulations.

A guarantee of differential privacy needs random numbers that nobody can predict. `os.urandom` gives them. Numbers that
follow from a seed give no guarantee, because anyone who knows the seed can subtract the noise.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from fedul._utils.randomness import numpy_generator

RandomBytes = Callable[[int], bytes]
"""Function that returns random bytes, given how many."""


def random_source(seed: int | None, *key: int | str) -> RandomBytes:
    """Return the random bytes of the operating system, or those of a seed.

    Parameters
    ----------
    seed : int or None
        Seed, which gives no guarantee; None for the operating system.
    key : int or str
        Purpose of seeded bytes.

    Examples
    --------
    >>> random_source(0, "noise")(4) == random_source(0, "noise")(4)
    True
    >>> random_source(None, "noise")(16) == random_source(None, "noise")(16)
    False
    """
    return os.urandom if seed is None else numpy_generator(seed, "privacy", *key).bytes


def below(limit: int, source: RandomBytes) -> int:
    """Return a whole number uniform in 0 .. limit - 1, exactly."""
    bits = (limit - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        number = int.from_bytes(source(size), "little") >> (8 * size - bits)
        if number < limit:
            return number
