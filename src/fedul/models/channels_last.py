"""Training with channels last in memory: gradients that come back through a flattening get the same layout.

Where images become rows of numbers, the gradient comes back with channels first. Pooling, batch norm and convolutions
then convert it, or their own results, at every layer. One conversion is enough. The numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class ChannelsLast(nn.Module):
    """A network whose gradients stay in the layout of its weights.

    Parameters
    ----------
    network : nn.Module
        The network; its weights are used, not copied.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            logits: Tensor = self.network(inputs)
            return logits
        with _KeepLayout():
            logits = self.network(inputs)
        return logits


def keep_channels_last(network: nn.Module) -> nn.Module:
    """Return a network whose gradients stay channels last, if convolutions have their weights so; else the network."""
    convolutions = (layer for layer in network.modules() if isinstance(layer, nn.Conv2d))
    return ChannelsLast(network) if any(_is_channels_last(layer.weight) for layer in convolutions) else network


class _KeepLayout(TorchFunctionMode):
    """Replaces the flattening of images with channels last by one whose gradient has that layout."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in (torch.Tensor.flatten, torch.flatten) and not kwargs and len(args) <= 3:
            values, dimensions = args[0], args[1:]
            if dimensions in ((1,), (1, -1), (1, 3)) and _is_channels_last(values):
                return _Flatten.apply(values)  # type: ignore[no-untyped-call]
        return function(*args, **(kwargs or {}))


class _Flatten(torch.autograd.Function):
    """All values of an image as one row."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        """Return rows (n, C * H * W) of images (n, C, H, W)."""
        context.shape = values.shape
        return values.flatten(1)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        """Return the gradient of the images, with channels last."""
        return gradient.reshape(context.shape).contiguous(memory_format=torch.channels_last)


def _is_channels_last(values: Tensor) -> bool:
    """Return whether images or kernels are stored with channels last, and not also with channels first."""
    return values.dim() == 4 and not values.is_contiguous() and values.is_contiguous(memory_format=torch.channels_last)
