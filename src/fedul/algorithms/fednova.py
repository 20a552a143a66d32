"""FedNova: clients that take more local steps do not count for more.

Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020. Each
update is divided by |a_c|_1, the plain gradient steps it amounts to (with momentum, see `plain_steps`), and their mean
is multiplied by the mean of these: tau_eff. Where all clients take equally many steps it is FedAvg. With Adam as the
local optimiser |a_c|_1 is taken to be the number of steps, which the paper does not cover: a heuristic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedul.algorithms.base import Algorithm, Update, Weights, mean_of, moved


@dataclass(frozen=True)
class FedNova(Algorithm):
    """The mean of the updates per step, times the mean number of steps."""

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        mean = mean_of(updates, self.weighting, factor=lambda update: 1 / update.steps)
        return moved(weights, mean.delta, self.step * mean.steps, mean.buffers), state
