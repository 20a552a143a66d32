"""Random numbers for differential privacy: a ChaCha20 key stream whose key is from the operating system.

The generators of torch and NumPy are not made for this. The CPU generator of torch even uses 32 bits of its seed only
(seeds that agree in their lowest 32 bits give the same numbers), so an attacker could try all of them. ChaCha20 (RFC
8439) with a fresh key of 256 bits for every client and round has no such limit.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from typing import Self

import torch
from torch import Tensor

from fedul.errors import InputError

KEY_BYTES = 32
MANTISSA = 53
"""Bits of a uniform number."""


class RandomStream:
    """A stream of random numbers.

    Parameters
    ----------
    key : bytes
        32 bytes that nobody else knows.

    Examples
    --------
    >>> one, same = RandomStream.from_seed(0, "north"), RandomStream.from_seed(0, "north")
    >>> bool((one.normal(5) == same.normal(5)).all())
    True
    """

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
        except ImportError:
            raise InputError(
                "differential privacy needs the package cryptography; install it: pip install 'fedul[privacy]'."
            ) from None
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    @classmethod
    def from_system(cls) -> Self:
        """Return a stream whose key is from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_seed(cls, *key: int | str) -> Self:
        """Return the stream of a key that others can guess: repeatable, and no guarantee."""
        return cls(hashlib.sha256(repr(key).encode()).digest())

    def uniform(self, count: int) -> Tensor:
        """Return numbers (count,) between 0 and 1, both excluded, in float64: odd multiples of 2^-54."""
        if not count:
            return torch.empty(0, dtype=torch.float64)
        bits = torch.frombuffer(bytearray(self._stream.update(bytes(8 * count))), dtype=torch.int64)
        high: Tensor = (bits >> (64 - MANTISSA)) & (2**MANTISSA - 1)
        return high.double().add_(0.5).mul_(2.0**-MANTISSA)

    def normal(self, count: int) -> Tensor:
        """Return standard normal numbers (count,) in float64, by the transform of Box and Muller (1958)."""
        half = (count + 1) // 2
        first, second = torch.split(self.uniform(2 * half), half)
        radius, angle = first.log().mul_(-2).sqrt_(), second * (2 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]

    def seed(self) -> int:
        """Return a 63-bit seed, for random numbers that the guarantee does not depend on."""
        return int.from_bytes(self._stream.update(bytes(8)), "little") >> 1
