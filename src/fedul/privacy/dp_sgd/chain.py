"""Clipped gradients of rows of a chain of known layers, at the cost of one backward pass.

The chain is predicted with weights that are constants to autograd. One backward pass gives the gradients of the outputs
of all layers with weights. With the inputs of these layers they give the norm of the gradient of each row, and then the
sum of the clipped gradients (`layer_rows`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fedul.errors import FedulError
from fedul.privacy.dp_sgd.clipping import clip_factors
from fedul.privacy.dp_sgd.layers import ROW_LAYERS, Call, ConvolutionLayer, RowLayer

WITHOUT_WEIGHTS = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.Identity,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
)
"""Layers without weights that treat every row by itself."""
DENSE_CHUNK = 4096
CONVOLUTION_CHUNK = 64
"""Rows of images that are differentiated at a time: the patches of more do not fit into the cache."""

Chain = list[RowLayer | nn.Module]


class ChainGradients:
    """See `fedul.privacy.dp_sgd.row_gradients.RowGradients`.

    Parameters
    ----------
    module : nn.Module
        The network.
    chain : list of RowLayer or nn.Module
        Its layers in order; those with weights that are trained are a `RowLayer`.
    """

    def __init__(self, module: nn.Module, chain: Chain) -> None:
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names, self.parameters = list(trained), list[Tensor](trained.values())
        self._chain, self._layers = chain, [layer for layer in chain if isinstance(layer, RowLayer)]
        has_convolutions = any(isinstance(layer, ConvolutionLayer) for layer in self._layers)
        self.chunk = CONVOLUTION_CHUNK if has_convolutions else DENSE_CHUNK
        self._recorded: list[tuple[int, Tensor, Tensor]] = []  # layer, its inputs, its outputs

    def predict(self, inputs: Tensor) -> Tensor:
        record, number = torch.is_grad_enabled(), 0
        values = inputs
        for layer in self._chain:
            if not isinstance(layer, RowLayer):
                values = layer(values)
                continue
            outputs = layer.predict(values)
            if record:
                if not outputs.requires_grad:
                    outputs.requires_grad_()
                self._recorded.append((number, values.detach(), outputs))
            values, number = outputs, number + 1
        return values

    def clipped_sum(self, loss: Tensor, clip: float) -> list[Tensor]:
        recorded, self._recorded = self._recorded, []
        found = torch.autograd.grad(loss, [outputs for _, _, outputs in recorded], allow_unused=True)
        calls: list[list[Call]] = [[] for _ in self._layers]
        with torch.no_grad():
            for (number, inputs, _), gradient in zip(recorded, found, strict=True):
                if gradient is not None:
                    calls[number].append((inputs, gradient))
            if len({len(inputs) for of_layer in calls for inputs, _ in of_layer}) > 1:
                raise FedulError("a method with private rows must predict all rows of a step, in their order.")
            return self._clipped_sum(calls, clip)

    def _clipped_sum(self, calls: Sequence[Sequence[Call]], clip: float) -> list[Tensor]:
        rows = {layer: layer.rows(each) for layer, each in zip(self._layers, calls, strict=True) if each}
        totals = {name: torch.zeros_like(p) for name, p in zip(self.names, self.parameters, strict=True)}
        if rows:
            squared_norms = torch.stack([each.squared_norms() for each in rows.values()]).sum(0)
            finite = squared_norms.isfinite()
            if not finite.all():  # such rows contribute nothing, but 0 times infinity is no number
                return self._clipped_sum([[(a[finite], g[finite]) for a, g in each] for each in calls], clip)
            factors = clip_factors(squared_norms, clip)
            for layer, each in rows.items():
                totals |= dict(zip(layer.names, each.weighted_sums(factors), strict=True))
        return [totals[name] for name in self.names]


def row_chain(module: nn.Module) -> Chain | None:
    """Return a network as a chain of known layers; None if it is none, or layers share a weight."""
    names = {id(p): name for name, p in module.named_parameters()}
    chain = _layers(module, names)
    if chain is None:
        return None
    used = [id(p) for layer in chain for p in _module(layer).parameters()]
    return chain if len(set(used)) == len(used) else None


def _module(layer: RowLayer | nn.Module) -> nn.Module:
    return layer.layer if isinstance(layer, RowLayer) else layer


def _layers(module: nn.Module, names: Mapping[int, str]) -> Chain | None:
    kind = type(module)
    if any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)):
        return None
    if isinstance(module, nn.Sequential) and kind is nn.Sequential:
        parts = [_layers(part, names) for part in module]
        return None if any(part is None for part in parts) else [layer for part in parts for layer in part or []]
    if kind is nn.Flatten:
        return [module] if module.start_dim == 1 and module.end_dim == -1 else None
    if getattr(module, "inplace", False):  # the outputs of a layer with weights are needed for its gradient
        module = copy.copy(module)
        module.inplace = False  # type: ignore[assignment]
    if kind in WITHOUT_WEIGHTS or (kind in ROW_LAYERS and not any(p.requires_grad for p in module.parameters())):
        return [module]
    known = ROW_LAYERS.get(kind)
    return None if known is None or not known.accepts(module) else [known(module, names)]
