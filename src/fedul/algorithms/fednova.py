"""FedNova: clients that take more local steps do not count more.

Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020. Each
update is divided by |a_c|_1, its effective number of gradient steps (`effective_steps`), and the mean of the results is
multiplied by the mean of these numbers, tau_eff. If all clients take the same number of steps it is FedAvg. With Adam
as the local optimizer |a_c|_1 is the number of steps; the paper does not cover this case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedul.algorithms.base import Algorithm
from fedul.algorithms.mean import apply_update
from fedul.core import MeanUpdate, Update, Weights


@dataclass(frozen=True)
class FedNova(Algorithm):
    """The global model moves by the mean update per step, times the mean number of steps.

    If all clients take the same number of steps it is FedAvg.

    Parameters
    ----------
    weighting : {"uniform", "rows"}, default="uniform"
        Whether all clients count the same or by their rows.
    step : float, default=1.0
        Global step size.
    """

    def prepare(self, weights: Weights, update: Update) -> Update:
        return replace(update, delta={name: tensor * (1 / update.steps) for name, tensor in update.delta.items()})

    def advance(
        self, weights: Weights, server_state: Weights, mean: MeanUpdate, clients: int
    ) -> tuple[Weights, Weights]:
        return apply_update(weights, mean.delta, self.step * mean.steps, mean.buffers), server_state
