"""A chain of dense layers with the weights of several clients, as batched matrix products.

Small layers take so little time that a graph of them costs as much as the products. So a step is predicted without a
graph of the layers: the logits are the leaves of the loss, and the chain turns their gradients into those of the
weights (`DensePass`). Predictions whose derivatives with respect to the inputs are needed, as in virtual adversarial
training, use a graph of torch's own operations, which leave out the gradients of weights that nobody asks for.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

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
        for layer in self.bind(weights, len(inputs)):
            inputs = layer.forward(inputs)
        return inputs

    def bind(self, weights: Mapping[str, Tensor], clients: int) -> list[BoundLayer]:
        """Return the layers with the weights of this number of clients."""
        return [layer.bind(weights, clients) for layer in self.layers]


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
    clients : int
        Number of clients C.
    """

    def __init__(
        self, chain: DenseChain, weights: Mapping[str, Tensor], trainable: Sequence[str], clients: int
    ) -> None:
        self._chain, self._weights, self._trainable = chain, weights, trainable
        # Bound once for all steps: the views of detached weights change with them, and each view takes a microsecond.
        self._layers = chain.bind({name: tensor.detach() for name, tensor in weights.items()}, clients)
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
            for layer in self._layers:
                layer_inputs.append(inputs)
                inputs = layer.forward(inputs)
        logits = inputs.detach()
        if record:
            self._recorded.append((logits.requires_grad_(), layer_inputs))
        return logits

    def gradients(self, loss: Tensor) -> list[Tensor | None]:
        """Return the gradients of a loss of all predictions since the last call; None for weights that it ignores."""
        recorded, self._recorded = self._recorded, []
        leaves = [self._weights[name] for name in self._trainable] if self._has_graph else []
        self._has_graph = False
        inputs = [*(logits for logits, _ in recorded), *leaves]
        found = torch.autograd.grad(loss, inputs, allow_unused=True)
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
            layer = self._layers[i]
            layer.add_weight_gradients(layer_inputs[i], gradient, totals, self._trainable)
            if i > self._first:
                gradient = layer.input_gradient(layer_inputs[i], gradient)


class Layer(Protocol):
    """A layer of the chain."""

    @property
    def names(self) -> Sequence[str]:
        """Names of its weights."""

    def bind(self, weights: Mapping[str, Tensor], clients: int) -> BoundLayer:
        """Return the layer with the weights of this number of clients."""


class BoundLayer(Protocol):
    """A layer with its weights."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs, with a graph if gradients are enabled."""

    def add_weight_gradients(
        self, inputs: Tensor, gradient: Tensor, totals: dict[str, Tensor], wanted: Collection[str]
    ) -> None:
        """Add the gradients of its weights, if they are wanted, to the totals, from that of its outputs."""

    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of its inputs from that of its outputs."""


class Linear(NamedTuple):
    """x w^T + b for each client. A row may have more than one dimension, and a frozen weight has none of clients."""

    weight: str
    bias: str | None

    @property
    def names(self) -> Sequence[str]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def bind(self, weights: Mapping[str, Tensor], clients: int) -> BoundLayer:
        weight, bias = weights[self.weight], None if self.bias is None else weights[self.bias]
        weight = weight.expand(clients, *weight.shape) if weight.dim() == 2 else weight
        bias = bias.expand(clients, *bias.shape) if bias is not None and bias.dim() == 1 else bias
        return BoundLinear(self, weight, bias)


class BoundLinear:
    """A linear layer with weights (C, out, in) and biases (C, out)."""

    def __init__(self, layer: Linear, weight: Tensor, bias: Tensor | None) -> None:
        self._names, self._weight, self._narrow = layer, weight, weight.shape[1] < NARROW
        self._transposed = weight.mT
        self._bias = None if bias is None else bias.unsqueeze(-1 if self._narrow else 1)

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dim() > 3:
            return self.forward(inputs.flatten(1, -2)).view(*inputs.shape[:-1], -1)
        if self._narrow:
            if self._bias is None:
                return torch.bmm(self._weight, inputs.mT).mT
            return torch.baddbmm(self._bias, self._weight, inputs.mT).mT
        if self._bias is None:
            return torch.bmm(inputs, self._transposed)
        return torch.baddbmm(self._bias, inputs, self._transposed)

    def add_weight_gradients(
        self, inputs: Tensor, gradient: Tensor, totals: dict[str, Tensor], wanted: Collection[str]
    ) -> None:
        if inputs.dim() > 3:
            inputs, gradient = inputs.flatten(1, -2), gradient.flatten(1, -2)
        weight, bias = self._names
        if weight in wanted:
            total = totals.get(weight)
            # Added by the product itself: weights of many clients do not fit into the cache of a core.
            totals[weight] = (
                torch.bmm(gradient.mT, inputs) if total is None else torch.baddbmm(total, gradient.mT, inputs)
            )
        if bias is not None and bias in wanted:
            part = gradient.sum(1)
            totals[bias] = totals[bias] + part if bias in totals else part

    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        if gradient.dim() > 3:
            return torch.bmm(gradient.flatten(1, -2), self._weight).view(inputs.shape)
        return torch.bmm(gradient, self._weight)


class Elementwise(NamedTuple):
    """A function of each element, such as an activation; in place, if only this layer needs its inputs."""

    module: nn.Module
    names: Sequence[str] = ()
    in_place: bool = False

    def bind(self, weights: Mapping[str, Tensor], clients: int) -> BoundLayer:
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        if type(self.module) is nn.ReLU:
            return torch.relu_(inputs) if self.in_place else torch.relu(inputs)
        outputs: Tensor = self.module(inputs)
        return outputs

    def add_weight_gradients(
        self, inputs: Tensor, gradient: Tensor, totals: dict[str, Tensor], wanted: Collection[str]
    ) -> None:
        pass

    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        if type(self.module) is nn.ReLU:
            return torch_private.relu_gradient(gradient, inputs)  # outputs are positive where inputs are
        with torch.enable_grad():
            leaf = inputs.detach().requires_grad_()
            return torch.autograd.grad(self.module(leaf), leaf, gradient)[0]


class Flatten(NamedTuple):
    """All dimensions of a row as one."""

    names: Sequence[str] = ()

    def bind(self, weights: Mapping[str, Tensor], clients: int) -> BoundLayer:
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(2)

    def add_weight_gradients(
        self, inputs: Tensor, gradient: Tensor, totals: dict[str, Tensor], wanted: Collection[str]
    ) -> None:
        pass

    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        return gradient.reshape(inputs.shape)


def dense_chain(module: nn.Module) -> DenseChain | None:
    """Return a network as a chain of dense layers; None if it is none."""
    layers = _layers(module, {id(parameter): name for name, parameter in module.named_parameters()})
    if layers is None:
        return None
    # The products of a linear layer are made for the next one. Blocks in the cache are used again then.
    pairs = zip(layers, [None, *layers], strict=False)
    return DenseChain([_in_place(layer) if isinstance(before, Linear) else layer for layer, before in pairs])


def _in_place(layer: Layer) -> Layer:
    """Return a ReLU that overwrites its inputs; another layer as it is."""
    if isinstance(layer, Elementwise) and type(layer.module) is nn.ReLU:
        return layer._replace(in_place=True)
    return layer


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
