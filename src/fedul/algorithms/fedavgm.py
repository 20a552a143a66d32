"""FedAvgM: the server takes momentum steps along the mean update.

Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019. At
momentum 0 it is FedAvg. It acts on parameters alone; batch-norm statistics are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedul.algorithms.base import Algorithm, Update, Weights, mean_of, moved
from fedul.settings import option


@dataclass(frozen=True)
class FedAvgM(Algorithm):
    """velocity = momentum * velocity + mean update; weights + step * velocity."""

    momentum: float = option(0.5, "How much of the last server step is kept; at 0 this is fedavg.", low=0, high=0.999)

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        mean = mean_of(updates, self.weighting)
        velocity = {
            name: self.momentum * state[name] + change if name in state else change
            for name, change in mean.delta.items()
        }
        return moved(weights, velocity, self.step, mean.buffers), velocity
