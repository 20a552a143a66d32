"""Prediction with the weights of several clients: inputs (C, n, ...), logits (C, n, K).

A chain of dense layers becomes a chain of batched matrix products. Other networks are vectorized by `torch.func.vmap`.
A network that draws random numbers, has running statistics or branches on values in Python cannot be vectorized.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from fedul.engines.simulation.dense_chain import dense_chain

Forward = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""Function from weights by name (trainable ones (C, ...)) and inputs (C, n, ...) to logits (C, n, K)."""


def vectorized_forward(module: nn.Module, shape: tuple[int, ...]) -> Forward | None:
    """Return the network for several clients; None if it cannot be vectorized.

    Parameters
    ----------
    module : nn.Module
        The network. The result uses it, so it must not train on another thread at the same time.
    shape : tuple of int
        Shape of one row.
    """
    layers, parameters = module.modules(), module.parameters()
    if any(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks for layer in layers):
        return None
    if any(parameter._backward_hooks for parameter in parameters):
        return None
    return dense_chain(module) or _vmap_forward(module, shape)


def _vmap_forward(module: nn.Module, shape: tuple[int, ...]) -> Forward | None:
    """Return the network vectorized by `torch.func.vmap`, if it has no buffers and torch can."""
    trial = trial_copy(module)
    if trial is None or any(True for _ in module.buffers()):
        return None
    trainable = {name for name, p in module.named_parameters() if p.requires_grad}

    def single_client(weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        logits: Tensor = torch.func.functional_call(trial, dict(weights), (inputs,))
        return logits

    def forward(weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        axes = ({name: 0 if name in trainable else None for name in weights}, 0)
        logits: Tensor = torch.func.vmap(single_client, in_dims=axes)(dict(weights), inputs)
        return logits

    return forward if _rows_are_independent(trial, forward, trainable, shape) else None


@torch.no_grad()
def _rows_are_independent(module: nn.Module, forward: Forward, trainable: set[str], shape: tuple[int, ...]) -> bool:
    """Return whether the vectorized network works, and the logits of a row do not depend on other rows."""
    first = next(module.parameters())
    rows = torch.rand(2, 3, *shape, generator=torch.Generator().manual_seed(0)).to(first.device, first.dtype)
    weights = {name: torch.stack([p, p]) if name in trainable else p for name, p in module.named_parameters()}
    try:
        vectorized = forward(weights, rows)
        row_by_row = torch.stack([torch.cat([module(row[None]) for row in rows[c]]) for c in range(2)])
    except Exception:  # a user's network may raise anything; its clients then train in a loop
        return False
    return torch.allclose(vectorized, row_by_row, rtol=1e-3, atol=1e-5)


def trial_copy(module: nn.Module) -> nn.Module | None:
    """Return a copy of a network in training mode, as the user configured it; None if it cannot be copied."""
    if any(parameter._backward_hooks for parameter in module.parameters()):
        return None  # torch does not copy hooks
    try:
        trial = copy.deepcopy(module)
    except Exception:  # it may hold a lock or an open file
        return None
    return trial if trial.training else trial.train()
