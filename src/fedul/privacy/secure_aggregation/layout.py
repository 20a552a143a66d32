"""The vector that a site sends: named fields of fixed-point numbers, with declared ranges.

A number x of a field becomes the integer round(x / step). The step is the smallest power of two for which the sum over
all sites fits the modulus, 2^32 or 2^64, so sums never overflow while every site keeps to the range. Values outside it
are clipped and counted. Rounding is to the nearest integer: the sum of n sites is off by at most n / 2 steps.
Stochastic rounding would avoid a bias, but that bias is below the rounding of float32 here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedul.privacy.secure_aggregation.codec import Encoded
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.messages import digest
from fedul.privacy.secure_aggregation.problems import NotFinite, Refusal

Values = NDArray[np.float64]
CLIPPED = "clipped"
"""Name of the field with the number of values that were clipped, which `encode` fills."""


@dataclass(frozen=True)
class Field(Encoded):
    """Numbers of one kind.

    Parameters
    ----------
    name : str
        Name of the field.
    size : int
        Number of values.
    limit : float
        Largest absolute value at one site; larger ones are clipped.
    total : float
        Largest absolute value of the weighted sum over all sites.
    bits : int, default=64
        The modulus is 2^bits; 32 or 64.
    weighted : bool, default=False
        Whether values are multiplied by the weight of the site, after clipping.
    """

    name: str
    size: int
    limit: float
    total: float
    bits: int = 64
    weighted: bool = False


@dataclass(frozen=True)
class VectorLayout(Encoded):
    """Fields of a vector that sites sum.

    Parameters
    ----------
    fields : tuple of Field
        The fields, with different names.
    sites : int
        Most sites that take part.

    Examples
    --------
    >>> layout = VectorLayout((Field("loss", 1, limit=10.0, total=30.0),), sites=3)
    >>> sums = layout.encode({"loss": np.array([1.5])}).words
    >>> sums.add(layout.encode({"loss": np.array([99.0])}).words)
    >>> layout.decode(sums)["loss"]
    array([11.5])
    """

    fields: tuple[Field, ...]
    sites: int

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        usable = all(
            field.bits in (32, 64) and 0 < field.limit < math.inf and 0 < field.total < math.inf and field.size >= 0
            for field in self.fields
        )
        if len(set(names)) < len(names) or not usable or not 0 < self.sites < 2**24:
            raise Refusal("the declared layout of sums is not valid; nothing was sent.")

    @cached_property
    def digest(self) -> bytes:
        """Digest of the declaration."""
        return digest("layout", self.to_bytes())

    @property
    def narrow(self) -> int:
        """Number of integers modulo 2^32."""
        return sum(field.size for field in self.fields if field.bits == 32)

    @property
    def wide(self) -> int:
        """Number of integers modulo 2^64."""
        return sum(field.size for field in self.fields if field.bits == 64)

    def step(self, field: Field) -> float:
        """Return the distance between two numbers that can be told apart: a power of two."""
        # |sum| <= total / step + sites / 2 must stay below half the modulus; float64 must be able to hold the margin.
        margin = max(self.sites, 2 ** (field.bits - 12))
        return 2.0 ** math.ceil(math.log2(field.total / (2 ** (field.bits - 1) - margin)))

    def encode(self, values: Mapping[str, Values], weight: float = 1.0) -> EncodedVector:
        """Return the vector of one site.

        Parameters
        ----------
        values : mapping of str to ndarray
            Values by field; a field without values is zero.
        weight : float
            Factor of the weighted fields.

        Raises
        ------
        NotFinite
            If a value is not a finite number.
        """
        words, clipped = Words.zeros(self.narrow, self.wide), 0
        for field, target in self._parts(words):
            given = values.get(field.name)
            if given is None:
                continue
            numbers = np.asarray(given, np.float64).reshape(-1)
            if not np.isfinite(numbers).all():
                raise NotFinite(f"'{field.name}' of the update is not finite, so it cannot be summed.")
            limited = np.clip(numbers, -field.limit, field.limit)
            clipped += int((limited != numbers).sum())
            scaled = np.rint(limited * ((weight if field.weighted else 1.0) / self.step(field)))
            most = field.total / self.step(field)  # of one site alone, if its weight is too large
            np.copyto(target, np.clip(scaled, -most, most).astype(f"<i{field.bits // 8}").view(target.dtype))
        for field, target in self._parts(words):
            if field.name == CLIPPED:
                target[:] = np.int64(min(clipped, field.limit) / self.step(field))
        return EncodedVector(words, clipped)

    def decode(self, sums: Words) -> dict[str, Values]:
        """Return the sums over sites by field, of which those of weighted fields are weighted."""
        return {
            field.name: source.view(f"<i{field.bits // 8}").astype(np.float64) * self.step(field)
            for field, source in self._parts(sums)
        }

    def _parts(self, words: Words) -> Sequence[tuple[Field, NDArray[np.unsignedinteger]]]:
        parts, starts = [], {32: 0, 64: 0}
        for field in self.fields:
            start = starts[field.bits]
            starts[field.bits] = end = start + field.size
            parts.append((field, (words.narrow if field.bits == 32 else words.wide)[start:end]))
        return parts


@dataclass(frozen=True, eq=False)
class EncodedVector:
    """A vector of one site as integers, and how many of its values were clipped."""

    words: Words
    clipped: int
