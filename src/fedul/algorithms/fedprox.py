"""FedProx: FedAvg whose clients are held near the global model.

Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020: each client minimises its loss plus
mu/2 |w - w_global|^2. At mu = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedul.algorithms.base import Algorithm, Correction, Weights
from fedul.settings import option


@dataclass(frozen=True)
class FedProx(Algorithm):
    """Local gradients gain mu * (w - w_global)."""

    mu: float = option(0.01, "Weight of the proximal term; at 0 this is fedavg.", low=0)

    def correction(self, sent: Weights, kept: Weights) -> Correction | None:
        return Correction(proximal=self.mu) if self.mu else None
