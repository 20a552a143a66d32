"""A masked vector is uniformly distributed: nobody sees anything of the values in it.

Thresholds are quantiles of the statistics under uniformity, so that a test fails by chance with the stated probability.
"""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy.stats import chi2, norm

from fedul.privacy.secure_aggregation.in_process import LocalFederation
from fedul.privacy.secure_aggregation.masks import CHUNK, Words
from fedul.privacy.secure_aggregation.messages import MaskedVector

from .protocol import RECEIVED, names, one_field, terms_for

CHANCE = 1e-9
"""Probability with which one of the statistics exceeds its threshold by chance."""


class Recording(LocalFederation):
    """Sites whose masked vectors can be read."""

    def _move(self, phase, kind, message, *, down=False):  # type: ignore[no-untyped-def]
        if isinstance(message, MaskedVector):
            self.seen[message.site] = message.words
        return super()._move(phase, kind, message, down=down)


@pytest.fixture(scope="module", params=[32, 64])
def masked(request: pytest.FixtureRequest) -> np.ndarray:
    """Return the masked vector of a site that sends zeros, as bytes."""
    layout = one_field(3, 2**18, request.param)
    federation = Recording(names(3))
    federation.seen = {}  # type: ignore[attr-defined]
    zeros = layout.encode({}).words
    sums, _ = federation.aggregate(terms_for(layout), layout, dict.fromkeys(names(3), zeros), RECEIVED)
    assert not layout.decode(sums)["delta"].any()
    return np.frombuffer(federation.seen[names(3)[0]], np.uint8)  # type: ignore[attr-defined]


def test_every_byte_is_equally_frequent_at_every_place_of_a_word(masked: np.ndarray) -> None:
    width = len(masked) // 2**18
    for place in range(width):
        counts = np.bincount(masked[place::width], minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(CHANCE, 255)


def test_neighbouring_words_and_bits_are_not_correlated(masked: np.ndarray) -> None:
    width = len(masked) // 2**18
    words = masked.view(f"<u{width}").astype(np.float64)
    scaled = (words / 2.0 ** (8 * width) - 0.5) * np.sqrt(12)  # mean 0, variance 1
    count = len(scaled)
    assert abs(scaled.sum()) / np.sqrt(count) < norm.isf(CHANCE / 2)
    for lag in (1, 2, 16):
        assert abs((scaled[lag:] * scaled[:-lag]).sum()) / np.sqrt(count - lag) < norm.isf(CHANCE / 2)
    bits = np.unpackbits(masked).astype(np.float64)
    assert abs(bits.sum() - len(bits) / 2) / np.sqrt(len(bits) / 4) < norm.isf(CHANCE / 2)


def test_pairs_of_bytes_are_equally_frequent(masked: np.ndarray) -> None:
    pairs = masked[: len(masked) // 2 * 2].view("<u2")
    counts = np.bincount(pairs >> 4, minlength=4096)  # 12 bits: more than 100 expected in every cell
    expected = counts.sum() / 4096
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(CHANCE, 4095)


def test_without_masks_these_tests_fail() -> None:
    """A vector of small numbers that is not masked is recognised by each statistic."""
    layout = one_field(3, 2**18)
    values = np.abs(np.random.default_rng(0).normal(scale=0.1, size=2**18))
    data = np.frombuffer(layout.encode({"delta": values}).words.to_bytes(), np.uint8)
    for test in (
        test_every_byte_is_equally_frequent_at_every_place_of_a_word,
        test_neighbouring_words_and_bits_are_not_correlated,
        test_pairs_of_bytes_are_equally_frequent,
    ):
        with pytest.raises(AssertionError):
            test(data)


@pytest.mark.parametrize(("narrow", "wide"), [(0, 0), (1, 0), (0, 1), (CHUNK // 4 + 3, 5), (7, CHUNK // 8 + 1)])
def test_a_mask_is_the_keystream_of_chacha20_in_order(narrow: int, wide: int) -> None:
    seed = bytes(range(32))
    words = Words.zeros(narrow, wide)
    words.add_mask(seed)
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(4 * narrow + 8 * wide))
    assert words.to_bytes() == stream
    words.add_mask(seed, sign=-1)
    assert words.to_bytes() == bytes(len(stream))
