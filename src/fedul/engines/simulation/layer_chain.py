"""A sequence of layers, differentiated layer by layer without a graph of the whole network.

The numbers are those of the network itself, in its precision. What a graph costs is left out: weights are cast without
being recorded, their gradients stay in the precision of the products, a ReLU overwrites its input where nothing needs
it, and follows the max-pooling that it precedes, because maximum and ReLU commute, and so do their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedul.engines.simulation.chain_layers import ChainLayer, Record, chain_layer
from fedul.engines.simulation.optimizers import Gradient, ProductGradient
from fedul.models.mixed_precision import HALF_PRECISIONS, MixedPrecision
from fedul.models.weights import precision_of


class LayerChain(nn.Module):
    """Predictions of a step, and the gradients of a loss of them.

    A prediction that needs derivatives with respect to its inputs, or none at all, is made by the network itself.

    Parameters
    ----------
    network : nn.Module
        Predicts as the chain does.
    layers : sequence of ChainLayer
        The layers.
    parameters : sequence of Tensor
        The trainable parameters.
    """

    def __init__(self, network: nn.Module, layers: Sequence[ChainLayer], parameters: Sequence[Tensor]) -> None:
        super().__init__()
        self.network, self._layers, self._trainable = network, layers, parameters
        trained = {id(p) for p in parameters}
        needed = [i for i, layer in enumerate(layers) if any(id(p) in trained for p in layer.weights)]
        self._first = min(needed, default=len(layers))  # no layer before it is trained
        self._recorded: list[tuple[Tensor, list[Record]]] = []  # logits, and what each layer needs for its gradients
        self._has_graph = False

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (n, K)."""
        if not torch.is_grad_enabled():
            predicted: Tensor = self.network(inputs)
            return predicted
        if inputs.requires_grad or self._in_full_precision():
            self._has_graph = True
            predicted = self.network(inputs)
            return predicted
        records, values = [], inputs
        with torch.no_grad():
            for layer in self._layers:
                values, record = layer.forward(values)
                records.append(record)
        logits = values.detach().to(inputs.dtype).requires_grad_()
        self._recorded.append((logits, records))
        return logits

    def _in_full_precision(self) -> bool:
        """Return whether the network does not compute in the precision of the layers now (`full_precision`)."""
        return isinstance(self.network, MixedPrecision) and not self.network.enabled

    def reset(self) -> None:
        """Forget predictions that no loss was made of."""
        self._recorded, self._has_graph = [], False

    def gradients(self, loss: Tensor) -> list[Gradient]:
        """Return the gradients of a loss of all predictions since the reset; None for parameters that it ignores."""
        recorded, leaves = self._recorded, self._trainable if self._has_graph else ()
        self.reset()
        found = torch.autograd.grad(loss, [*(logits for logits, _ in recorded), *leaves], allow_unused=True)
        rest = found[len(recorded) :]
        totals: dict[int, Tensor | ProductGradient] = {
            id(p): g for p, g in zip(self._trainable, rest, strict=False) if g is not None
        }
        with torch.no_grad():
            for gradient, (_, records) in zip(found, recorded, strict=False):
                if gradient is not None:
                    self._backward(gradient, records, totals)
        return [totals.get(id(p)) for p in self._trainable]

    def _backward(
        self, gradient: Tensor | None, records: list[Record], totals: dict[int, Tensor | ProductGradient]
    ) -> None:
        """Add the gradients of the weights to the totals, given that of the logits."""
        for i in reversed(range(self._first, len(records))):
            if gradient is None:
                return
            layer = self._layers[i]
            # What a layer has recorded is freed with it.
            gradient, of_weights = layer.backward(records.pop(), gradient, i > self._first)
            for weight, part in zip(layer.weights, of_weights, strict=True):
                if part is not None:
                    key = id(weight)
                    totals[key] = _sum(totals[key], part, weight.dtype) if key in totals else part


def _sum(one: Tensor | ProductGradient, other: Tensor | ProductGradient, dtype: torch.dtype) -> Tensor:
    """Return the sum of two gradients of a weight that is used twice."""
    tensors = [part.to_tensor() if isinstance(part, ProductGradient) else part for part in (one, other)]
    return tensors[0].to(dtype) + tensors[1].to(dtype)


def layer_chain(
    network: nn.Module, module: nn.Module, parameters: Sequence[Tensor], precision: str
) -> LayerChain | None:
    """Return a sequential network with convolutions on a CPU as a chain; None if it is another one.

    Parameters
    ----------
    network : nn.Module
        What `in_precision` returned for the module.
    module : nn.Module
        The network.
    parameters : sequence of Tensor
        Its trainable parameters.
    precision : str
        Its precision.
    """
    parts = _parts(module)
    if parts is None or not any(type(part) is nn.Conv2d for part in parts) or precision == "float16":
        return None
    if any(p.device.type != "cpu" or p._backward_hooks for p in module.parameters()):
        return None
    parts = _pool_before_relu(parts)
    dtype = HALF_PRECISIONS.get(precision, precision_of(module))
    layers = [chain_layer(part, before, dtype) for part, before in zip(parts, [None, *parts], strict=False)]
    known = [layer for layer in layers if layer is not None]
    return LayerChain(network, known, parameters) if len(known) == len(layers) else None


def _parts(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers of nested sequences in their order; None if something is to be called with them."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    if any(hooks):
        return None
    if type(module) is not nn.Sequential:
        return [module]
    parts = [_parts(part) for part in module]
    return None if any(part is None for part in parts) else [layer for part in parts for layer in part or []]


def _pool_before_relu(parts: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the layers with every ReLU after the max-pooling that follows it, where there are fewer values."""
    result = list(parts)
    for i, (one, other) in enumerate(pairwise(parts)):
        if type(one) is nn.ReLU and type(other) is nn.MaxPool2d and not other.return_indices:
            result[i], result[i + 1] = other, one
    return result
