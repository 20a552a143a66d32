"""Layers whose gradients for each row are known: dense ones, convolutions of images, normalisation within a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul.privacy.dp_sgd.layer_rows import LayerRows, RowTensors, dense_rows

Call = tuple[Tensor, Tensor]
"""Inputs (n, ...) of a layer in one prediction, and the gradient (n, ...) of its outputs."""


class RowLayer(ABC):
    """A layer with weights, as part of a chain.

    Parameters
    ----------
    layer : nn.Module
        The layer.
    names : mapping of int to str
        Names of the parameters by their identity.
    """

    def __init__(self, layer: nn.Module, names: Mapping[int, str]) -> None:
        self.layer, trained = layer, [p for p in layer.parameters(recurse=False) if p.requires_grad]
        self.names = [names[id(p)] for p in trained]
        """Names of the weights that are trained, in the order of `rows`."""
        self.trains = {own for own, p in layer.named_parameters(recurse=False) if p.requires_grad}

    @staticmethod
    def accepts(layer: nn.Module) -> bool:
        """Return whether a layer of this type has a form that is supported."""
        return True

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the outputs, without a graph of the weights."""
        outputs: Tensor = torch.func.functional_call(
            self.layer, {name: p.detach() for name, p in self.layer.named_parameters()}, (inputs,)
        )
        return outputs

    @abstractmethod
    def rows(self, calls: Sequence[Call]) -> LayerRows:
        """Return the gradients of the trained weights for each row, summed over the predictions of a step."""


class DenseLayer(RowLayer):
    """A dense layer, for rows of any number of dimensions."""

    def predict(self, inputs: Tensor) -> Tensor:
        assert isinstance(self.layer, nn.Linear)
        bias = self.layer.bias
        return functional.linear(inputs, self.layer.weight.detach(), None if bias is None else bias.detach())

    def rows(self, calls: Sequence[Call]) -> LayerRows:
        places = [(_places(a), _places(g)) for a, g in calls]
        inputs, gradients = (
            places[0] if len(places) == 1 else (torch.cat(each, 1) for each in zip(*places, strict=True))
        )
        return dense_rows(inputs, gradients, "weight" in self.trains, "bias" in self.trains)


class ConvolutionLayer(RowLayer):
    """A convolution of images (n, channels, height, width), as a dense layer on the patches of an image."""

    @staticmethod
    def accepts(layer: nn.Module) -> bool:
        assert isinstance(layer, nn.Conv2d)
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)

    def predict(self, inputs: Tensor) -> Tensor:
        layer = self.layer
        assert isinstance(layer, nn.Conv2d)
        bias = None if layer.bias is None else layer.bias.detach()
        return functional.conv2d(inputs, layer.weight.detach(), bias, layer.stride, layer.padding, layer.dilation)

    def rows(self, calls: Sequence[Call]) -> LayerRows:
        layer = self.layer
        assert isinstance(layer, nn.Conv2d)
        of_weight: Tensor | None = None
        of_bias: Tensor | None = None
        for inputs, gradient in calls:
            flat = gradient.flatten(2)  # (n, out, T)
            if "weight" in self.trains:
                padding = layer.padding if isinstance(layer.padding, tuple) else 0  # `accepts` refuses names
                patches = functional.unfold(inputs, layer.kernel_size, layer.dilation, padding, layer.stride)
                part = torch.bmm(flat, patches.mT)  # (n, out, in), from patches (n, in, T)
                of_weight = part if of_weight is None else of_weight + part
            if "bias" in self.trains:
                part = flat.sum(2)
                of_bias = part if of_bias is None else of_bias + part
        gradients = [each for each in (of_weight, of_bias) if each is not None]
        shapes = [p.shape for p in layer.parameters() if p.requires_grad]
        return RowTensors(gradients, shapes)


class NormalisationLayer(RowLayer):
    """Layer or group normalisation: the scale and the shift of values that are normalised within a row."""

    @staticmethod
    def accepts(layer: nn.Module) -> bool:
        return next(layer.parameters(recurse=False), None) is not None

    def rows(self, calls: Sequence[Call]) -> LayerRows:
        totals: list[Tensor] = []
        for inputs, gradient in calls:
            parts = []
            if "weight" in self.trains:
                parts.append(self._at_weights(gradient * self._normalised(inputs)))
            if "bias" in self.trains:
                parts.append(self._at_weights(gradient))
            totals = [a + b for a, b in zip(totals, parts, strict=True)] if totals else parts
        return RowTensors(totals, [p.shape for p in self.layer.parameters() if p.requires_grad])

    def _normalised(self, inputs: Tensor) -> Tensor:
        if isinstance(self.layer, nn.LayerNorm):
            return functional.layer_norm(inputs, list(self.layer.normalized_shape), eps=self.layer.eps)
        assert isinstance(self.layer, nn.GroupNorm)
        return functional.group_norm(inputs, self.layer.num_groups, eps=self.layer.eps)

    def _at_weights(self, values: Tensor) -> Tensor:
        """Return the sums (n, w) over all places of a row that share a weight."""
        if isinstance(self.layer, nn.LayerNorm):
            return values.reshape(len(values), -1, int(torch.Size(self.layer.normalized_shape).numel())).sum(1)
        return values.flatten(2).sum(2) if values.dim() > 2 else values


def _places(values: Tensor) -> Tensor:
    """Return the values (n, T, w) of a row at all its places."""
    return values.unsqueeze(1) if values.dim() == 2 else values.flatten(1, -2)


ROW_LAYERS: Mapping[type[nn.Module], type[RowLayer]] = {
    nn.Linear: DenseLayer,
    nn.Conv2d: ConvolutionLayer,
    nn.LayerNorm: NormalisationLayer,
    nn.GroupNorm: NormalisationLayer,
}
"""Layers with weights that a chain may have."""
