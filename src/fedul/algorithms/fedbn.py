"""FedBN: every client keeps batch norm to itself, since it soaks up how the client's inputs differ.

Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021. A client starts from
the global weights with its own batch-norm layers (scale, shift, statistics) in place. The paper gives every client its
own model; the one classifier that fedul delivers gets the mean scale and shift and the *pooled* statistics, those of
one batch over all clients' rows: the pooled variance includes the spread of the clients' means. Without batch norm in
the model it is FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from fedul.algorithms.base import Algorithm, Trained, Update, Weights, mean_of, moved

MEAN, VARIANCE = "running_mean", "running_var"


@dataclass(frozen=True)
class FedBN(Algorithm):
    """FedAvg of all but batch norm, which stays at the client; the global model has it pooled."""

    def remarks(self, weights: Weights, clients: int) -> list[str]:
        return [] if batch_norms(weights) else ["fedbn: the model has no batch norm, so that this is fedavg."]

    def start(self, weights: Weights, kept: Weights) -> Weights:
        return {**weights, **kept}

    def finish(self, trained: Trained, sent: Weights, kept: Weights) -> tuple[Weights, Weights]:
        layers = batch_norms(trained.weights)
        own = {name: t.clone() for name, t in trained.weights.items() if name.rpartition(".")[0] in layers}
        return {}, own

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        layers = batch_norms(weights)
        mean = mean_of(_with_second_moments(weights, layers, updates), self.weighting)
        pooled = moved(weights, mean.delta, self.step, mean.buffers)
        for layer in layers:
            # The mean of E[x^2] over clients, less the square of the pooled mean.
            centre, before = _double(pooled, layer, MEAN), _double(weights, layer, MEAN)
            second = _double(weights, layer, VARIANCE) + before**2 + mean.buffers.get(_name(layer, VARIANCE), 0.0)
            variance = (second - centre**2).clamp_min(0)
            pooled[_name(layer, VARIANCE)] = variance.to(weights[_name(layer, VARIANCE)].dtype)
        return pooled, state


def batch_norms(weights: Weights) -> list[str]:
    """Names of the layers that keep running statistics."""
    layers = [name.removesuffix(MEAN).rstrip(".") for name in weights if name.rpartition(".")[2] == MEAN]
    return [layer for layer in layers if _name(layer, VARIANCE) in weights]


def _with_second_moments(weights: Weights, layers: list[str], updates: Iterable[Update]) -> Iterator[Update]:
    """Updates whose change of the variance is replaced by the change of E[x^2], which may be averaged."""
    for update in updates:
        buffers = {name: change.double() for name, change in update.buffers.items()}
        for layer in layers:
            before = _double(weights, layer, MEAN)
            after = before + buffers.get(_name(layer, MEAN), 0.0)
            change = after**2 - before**2 + buffers.get(_name(layer, VARIANCE), 0.0)
            buffers[_name(layer, VARIANCE)] = change
        yield replace(update, buffers=buffers)


def _name(layer: str, part: str) -> str:
    return f"{layer}.{part}" if layer else part


def _double(weights: Weights, layer: str, part: str) -> Tensor:
    return weights[_name(layer, part)].double()
