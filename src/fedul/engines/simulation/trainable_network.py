"""What local steps need from a network: its trainable parameters, and the gradient of a loss for the rows of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fedul.engines.simulation.layer_chain import layer_chain
from fedul.engines.simulation.optimizers import Gradient
from fedul.methods.task import Predict, Step
from fedul.models.channels_last import keep_channels_last
from fedul.models.mixed_precision import in_precision

Loss = Callable[[Predict, Step], Tensor]
"""The loss of a method: `Method.loss`."""


class StepGradients(NamedTuple):
    """Gradients of one local step.

    Parameters
    ----------
    parameters : list of Tensor
        Parameters of the clients that take the step.
    gradients : sequence of (Tensor, ProductGradient or None)
        Their gradients; None for a parameter that the loss does not use.
    loss : Tensor or None
        The loss: a scalar, or (C,) for several clients; None where nobody may know it.
    """

    parameters: list[Tensor]
    gradients: Sequence[Gradient]
    loss: Tensor | None


class TrainableNetwork(Protocol):
    """The trainable parameters of one client or of several.

    Parameters
    ----------
    names : list of str
        Names of the trainable parameters.
    parameters : list of Tensor
        The parameters, each (...), or (C, ...) for several clients.
    """

    names: list[str]
    parameters: list[Tensor]
    leading: int
    """Dimensions of a parameter before those of one client."""

    def differentiate(self, loss_of: Loss, step: Step) -> StepGradients:
        """Return the gradients of a loss for the rows of a step."""


class SingleClient:
    """A module as the network of one client, in a precision of `fedul.models.mixed_precision`."""

    leading = 0

    def __init__(self, module: nn.Module, precision: str) -> None:
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names, self.parameters = list(trainable), list[Tensor](trainable.values())
        self.predict = in_precision(keep_channels_last(module), precision)
        self._chain = layer_chain(self.predict, module, self.parameters, precision)

    def differentiate(self, loss_of: Loss, step: Step) -> StepGradients:
        chain = self._chain
        if chain is not None:
            chain.reset()
        loss = loss_of(self.predict if chain is None else chain, step)
        total = loss.sum() if loss.dim() else loss
        if chain is not None:
            return StepGradients(self.parameters, chain.gradients(total), loss.detach())
        gradients = torch.autograd.grad(total, self.parameters, allow_unused=True)
        return StepGradients(self.parameters, gradients, loss.detach())
