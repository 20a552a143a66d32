"""FedAvgM: the server takes momentum steps along the mean update.

Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019. With
momentum = 0 it is FedAvg. Momentum applies to parameters; batch-norm statistics are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedul._utils.settings import option
from fedul.algorithms.base import Algorithm
from fedul.algorithms.mean import apply_update
from fedul.core import MeanUpdate, Weights


@dataclass(frozen=True)
class FedAvgM(Algorithm):
    """The global model moves by ``step * v``, where ``v = momentum * v + mean update``.

    With momentum = 0 it is FedAvg.

    Parameters
    ----------
    momentum : float, default=0.5
        Factor of the previous v.
    weighting : {"uniform", "rows"}, default="uniform"
        Whether all clients count the same or by their rows.
    step : float, default=1.0
        Global step size.
    """

    momentum: float = option(0.5, "Factor of the previous server step; with 0 this is fedavg.", low=0, high=0.999)

    def advance(
        self, weights: Weights, server_state: Weights, mean: MeanUpdate, clients: int
    ) -> tuple[Weights, Weights]:
        velocity = {
            name: self.momentum * server_state[name] + change if name in server_state else change
            for name, change in mean.delta.items()
        }
        return apply_update(weights, velocity, self.step, mean.buffers), velocity
