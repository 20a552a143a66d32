"""Random numbers, batches and noise of DP-SGD follow their distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from fedul.privacy.dp_sgd.clipping import clip_factors
from fedul.privacy.dp_sgd.noise import GRID_BITS, add_noise
from fedul.privacy.dp_sgd.sampling import BatchSampler
from fedul.privacy.dp_sgd.stream import RandomStream

LEVEL = 1e-6
"""Probability that a test of a distribution fails for another seed."""


def stream(seed: int = 0) -> RandomStream:
    return RandomStream.from_seed(seed, "test")


def test_uniform_numbers_are_uniform_and_inside() -> None:
    values = stream().uniform(200_000)
    assert 0 < float(values.min()) < float(values.max()) < 1
    assert stats.kstest(values.numpy(), "uniform").pvalue > LEVEL


@pytest.mark.parametrize("count", [1, 2, 7, 200_000])
def test_normal_numbers_are_normal_and_independent(count: int) -> None:
    values = stream(1).normal(count)
    assert values.shape == (count,)
    assert values.dtype == torch.float64
    if count > 1000:
        assert stats.kstest(values.numpy(), "norm").pvalue > LEVEL
        first, second = values.numpy()[: count // 2], values.numpy()[count // 2 :]  # two halves of one transform
        assert stats.pearsonr(first, second).pvalue > LEVEL
        assert stats.pearsonr(first**2, second**2).pvalue > LEVEL
        assert stats.pearsonr(values.numpy()[:-1], values.numpy()[1:]).pvalue > LEVEL


def test_streams_of_the_operating_system_differ() -> None:
    one, other = (RandomStream.from_system().uniform(8).tolist() for _ in range(2))
    assert not set(one) & set(other)


def test_a_stream_does_not_repeat_itself() -> None:
    one = stream()
    numbers = [*one.uniform(1000).tolist(), *one.uniform(1000).tolist()]
    assert len(set(numbers)) == 2000
    assert len({one.seed() for _ in range(100)}) == 100


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_every_row_is_in_a_batch_with_the_rate_independently_of_the_others(rate: float) -> None:
    rows, batches = 40, 4000
    sampler = BatchSampler(torch.arange(rows), rate, stream(2))
    chosen = np.zeros((batches, rows), bool)
    for batch in chosen:
        positions, weights = sampler.draw()
        assert positions.tolist() == sorted(set(positions.tolist()))
        assert bool((weights == 1).all())
        batch[positions.numpy()] = True
    # Counts of rows over batches, and sizes of batches over rows, are binomial.
    of_rows = (chosen.sum(0) - batches * rate) / math.sqrt(batches * rate * (1 - rate))
    assert stats.chi2.sf((of_rows**2).sum(), rows) > LEVEL
    sizes = chosen.sum(1)
    expected = rows * rate * (1 - rate)
    # The variance of the sizes would differ if rows were not independent.
    spread = math.sqrt(2 / batches + (1 - 6 * rate * (1 - rate)) / (expected * batches))
    assert abs(sizes.var() / expected - 1) < 5 * spread
    assert sizes.min() < rows * rate < sizes.max()
    if rate == 0.01:
        assert (sizes == 0).mean() == pytest.approx((1 - rate) ** rows, abs=5 * math.sqrt(0.25 / batches))


def test_with_rate_one_every_batch_has_all_rows() -> None:
    assert BatchSampler(torch.arange(7), 1.0, stream()).draw()[0].tolist() == list(range(7))


def test_a_row_in_several_sets_is_in_a_batch_once_with_a_random_one_of_its_terms() -> None:
    index, rate, batches = torch.tensor([4, 9, 4, 4, 1, 9]), 0.6, 5000
    sampler = BatchSampler(index, rate, stream(7))
    assert len(sampler) == 3
    total, drawn = np.zeros(len(index)), np.zeros((batches, len(index)), bool)
    for batch in drawn:
        positions, weights = sampler.draw()
        assert len(set(index[positions].tolist())) == len(positions)
        total[positions.numpy()] += weights.numpy()
        batch[positions.numpy()] = True
    # The weight of every term is the rate on average; its variance is at most that of the row with three terms.
    assert np.abs(total / batches - rate).max() < 5 * math.sqrt(3 * rate / batches)
    assert drawn[:, [0, 2, 3]].any(1).mean() == pytest.approx(rate, abs=5 * math.sqrt(0.25 / batches))


def test_noise_is_normal_around_the_sums() -> None:
    sums = [torch.full((300, 100), 3.0), torch.full((5_000,), -2.0)]
    noisy = add_noise(sums, 0.7, stream(3))
    values = torch.cat([(a.double() - b.double()).flatten() for a, b in zip(noisy, sums, strict=True)]) / 0.7
    assert [each.shape for each in noisy] == [each.shape for each in sums]
    assert stats.kstest(values.numpy(), "norm").pvalue > LEVEL
    assert_close(sums[0], torch.full((300, 100), 3.0))  # not changed


@pytest.mark.parametrize("deviation", [0.7, 1e-5, 40.0])
def test_results_are_multiples_of_a_power_of_two(deviation: float) -> None:
    sums = [torch.randn(5_000, generator=torch.Generator().manual_seed(0))]
    (noisy,) = add_noise(sums, deviation, stream(4))
    grid = 2.0 ** math.ceil(math.log2(deviation) - GRID_BITS)
    assert deviation / 2**GRID_BITS <= grid < 2 * deviation / 2**GRID_BITS
    steps = noisy.double() / grid
    assert bool((steps == steps.round()).all())


def test_without_noise_sums_are_unchanged() -> None:
    (same,) = add_noise([torch.tensor([math.pi])], 0.0, stream())
    assert_close(same, torch.tensor([math.pi]), rtol=0, atol=0)


def test_noise_keeps_the_strides_of_a_parameter() -> None:
    sums = torch.zeros(4, 3, 2, 2).to(memory_format=torch.channels_last)
    assert add_noise([sums], 1.0, stream())[0].stride() == sums.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipped_norms_are_at_most_the_limit(dtype: torch.dtype) -> None:
    norms = torch.logspace(-12, 12, 4001, dtype=torch.float64)
    factors = clip_factors((norms**2).to(dtype), 0.3).double()
    assert bool((factors * norms <= 0.3).all())
    assert bool((factors[norms < 0.2999] == 1).all())
    assert bool((factors * norms)[norms > 0.3].min() > 0.3 * (1 - 2e-5))
    assert clip_factors(torch.tensor([0.0, math.inf, math.nan], dtype=dtype), 1.0).tolist() == [1, 0, 0]
