"""The layers of a `LayerChain`: their outputs, and the gradients of their weights and inputs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul._utils import torch_private
from fedul.engines.simulation.dense_chain import ELEMENTWISE
from fedul.engines.simulation.optimizers import Gradient, ProductGradient

Record = tuple[Tensor, ...]
"""What a layer keeps of a prediction for its gradients."""
Gradients = tuple[Tensor | None, Sequence[Gradient]]
"""Gradient of the inputs of a layer, if it is needed, and those of its weights."""

WITH_GRAPH = (
    *ELEMENTWISE,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.Dropout,
    nn.Dropout2d,
)
"""Layers that autograd differentiates, each with a graph of its own. None of them changes its inputs."""


MIN_PRODUCT = 2**17
"""Weights of a dense layer from which on its gradient stays a product of thin matrices."""
MAX_NARROW_ROWS = 32
"""Rows of a batch up to which that pays for products in 16 bits: with more, 32 bits take longer than memory."""


class ChainLayer(Protocol):
    """A layer of the chain. Its methods are called without a graph."""

    @property
    def weights(self) -> Sequence[Tensor]:
        """Its weights, trained or not."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Record]:
        """Return the outputs, and what the gradients need."""

    def backward(self, record: Record, gradient: Tensor, needs_input: bool) -> Gradients:
        """Return the gradients, given that of the outputs."""


class Convolution:
    """A convolution whose products have a given precision.

    The gradient of the bias is a sum of its own. The kernels compute it with that of the weights, which takes longer.
    """

    def __init__(self, layer: nn.Conv2d, padding: tuple[int, ...], dtype: torch.dtype) -> None:
        self._layer, self._padding, self._dtype = layer, padding, dtype
        self.weights = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]

    def forward(self, inputs: Tensor) -> tuple[Tensor, Record]:
        layer = self._layer
        weight = layer.weight.detach().to(self._dtype)
        bias = None if layer.bias is None else layer.bias.detach().to(self._dtype)
        if inputs.dtype != self._dtype:
            channels_last = not weight.is_contiguous()
            layout = torch.channels_last if channels_last else torch.preserve_format
            inputs = inputs.to(self._dtype, memory_format=layout)
        outputs = functional.conv2d(
            inputs, weight, bias, layer.stride, self._padding, layer.dilation, layer.groups
        )  # (n, channels, height, width)
        return outputs, (inputs, weight)

    def backward(self, record: Record, gradient: Tensor, needs_input: bool) -> Gradients:
        layer, (inputs, weight) = self._layer, record
        gradient = gradient.to(self._dtype)
        of_inputs, of_weight = torch_private.convolution_gradients(
            gradient,
            inputs,
            weight,
            stride=layer.stride,
            padding=self._padding,
            dilation=layer.dilation,
            groups=layer.groups,
            needed=(needs_input, layer.weight.requires_grad),
        )
        return of_inputs, [of_weight] if layer.bias is None else [of_weight, gradient.sum((0, 2, 3))]


class Linear:
    """A dense layer whose products have a given precision."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        self._layer, self._dtype = layer, dtype
        self.weights = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]

    def forward(self, inputs: Tensor) -> tuple[Tensor, Record]:
        layer = self._layer
        weight = layer.weight.detach().to(self._dtype)
        bias = None if layer.bias is None else layer.bias.detach().to(self._dtype)
        inputs = inputs.to(self._dtype)
        return functional.linear(inputs, weight, bias), (inputs, weight)  # (n, ..., outputs)

    def backward(self, record: Record, gradient: Tensor, needs_input: bool) -> Gradients:
        inputs, weight = record
        gradient = gradient.to(self._dtype)
        rows, row_gradients = inputs.flatten(0, -2), gradient.flatten(0, -2)
        of_weight: Gradient = None
        if self._layer.weight.requires_grad:
            product = ProductGradient(row_gradients.t(), rows)
            of_weight = product if self._stays_product(len(rows)) else product.to_tensor()
        of_inputs = gradient @ weight if needs_input else None
        return of_inputs, [of_weight] if self._layer.bias is None else [of_weight, row_gradients.sum(0)]

    def _stays_product(self, rows: int) -> bool:
        size, narrow = self._layer.weight.numel(), self._dtype.itemsize < self._layer.weight.dtype.itemsize
        return size >= MIN_PRODUCT and (rows <= MAX_NARROW_ROWS or not narrow)


class ReLU:
    """The positive part, in place where the outputs of the layer before it are not needed any more."""

    weights: Sequence[Tensor] = ()

    def __init__(self, in_place: bool) -> None:
        self._in_place = in_place

    def forward(self, inputs: Tensor) -> tuple[Tensor, Record]:
        outputs = torch.relu_(inputs) if self._in_place else torch.relu(inputs)
        return outputs, (outputs,)

    def backward(self, record: Record, gradient: Tensor, needs_input: bool) -> Gradients:
        return torch_private.relu_gradient(gradient.to(record[0].dtype), record[0]), ()


class Flatten:
    """All values of an image as one row; their gradient has the layout of the images (`models/channels_last.py`)."""

    weights: Sequence[Tensor] = ()

    def forward(self, inputs: Tensor) -> tuple[Tensor, Record]:
        return inputs.flatten(1), (inputs,)

    def backward(self, record: Record, gradient: Tensor, needs_input: bool) -> Gradients:
        (inputs,) = record
        of_inputs = gradient.reshape(inputs.shape)
        if inputs.dim() == 4 and not inputs.is_contiguous():
            of_inputs = of_inputs.contiguous(memory_format=torch.channels_last)
        return of_inputs, ()


class WithGraph:
    """A layer that autograd differentiates."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype) -> None:
        self._layer, self._dtype = layer, dtype
        self.weights = list(layer.parameters())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Record]:
        half = self._dtype == torch.bfloat16
        with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half, cache_enabled=False):
            leaf = inputs.detach().requires_grad_()
            outputs = self._layer(leaf)
        return outputs.detach(), (leaf, outputs)

    def backward(self, record: Record, gradient: Tensor, needs_input: bool) -> Gradients:
        leaf, outputs = record
        trained = [p for p in self.weights if p.requires_grad]
        found = torch.autograd.grad(outputs, [leaf, *trained], gradient.to(outputs.dtype), allow_unused=True)
        by_id = dict(zip(map(id, trained), found[1:], strict=True))
        return found[0], [by_id.get(id(p)) for p in self.weights]


def chain_layer(part: nn.Module, before: nn.Module | None, dtype: torch.dtype) -> ChainLayer | None:
    """Return a layer of the chain, given the one before it; None if there is none for this module."""
    if type(part) is nn.Conv2d:
        if part.padding_mode != "zeros" or isinstance(part.padding, str):
            return None
        return Convolution(part, part.padding, dtype)
    if type(part) is nn.Linear:
        return Linear(part, dtype)
    if type(part) is nn.ReLU:
        return ReLU(type(before) in (nn.Conv2d, nn.Linear, nn.MaxPool2d))
    if type(part) is nn.Flatten:
        return Flatten() if (part.start_dim, part.end_dim) == (1, -1) else None
    if type(part) not in WITH_GRAPH:
        return None
    if getattr(part, "inplace", False):  # what another layer has recorded must not change
        part = copy.copy(part)
        part.inplace = False  # type: ignore[assignment]
    return WithGraph(part, dtype)
