"""Number of operations of one prediction, counted as in the paper's table of efficiency."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def operations(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the multiply-adds of dense and convolutional layers, 5 per batch-norm input and 1 per mean-pool input."""
    total = 0

    def count(part: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        if isinstance(part, nn.Conv2d):
            total += output.numel() * part.weight[0].numel()
        elif isinstance(part, nn.Linear):
            total += part.weight.numel()
        elif isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            total += 5 * inputs[0].numel()
        elif isinstance(part, nn.AdaptiveAvgPool2d):
            total += inputs[0].numel()

    hooks = [part.register_forward_hook(count) for part in module.modules()]
    try:
        with torch.no_grad():
            first = next(module.parameters())
            module.eval()(torch.zeros(1, *shape, dtype=first.dtype, device=first.device))
    finally:
        for hook in hooks:
            hook.remove()
    return total
