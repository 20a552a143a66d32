"""Masks: a ChaCha20 keystream read as unsigned integers, added to or subtracted from a vector modulo 2^32 and 2^64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedul.privacy.secure_aggregation.problems import Refusal

CHUNK = 2**18
"""Bytes of keystream made at a time, a multiple of both word sizes: they stay in the cache while they are added."""


@dataclass(frozen=True, eq=False)
class Words:
    """A vector of integers: some modulo 2^32, the others modulo 2^64. Little-endian on every machine.

    Parameters
    ----------
    narrow : ndarray of uint32
        Integers modulo 2^32.
    wide : ndarray of uint64
        Integers modulo 2^64.
    """

    narrow: NDArray[np.uint32]
    wide: NDArray[np.uint64]

    @classmethod
    def zeros(cls, narrow: int, wide: int) -> Self:
        """Return a vector of zeros."""
        return cls(np.zeros(narrow, "<u4"), np.zeros(wide, "<u8"))

    @classmethod
    def from_bytes(cls, data: bytes, narrow: int, wide: int) -> Self:
        """Return a vector from the result of `to_bytes`; Refusal if it has another size."""
        if len(data) != 4 * narrow + 8 * wide:
            raise Refusal(f"a masked vector has {len(data)} bytes instead of {4 * narrow + 8 * wide}.")
        return cls(np.frombuffer(data, "<u4", narrow), np.frombuffer(data, "<u8", wide, 4 * narrow))

    def to_bytes(self) -> bytes:
        """Return the integers as bytes."""
        return self.narrow.tobytes() + self.wide.tobytes()

    def copy(self) -> Words:
        """Return a copy that can be changed."""
        return Words(self.narrow.copy(), self.wide.copy())

    def add(self, other: Words) -> None:
        """Add another vector, in place."""
        self.narrow[:] += other.narrow
        self.wide[:] += other.wide

    def add_mask(self, seed: bytes, sign: int = 1) -> None:
        """Add the mask of a seed, or subtract it, in place.

        Parameters
        ----------
        seed : bytes
            32 bytes, used for one vector only.
        sign : {1, -1}
            Whether the mask is added or subtracted.
        """
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        # The counter and the nonce start at 0: a seed is fresh in every aggregation and makes one mask.
        stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
        combine: Any = np.add if sign > 0 else np.subtract
        zeros, keystream = bytes(CHUNK), bytearray(CHUNK)
        for words in (self.narrow, self.wide):
            count = CHUNK // words.itemsize
            for start in range(0, len(words), count):
                part = words[start : start + count]
                stream.update_into(zeros[: part.nbytes], keystream)
                combine(part, np.frombuffer(keystream, words.dtype, len(part)), out=part)
