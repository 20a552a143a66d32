"""Sums of the clipped gradients of rows, for any network whose rows do not interact.

A chain of known layers (`chain`) costs little more than a plain step. Other networks are differentiated for each row by
`torch.func` (`functional`).
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from fedul.privacy.dp_sgd.chain import ChainGradients, row_chain
from fedul.privacy.dp_sgd.functional import FunctionalGradients


class RowGradients(Protocol):
    """A network that sums the clipped gradients of rows.

    Parameters
    ----------
    names : list of str
        Names of the parameters that are trained.
    parameters : list of Tensor
        The parameters.
    chunk : int
        Rows that are differentiated at a time.
    """

    names: list[str]
    parameters: list[Tensor]
    chunk: int

    def predict(self, inputs: Tensor) -> Tensor:
        """Return logits (n, K) of the rows of a step, always the same rows in the same order."""

    def clipped_sum(self, loss: Tensor, clip: float) -> list[Tensor]:
        """Return the sum over rows of the gradient of each row, at most `clip` long, for all parameters together.

        Parameters
        ----------
        loss : Tensor
            Sum over rows of their losses, from the predictions since the last call.
        clip : float
            Largest norm of the gradient of a row.
        """


def row_gradients(module: nn.Module) -> RowGradients:
    """Return the fastest implementation for a network that `check_network` accepts."""
    layers = row_chain(module)
    return FunctionalGradients(module) if layers is None else ChainGradients(module, layers)
