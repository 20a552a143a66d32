"""FedBN: batch-norm layers stay at the client, because they absorb how its inputs differ from those of other clients.

Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021. A client starts from
the global weights and its local batch-norm layers (scale, shift, statistics). As in the paper,
every client has its own model, which is delivered in process; at a site it stays in the site's state. The one
classifier for all, also for new sites, has the mean scale and shift and the *pooled* statistics, which are those of one
batch over the rows of all clients: the pooled variance includes the variance of the clients' means. Without batch norm
in the model it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from fedul.algorithms.base import Algorithm, TrainedClient
from fedul.algorithms.mean import apply_update
from fedul.core import MeanUpdate, Update, Weights

MEAN, VARIANCE = "running_mean", "running_var"


@dataclass(frozen=True)
class FedBN(Algorithm):
    """FedAvg with batch-norm layers that stay at the client; the global model has pooled statistics.

    Without batch norm in the model it is FedAvg.

    Parameters
    ----------
    weighting : {"uniform", "rows"}, default="uniform"
        Whether all clients count the same or by their rows.
    step : float, default=1.0
        Global step size.
    """

    personalizes: ClassVar[bool] = True

    def startup_warnings(self, weights: Weights, clients: int) -> list[str]:
        return (
            []
            if batch_norms(weights)
            else ["fedbn: the model has no batch norm, so this is fedavg; use another model."]
        )

    def start(self, weights: Weights, client_state: Weights) -> Weights:
        return {**weights, **client_state}

    def finish(self, trained: TrainedClient, received: Weights, client_state: Weights) -> tuple[Weights, Weights]:
        layers = batch_norms(trained.weights)
        return {}, {name: t.clone() for name, t in trained.weights.items() if name.rpartition(".")[0] in layers}

    def prepare(self, weights: Weights, update: Update) -> Update:
        """Replace the change of the variances by the change of E[x^2], which can be averaged."""
        buffers = {name: change.double() for name, change in update.buffers.items()}
        for layer in batch_norms(weights):
            before = _double(weights, layer, MEAN)
            after = before + buffers.get(_name(layer, MEAN), 0.0)
            change = after**2 - before**2 + buffers.get(_name(layer, VARIANCE), 0.0)
            buffers[_name(layer, VARIANCE)] = change
        return replace(update, buffers=buffers)

    def advance(
        self, weights: Weights, server_state: Weights, mean: MeanUpdate, clients: int
    ) -> tuple[Weights, Weights]:
        pooled = apply_update(weights, mean.delta, self.step, mean.buffers)
        for layer in batch_norms(weights):
            # Mean of E[x^2] over clients minus the square of the pooled mean.
            pooled_mean, before = _double(pooled, layer, MEAN), _double(weights, layer, MEAN)
            second = _double(weights, layer, VARIANCE) + before**2 + mean.buffers.get(_name(layer, VARIANCE), 0.0)
            variance = (second - pooled_mean**2).clamp_min(0)
            pooled[_name(layer, VARIANCE)] = variance.to(weights[_name(layer, VARIANCE)].dtype)
        return pooled, server_state


def batch_norms(weights: Weights) -> list[str]:
    """Return the names of the layers that have running statistics."""
    layers = [name.removesuffix(MEAN).rstrip(".") for name in weights if name.rpartition(".")[2] == MEAN]
    return [layer for layer in layers if _name(layer, VARIANCE) in weights]


def _name(layer: str, part: str) -> str:
    return f"{layer}.{part}" if layer else part


def _double(weights: Weights, layer: str, part: str) -> Tensor:
    return weights[_name(layer, part)].double()
