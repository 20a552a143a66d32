"""The trimmed mean: in every coordinate the largest and the smallest updates are left out, so that a few clients that
send nonsense cannot move the model far.

Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018. Trimming nothing is
FedAvg. All updates of a round are in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedul.algorithms.base import Algorithm, Update, Weights, moved, nobody
from fedul.config import option
from fedul.errors import InputError


@dataclass(frozen=True)
class TrimmedMean(Algorithm):
    """The mean of what is left in each coordinate; clients count the same."""

    trim: float = option(0.2, "Share of the clients left out at either end; at 0 this is fedavg.", low=0, high=0.49)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_rows(self)

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        return by_coordinate(self._trimmed, weights, updates, self.step), state

    def _trimmed(self, values: Tensor) -> Tensor:
        cut = int(self.trim * len(values) + 1e-9)
        return values.sort(0).values[cut : len(values) - cut].mean(0)


def refuse_rows(algorithm: Algorithm) -> None:
    """Weights of clients have no meaning where a coordinate's order decides."""
    if algorithm.weighting != "uniform":
        raise InputError(f"weighting: '{algorithm.weighting}' is not possible here, where clients count the same.")


def by_coordinate(
    centre: Callable[[Tensor], Tensor], weights: Weights, updates: Iterable[Update], step: float
) -> Weights:
    """The weights moved by some centre of the clients' changes (clients, ...) in every coordinate."""
    everyone = [
        {name: tensor.clone() for name, tensor in {**update.delta, **update.buffers}.items()} for update in updates
    ]
    if not everyone:
        raise nobody()
    names = dict.fromkeys(name for one in everyone for name in one)
    change = {}
    for name in names:
        sample = next(one[name] for one in everyone if name in one)
        # A buffer that is left out of an update did not change.
        change[name] = centre(torch.stack([one.get(name, torch.zeros_like(sample)) for one in everyone]))
    return moved(weights, change, step)
