"""SCAFFOLD: control variates remove the client-specific part of local gradients, so that clients do not drift.

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020. The control variate c_i
of a client is the mean of its uncorrected gradients over the local steps. With SGD this is the paper's option II; it is
also defined for other optimizers. Gradients are corrected by c - c_i before the local optimizer uses them. The server's
control variate c is the mean of all c_i: if S of N clients take part in a round, it changes by S/N times the mean
change of their c_i.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedul.algorithms.base import Algorithm, Correction, TrainedClient
from fedul.algorithms.mean import apply_update
from fedul.core import MeanUpdate, TensorSpec, Weights


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """FedAvg with control variates: ``c - c_i`` is added to the local gradients of client i.

    The control variate c_i of a client that has not taken part yet is 0. With one client it is FedAvg.

    Parameters
    ----------
    step : float, default=1.0
        Global step size.
    """

    needs_mean_gradient: ClassVar[bool] = True
    uniform_only: ClassVar[bool] = True  # c is a plain mean: weights would need the rows of clients that are absent

    def message_spec(self, parameters: Mapping[str, TensorSpec]) -> Mapping[str, TensorSpec]:
        return parameters

    def broadcast(self, server_state: Weights) -> Weights:
        return server_state

    def correction(self, received: Weights, client_state: Weights) -> Correction | None:
        return Correction(offset=_subtract(received, client_state))

    def finish(self, trained: TrainedClient, received: Weights, client_state: Weights) -> tuple[Weights, Weights]:
        control = {name: gradient.clone() for name, gradient in trained.mean_gradient.items()}
        return _subtract(control, client_state), control

    def advance(
        self, weights: Weights, server_state: Weights, mean: MeanUpdate, clients: int
    ) -> tuple[Weights, Weights]:
        share = mean.clients / clients
        control = {name: share * change + server_state.get(name, 0.0) for name, change in mean.message.items()}
        return apply_update(weights, mean.delta, self.step, mean.buffers), control


def _subtract(tensors: Weights, others: Weights) -> Weights:
    """Return `tensors` minus `others` by name; a tensor without a counterpart is unchanged."""
    return {name: tensor - others[name] if name in others else tensor for name, tensor in tensors.items()}
