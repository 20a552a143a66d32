"""Gradients of the weights of one layer for each row: their norms, and their weighted sum.

A dense layer needs no gradient of a single row. With inputs a_t and gradients g_t of its outputs at the T places of a
row, its gradient is sum_t g_t a_t^T, whose squared norm is sum_tu (a_t . a_u)(g_t . g_u): for one place |a|^2 |g|^2
(Goodfellow, Efficient Per-Example Gradient Computations, 2015), for several those of "ghost clipping" (Li et al., ICLR
2022). A weighted sum over rows is one product of all a and g, without a second backward pass ("book-keeping", Bu et
al., ICML 2023). Where the products over places would be larger than the gradient itself, as in the first convolutions
of a network, the gradients of rows are computed (Bu et al., NeurIPS 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedul.privacy.dp_sgd.clipping import ROUNDING


class LayerRows(Protocol):
    """Gradients of the weights of a layer for each of n rows."""

    def squared_norms(self) -> Tensor:
        """Return the squared norm (n,) of the gradient of each row, over all weights of the layer."""

    def weighted_sums(self, factors: Tensor) -> list[Tensor]:
        """Return the sum over rows, with a factor (n,) each, of the gradient of each weight."""


@dataclass(frozen=True, eq=False)
class RowTensors:
    """Gradients that are there for each row.

    Parameters
    ----------
    gradients : sequence of Tensor
        (n, ...) for each weight.
    shapes : sequence of Size
        Shapes of the weights.
    """

    gradients: Sequence[Tensor]
    shapes: Sequence[torch.Size]

    def squared_norms(self) -> Tensor:
        parts = [gradient.flatten(1).square().sum(1) for gradient in self.gradients]
        return sum(parts[1:], parts[0])

    def weighted_sums(self, factors: Tensor) -> list[Tensor]:
        pairs = zip(self.gradients, self.shapes, strict=True)
        return [(factors @ gradient.flatten(1)).view(shape) for gradient, shape in pairs]


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Gradients of a dense layer, as its inputs and the gradients of its outputs.

    Parameters
    ----------
    inputs : Tensor
        (n, T, in)
    output_gradients : Tensor
        (n, T, out)
    weight, bias : bool
        Whether weight and bias are trained.
    """

    inputs: Tensor
    output_gradients: Tensor
    weight: bool
    bias: bool

    def squared_norms(self) -> Tensor:
        a, g = self.inputs, self.output_gradients
        if not self.weight:
            return g.sum(1).square().sum(1)
        if a.shape[1] == 1:
            squared = a.square().sum((1, 2)) + (1.0 if self.bias else 0.0)  # a bias is a weight of the input 1
            return squared * g.square().sum((1, 2))
        of_inputs, of_gradients = torch.bmm(a, a.mT), torch.bmm(g, g.mT)  # (n, T, T)
        if self.bias:
            of_inputs = of_inputs + 1
        # Terms may cancel, so the rounding error is relative to their size.
        lengths = of_inputs.diagonal(dim1=1, dim2=2).clamp_min(0) * of_gradients.diagonal(dim1=1, dim2=2).clamp_min(0)
        rounding = ROUNDING * torch.finfo(a.dtype).eps * lengths.sqrt().sum(1).square()
        return (of_inputs * of_gradients).sum((1, 2)).clamp_min(0) + rounding

    def weighted_sums(self, factors: Tensor) -> list[Tensor]:
        weighted = (self.output_gradients * factors[:, None, None]).flatten(0, 1)  # (n T, out)
        sums = [weighted.T @ self.inputs.flatten(0, 1)] if self.weight else []
        return [*sums, weighted.sum(0)] if self.bias else sums


def dense_rows(inputs: Tensor, output_gradients: Tensor, weight: bool, bias: bool) -> LayerRows:
    """Return the gradients of a dense layer in the form that is cheaper, from (n, T, in) and (n, T, out)."""
    places, wide, high = inputs.shape[1], inputs.shape[2], output_gradients.shape[2]
    if places == 1 or not weight or 2 * places * places <= wide * high:
        return DenseRows(inputs, output_gradients, weight, bias)
    gradient = torch.bmm(output_gradients.mT, inputs)  # (n, out, in)
    gradients = [gradient, output_gradients.sum(1)] if bias else [gradient]
    return RowTensors(gradients, [each.shape[1:] for each in gradients])
