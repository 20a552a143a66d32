"""FedProx: FedAvg with a proximal term that keeps clients near the global model.

Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020. With mu = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedul._utils.settings import option
from fedul.algorithms.base import Algorithm, Correction
from fedul.core import Weights


@dataclass(frozen=True)
class FedProx(Algorithm):
    """FedAvg with the local penalty ``mu / 2 * ||w - w_global||^2``.

    With mu = 0 it is FedAvg.

    Parameters
    ----------
    mu : float, default=0.01
        Strength of the penalty.
    """

    mu: float = option(0.01, "Strength of the proximal term; with 0 this is fedavg.", low=0)

    def correction(self, received: Weights, client_state: Weights) -> Correction | None:
        return Correction(proximal=self.mu) if self.mu else None
