"""FedAdam: the server takes Adam steps along the mean update.

Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithm 2: no bias correction, and the second moment starts
at tau^2. It acts on parameters alone; batch-norm statistics are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedul.algorithms.base import Algorithm, Update, Weights, mean_of, moved
from fedul.settings import option


@dataclass(frozen=True)
class FedAdam(Algorithm):
    """m and v are running means of the update and of its square; weights + step * m / (sqrt(v) + tau)."""

    step: float = option(0.02, "Server step size (eta).", low=0)
    momentum: float = option(0.9, "beta_1.", low=0, high=0.999)
    memory: float = option(0.99, "beta_2.", low=0, high=0.99999)
    tau: float = option(1e-3, "How far from zero the divisor is kept.", low=1e-12)

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        mean = mean_of(updates, self.weighting)
        direction: Weights = {}
        kept: Weights = {}
        for name, change in mean.delta.items():
            first = state.get(f"first/{name}", torch.zeros_like(change))
            second = state.get(f"second/{name}", torch.full_like(change, self.tau**2))
            first = self.momentum * first + (1 - self.momentum) * change
            second = self.second_moment(second, change**2)
            direction[name] = first / (second.sqrt() + self.tau)
            kept |= {f"first/{name}": first, f"second/{name}": second}
        return moved(weights, direction, self.step, mean.buffers), kept

    def second_moment(self, before: Tensor, square: Tensor) -> Tensor:
        """v from the last v and the square of the update."""
        return self.memory * before + (1 - self.memory) * square
