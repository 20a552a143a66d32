"""Weights of a module by name: parameters and buffers, each once, even if layers share one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module: the tensors themselves, not copies."""
    return {**{name: p.data for name, p in module.named_parameters()}, **dict(module.named_buffers())}


def precision_of(module: nn.Module) -> torch.dtype:
    """Return the floating dtype that a module computes in: that of its first parameter."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.get_default_dtype())


@torch.no_grad()
def load_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Overwrite the parameters and buffers of a module in place."""
    for name, tensor in weights_of(module).items():
        tensor.copy_(weights[name])
