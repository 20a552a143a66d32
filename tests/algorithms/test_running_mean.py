"""The mean over rounds that is delivered: an exponential mean without the bias towards the start."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor

from fedul._utils.files import tensors_digest
from fedul.core import Weights
from fedul.training.state import running_mean

from ..worlds import repeatable, seeds


def mean_over(rounds: list[Weights], decay: float) -> Weights:
    """As a run does it, from weights that are not part of the mean."""
    mean: Weights = {name: torch.full_like(tensor, 77) for name, tensor in rounds[0].items()}
    for number, weights in enumerate(rounds, 1):
        mean = running_mean(mean, weights, number, decay)
    return mean


@repeatable
@given(seeds, st.integers(1, 12), st.floats(0, 0.999))
def test_every_round_counts_decay_times_the_one_after_it_and_the_start_not_at_all(
    seed: int, count: int, decay: float
) -> None:
    values = np.random.default_rng(seed).normal(size=(count, 2, 3))
    found = mean_over([{"w": torch.from_numpy(value)} for value in values], decay)["w"]
    shares = decay ** np.arange(count - 1, -1, -1.0)
    assert_allclose(found, np.average(values, axis=0, weights=shares), rtol=0, atol=1e-10)


@repeatable
@given(seeds, st.integers(1, 5))
def test_at_decay_0_it_is_the_last_round_to_the_bit(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rounds = [{"w": torch.randn(3, generator=generator)} for _ in range(count)]
    assert tensors_digest(mean_over(rounds, 0.0)) == tensors_digest(rounds[-1])


def test_whole_numbers_and_flags_are_those_of_the_last_round() -> None:
    rounds = [{"count": torch.tensor(n), "flag": torch.tensor([n > 1, True])} for n in (1, 2, 5)]
    assert tensors_digest(mean_over(rounds, 0.8)) == tensors_digest(rounds[-1])


def mask() -> Tensor:
    return torch.tensor([0.0, float("-inf"), float("inf")])


def test_infinities_of_a_constant_buffer_are_kept() -> None:
    rounds = [{"mask": mask(), "w": torch.tensor([float(n)])} for n in range(4)]
    found = mean_over(rounds, 0.8)
    assert torch.equal(found["mask"], mask())
    assert bool(found["w"].isfinite().all())


def test_precision_is_kept() -> None:
    for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        found = mean_over([{"w": torch.tensor([1.0, n], dtype=kind)} for n in (1.0, 2.0, 3.0)], 0.5)["w"]
        assert found.dtype == kind


def test_nothing_that_was_given_is_changed() -> None:
    before, last = {"w": torch.ones(2)}, {"w": torch.zeros(2)}
    running_mean(before, last, 3, 0.8)
    assert torch.equal(before["w"], torch.ones(2))
    assert torch.equal(last["w"], torch.zeros(2))
