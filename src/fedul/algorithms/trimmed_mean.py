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

from fedul.algorithms.base import Algorithm, Update, Weights, moved, nobody, refuse_rows
from fedul.settings import option


@dataclass(frozen=True)
class TrimmedMean(Algorithm):
    """The mean of what is left in each coordinate; clients count the same."""

    trim: float = option(0.2, "Share of the clients left out at either end; at 0 this is fedavg.", low=0, high=0.49)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_rows(self)

    def remarks(self, weights: Weights, clients: int) -> list[str]:
        if not self.trim or self._cut(clients):
            return []
        return [f"trimmed-mean: trim {self.trim:g} of {clients} clients is less than one, so that this is fedavg."]

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        return by_coordinate(self._trimmed, weights, updates, self.step), state

    def _trimmed(self, values: Tensor) -> Tensor:
        cut = self._cut(len(values))
        return values.sort(0).values[cut : len(values) - cut].mean(0)

    def _cut(self, clients: int) -> int:
        """How many are left out at either end."""
        return int(self.trim * clients + 1e-9)


def by_coordinate(
    centre: Callable[[Tensor], Tensor], weights: Weights, updates: Iterable[Update], step: float
) -> Weights:
    """The weights moved by some centre of the clients' changes (clients, ...) in every coordinate."""
    groups: tuple[list[Weights], list[Weights]] = ([], [])
    for update in updates:
        for group, changes in zip(groups, (update.delta, update.buffers), strict=True):
            group.append({name: tensor.clone() for name, tensor in changes.items()})
    if not groups[0]:
        raise nobody()
    delta, buffers = (_centres(centre, group) for group in groups)
    return moved(weights, delta, step, buffers)


def _centres(centre: Callable[[Tensor], Tensor], everyone: list[Weights]) -> Weights:
    change = {}
    for name in dict.fromkeys(name for one in everyone for name in one):
        sample = next(one[name] for one in everyone if name in one)
        # A buffer that is left out of an update did not change.
        change[name] = centre(torch.stack([one.get(name, torch.zeros_like(sample)) for one in everyone]))
    return change
