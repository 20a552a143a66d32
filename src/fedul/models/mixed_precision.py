"""Mixed precision: a network whose convolutions and matrix products run in 16 bits.

Micikevicius et al., Mixed Precision Training, ICLR 2018. Weights, their gradients, batch-norm statistics and logits
stay in float32, so losses, optimizers and aggregation do not change. Each prediction casts the weights anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

HALF_PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class MixedPrecision(nn.Module):
    """A network in mixed precision: inputs and logits in the precision of the network, products in 16 bits.

    Parameters
    ----------
    network : nn.Module
        The network; its weights are used, not copied.
    dtype : torch.dtype
        Type of the products: bfloat16, or float16, whose small range needs scaled gradients.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.network, self.dtype = network, dtype
        self.enabled = True

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.enabled:
            logits: Tensor = self.network(inputs)
            return logits
        # Nothing is cached: a cast of this thread would be dropped whenever another thread finishes its prediction.
        with torch.autocast(inputs.device.type, self.dtype, cache_enabled=False):
            if self.dtype == torch.float16 and torch.is_grad_enabled():
                return self._with_scaled_gradients(inputs)
            logits = self.network(inputs)
        return logits.to(inputs.dtype)

    def _with_scaled_gradients(self, inputs: Tensor) -> Tensor:
        """Predict so that gradients inside the network are larger by the number of rows.

        A loss is a mean over rows, so the gradient of one row is of size 1 / n, which float16 may round to zero. Scaled
        by n it is of size 1; gradients of weights and inputs are divided by n again, in float32.
        """
        rows = len(inputs)
        weights = {name: _scale_gradient(p, 1 / rows) for name, p in self.network.named_parameters()}
        logits: Tensor = torch.func.functional_call(self.network, weights, (_scale_gradient(inputs, 1 / rows),))
        return _scale_gradient(logits.to(inputs.dtype), rows)


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a constant."""

    @staticmethod
    def forward(context: Any, values: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * context.factor, None


def _scale_gradient(values: Tensor, factor: float) -> Tensor:
    scaled: Tensor = _ScaleGradient.apply(values, factor)  # type: ignore[no-untyped-call]
    return scaled


def in_precision(network: nn.Module, precision: str) -> nn.Module:
    """Return the network in a precision by name; "float32" stands for the precision of its weights."""
    return MixedPrecision(network, HALF_PRECISIONS[precision]) if precision in HALF_PRECISIONS else network


@contextmanager
def full_precision(predict: Callable[[Tensor], Tensor]) -> Iterator[bool]:
    """Context in which a prediction function computes in the precision of its weights; True if it does not otherwise.

    Rounding to 16 bits would hide the effect of a very small change of the inputs.
    """
    inside = predict.modules() if isinstance(predict, nn.Module) else iter(())
    mixed = [part for part in inside if isinstance(part, MixedPrecision) and part.enabled]
    for part in mixed:
        part.enabled = False
    try:
        yield bool(mixed)
    finally:
        for part in mixed:
            part.enabled = True
