"""FedAdam: the server takes Adam steps along the mean update.

Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithm 2: no bias correction, and the second moment starts
at tau^2. Adam applies to parameters; batch-norm statistics are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedul._utils.settings import option
from fedul.algorithms.base import Algorithm
from fedul.algorithms.mean import apply_update
from fedul.core import MeanUpdate, Weights


@dataclass(frozen=True)
class FedAdam(Algorithm):
    """The global model moves by ``step * m / (sqrt(v) + tau)``.

    m and v are running means of the mean update and of its square.

    Parameters
    ----------
    weighting : {"uniform", "rows"}, default="uniform"
        Whether all clients count the same or by their rows.
    step : float, default=0.02
        Server step size (eta).
    momentum : float, default=0.9
        Decay of m (beta_1).
    memory : float, default=0.99
        Decay of v (beta_2).
    tau : float, default=0.001
        Lower bound of the divisor.
    """

    step: float = option(0.02, "Server step size (eta).", low=0)
    momentum: float = option(0.9, "Decay of the first moment (beta_1).", low=0, high=0.999)
    memory: float = option(0.99, "Decay of the second moment (beta_2).", low=0, high=0.99999)
    tau: float = option(1e-3, "Lower bound of the divisor.", low=1e-12)

    def advance(
        self, weights: Weights, server_state: Weights, mean: MeanUpdate, clients: int
    ) -> tuple[Weights, Weights]:
        direction: Weights = {}
        moments: Weights = {}
        for name, change in mean.delta.items():
            first = server_state.get(f"first/{name}", torch.zeros_like(change))
            second = server_state.get(f"second/{name}", torch.full_like(change, self.tau**2))
            first = self.momentum * first + (1 - self.momentum) * change
            second = self.second_moment(second, change**2)
            direction[name] = first / (second.sqrt() + self.tau)
            moments |= {f"first/{name}": first, f"second/{name}": second}
        return apply_update(weights, direction, self.step, mean.buffers), moments

    def second_moment(self, before: Tensor, square: Tensor) -> Tensor:
        """Return the next v from the previous v and the square of the update."""
        return self.memory * before + (1 - self.memory) * square
