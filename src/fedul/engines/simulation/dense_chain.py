"""A chain of dense layers with the weights of several clients, as batched matrix products.

Small layers take so little time that a graph of them costs as much as the products. So a step is predicted without a
graph of the layers: the logits are the leaves of the loss, and the chain turns their gradients into those of the
weights (`DensePass`). Predictions whose derivatives with respect to the inputs are needed, as in virtual adversarial
training, use a graph.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fedul._utils import torch_private

ELEMENTWISE = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.Identity,
)
NARROW = 16
"""Outputs below which a product is computed transposed, (C, out, n): rows then fill the registers of the processor. The
losses that follow are several times faster as well, because sums over classes add vectors of rows."""


class DenseChain:
    """Prediction with the weights of several clients, by name and (C, ...) if trainable: logits (C, n, K).

    Parameters
    ----------
    layers : sequence of Layer
        The layers.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers

    def __call__(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = layer.differentiable(weights, inputs)
        return inputs


class DensePass:
    """Predictions of a step by a chain, and the gradients of a loss of them.

    Parameters
    ----------
    chain : DenseChain
        The chain.
    weights : mapping of str to Tensor
        Weights of all layers; those that are trained are leaves (C, ...).
    trainable : sequence of str
        Names of the weights that are trained.
    """

    def __init__(self, chain: DenseChain, weights: Mapping[str, Tensor], trainable: Sequence[str]) -> None:
        self._chain, self._weights, self._trainable = chain, weights, trainable
        self._recorded: list[tuple[Tensor, list[Tensor]]] = []  # logits, and the inputs of each layer
        self._has_graph = False
        needed = [i for i, layer in enumerate(chain.layers) if any(name in trainable for name in layer.names)]
        self._first = min(needed, default=len(chain.layers))  # no layer before it is trained

    def predict(self, inputs: Tensor) -> Tensor:
        """Return logits (C, n, K)."""
        if inputs.requires_grad:
            self._has_graph = True
            return self._chain(self._weights, inputs)
        record, layer_inputs = torch.is_grad_enabled(), []
        with torch.no_grad():
            for layer in self._chain.layers:
                layer_inputs.append(inputs)
                inputs = layer.forward(self._weights, inputs)
            logits = inputs.detach()
        if record:
            self._recorded.append((logits.requires_grad_(), layer_inputs))
        return logits

    def gradients(self, loss: Tensor) -> list[Tensor | None]:
        """Return the gradients of a loss of all predictions since the last call; None for weights that it ignores."""
        recorded, self._recorded = self._recorded, []
        leaves = [self._weights[name] for name in self._trainable] if self._has_graph else []
        self._has_graph = False
        found = torch.autograd.grad(loss, [*(logits for logits, _ in recorded), *leaves], allow_unused=True)
        rest = found[len(recorded) :]
        totals = {name: g for name, g in zip(self._trainable, rest, strict=False) if g is not None}
        with torch.no_grad():
            for gradient, (_, layer_inputs) in zip(found, recorded, strict=False):
                if gradient is not None:
                    self._backward(gradient, layer_inputs, totals)
        return [totals.get(name) for name in self._trainable]

    def _backward(self, gradient: Tensor, layer_inputs: Sequence[Tensor], totals: dict[str, Tensor]) -> None:
        """Add the gradients of the weights to the totals, given that of the logits."""
        for i in reversed(range(self._first, len(layer_inputs))):
            layer = self._chain.layers[i]
            for name, part in layer.weight_gradients(layer_inputs[i], gradient):
                if name in self._trainable:
                    totals[name] = totals[name] + part if name in totals else part
            if i > self._first:
                gradient = layer.input_gradient(self._weights, layer_inputs[i], gradient)


class Layer(Protocol):
    """A layer of the chain; `forward`, `weight_gradients` and `input_gradient` build no graph."""

    @property
    def names(self) -> Sequence[str]:
        """Names of its weights."""

    def differentiable(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Return the outputs with a graph, which allows second derivatives."""

    def forward(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Return the outputs."""

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> Sequence[tuple[str, Tensor]]:
        """Return the gradients of its weights, by name, from that of its outputs."""

    def input_gradient(self, weights: Mapping[str, Tensor], inputs: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of its inputs from that of its outputs."""


class Linear(NamedTuple):
    """x w^T + b for each client. A row may have more than one dimension, and a frozen weight has none of clients."""

    weight: str
    bias: str | None

    @property
    def names(self) -> Sequence[str]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def _tensors(self, weights: Mapping[str, Tensor], clients: int) -> tuple[Tensor, Tensor | None]:
        weight, bias = weights[self.weight], None if self.bias is None else weights[self.bias]
        weight = weight.expand(clients, *weight.shape) if weight.dim() == 2 else weight
        return weight, bias.expand(clients, *bias.shape) if bias is not None and bias.dim() == 1 else bias

    def differentiable(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        outputs: Tensor = Product.apply(  # type: ignore[no-untyped-call]
            inputs.flatten(1, -2), *self._tensors(weights, len(inputs))
        )
        return outputs.view(*inputs.shape[:-1], -1) if inputs.dim() > 3 else outputs

    def forward(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        outputs = _product(inputs.flatten(1, -2), *self._tensors(weights, len(inputs)))
        return outputs.view(*inputs.shape[:-1], -1) if inputs.dim() > 3 else outputs

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> Sequence[tuple[str, Tensor]]:
        flat = gradient.flatten(1, -2)
        of_weight = (self.weight, torch.bmm(flat.mT, inputs.flatten(1, -2)))
        return [of_weight] if self.bias is None else [of_weight, (self.bias, flat.sum(1))]

    def input_gradient(self, weights: Mapping[str, Tensor], inputs: Tensor, gradient: Tensor) -> Tensor:
        return torch.bmm(gradient.flatten(1, -2), self._tensors(weights, len(inputs))[0]).view(inputs.shape)


class Product(torch.autograd.Function):
    """x w^T + b for each client (C, n, out), whose gradients have the strides of the weights."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the outputs (C, n, out)."""
        context.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of inputs, weight and bias."""
        inputs, weight = context.saved_tensors
        needs_inputs, needs_weight, needs_bias = context.needs_input_grad
        return (
            torch.bmm(gradient, weight) if needs_inputs else None,
            torch.bmm(gradient.mT, inputs) if needs_weight else None,
            gradient.sum(1) if needs_bias else None,
        )


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if weight.shape[1] < NARROW:
        if bias is None:
            return torch.bmm(weight, inputs.mT).mT
        return torch.baddbmm(bias.unsqueeze(-1), weight, inputs.mT).mT
    return torch.bmm(inputs, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), inputs, weight.mT)


class Elementwise(NamedTuple):
    """A function of each element, such as an activation."""

    module: nn.Module
    names: Sequence[str] = ()

    def differentiable(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        outputs: Tensor = self.module(inputs)
        return outputs

    def forward(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return self.differentiable(weights, inputs)

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> Sequence[tuple[str, Tensor]]:
        return ()

    def input_gradient(self, weights: Mapping[str, Tensor], inputs: Tensor, gradient: Tensor) -> Tensor:
        if type(self.module) is nn.ReLU:
            return torch_private.relu_gradient(gradient, inputs)
        with torch.enable_grad():
            leaf = inputs.detach().requires_grad_()
            return torch.autograd.grad(self.module(leaf), leaf, gradient)[0]


class Flatten(NamedTuple):
    """All dimensions of a row as one."""

    names: Sequence[str] = ()

    def differentiable(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return inputs.flatten(2)

    def forward(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return inputs.flatten(2)

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> Sequence[tuple[str, Tensor]]:
        return ()

    def input_gradient(self, weights: Mapping[str, Tensor], inputs: Tensor, gradient: Tensor) -> Tensor:
        return gradient.reshape(inputs.shape)


def dense_chain(module: nn.Module) -> DenseChain | None:
    """Return a network as a chain of dense layers; None if it is none."""
    layers = _layers(module, {id(parameter): name for name, parameter in module.named_parameters()})
    return None if layers is None else DenseChain(layers)


def _layers(module: nn.Module, names: Mapping[int, str]) -> list[Layer] | None:
    if type(module) is nn.Sequential:
        parts = [_layers(part, names) for part in module]
        return None if any(part is None for part in parts) else [layer for part in parts for layer in part or []]
    if type(module) is nn.Linear:
        return [Linear(names[id(module.weight)], None if module.bias is None else names[id(module.bias)])]
    if type(module) is nn.Flatten and module.start_dim == 1 and module.end_dim == -1:
        return [Flatten()]
    if type(module) not in ELEMENTWISE:
        return None
    if getattr(module, "inplace", False):  # the inputs of a layer are needed for its gradient
        module = copy.copy(module)
        module.inplace = False  # type: ignore[assignment]
    return [Elementwise(module)]
