"""Gaussian noise on a sum of clipped gradients, and what finite precision means for the guarantee.

The proof of the Gaussian mechanism is about real numbers. Floating-point noise leaves traces: which low-order bits a
sum can have depends on the value that the noise was added to (Mironov, CCS 2012; Jin et al., S&P 2022). Therefore sum
and noise are added in float64, and the result is rounded to multiples of a power of two, about 2^-14 standard
deviations of the noise, before anything else is computed from it. Rounding is post-processing: it changes nothing in
the proof, and adds at most 2^-29 of the variance of the noise. The low-order bits are gone, and a multiple of the grid
is the result of very many possible values of the noise, whatever the sum is.

What remains is not proven. The noise has 53-bit uniform numbers behind it and ends at 8.6 standard deviations, which a
normal number exceeds with probability 1e-17. The gradients are sums in finite precision, whose rounding depends on all
rows of a batch (Casacuberta et al., CCS 2022); it is of the order of 1e-6 of their norm, far below the noise. The time
that a step takes depends on the size of its batch, which someone who can measure it learns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedul.privacy.dp_sgd.stream import RandomStream

GRID_BITS = 14
"""The grid of results is 2^-14 standard deviations of the noise wide, or up to twice as much."""


def add_noise(sums: Sequence[Tensor], deviation: float, stream: RandomStream) -> list[Tensor]:
    """Return tensors with independent noise N(0, deviation^2) on every element, rounded to the grid.

    Parameters
    ----------
    sums : sequence of Tensor
        The tensors, which together have a bounded norm.
    deviation : float
        Standard deviation of the noise; 0 adds none and does not round.
    stream : RandomStream
        Source of the noise.
    """
    if not deviation:
        return list(sums)
    grid = 2.0 ** math.ceil(math.log2(deviation) - GRID_BITS)
    sizes = [each.numel() for each in sums]
    noise = torch.split(stream.normal(sum(sizes)).mul_(deviation), sizes)
    noisy = []
    for each, part in zip(sums, noise, strict=True):
        total = each.double() + part.view(each.shape).to(each.device)
        rounded = total.div_(grid).round_().mul_(grid)
        noisy.append(torch.empty_like(each).copy_(rounded))  # with the strides of the parameter
    return noisy
