"""Prediction with the weights of several clients: inputs (C, n, ...), logits (C, n, K).

A chain of dense layers becomes a chain of batched matrix products. Other networks are vectorized by `torch.func.vmap`.
A network that draws random numbers, has running statistics or branches on values in Python cannot be vectorized.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""Function from weights by name (trainable ones (C, ...)) and inputs (C, n, ...) to logits (C, n, K)."""

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
    return _dense_forward(module) or _vmap_forward(module, shape)


def _dense_forward(module: nn.Module) -> Forward | None:
    """Return the network as batched matrix products, if it is a chain of dense layers."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    chain = _layer_chain(module, names)
    if chain is None:
        return None

    def forward(weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        for layer in chain:
            inputs = layer(weights, inputs)
        return inputs

    return forward


def _layer_chain(module: nn.Module, names: Mapping[int, str]) -> list[Forward] | None:
    if type(module) is nn.Sequential:
        parts = [_layer_chain(part, names) for part in module]
        return None if any(part is None for part in parts) else [layer for part in parts for layer in part or []]
    if type(module) is nn.Linear:
        bias = None if module.bias is None else names[id(module.bias)]
        return [partial(_dense, names[id(module.weight)], bias)]
    if type(module) is nn.Flatten and module.start_dim == 1 and module.end_dim == -1:
        return [lambda weights, inputs: inputs.flatten(2)]
    if type(module) in ELEMENTWISE:
        return [lambda weights, inputs: module(inputs)]
    return None


def _dense(weight_name: str, bias_name: str | None, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    weight, bias = weights[weight_name], None if bias_name is None else weights[bias_name]
    clients = len(inputs)
    if weight.dim() == 2:  # not trainable, so the same for all clients
        weight = weight.expand(clients, *weight.shape)
    if bias is None:
        bias = weight.new_zeros(()).expand(clients, weight.shape[1])
    elif bias.dim() == 1:
        bias = bias.expand(clients, *bias.shape)
    flat = inputs.flatten(1, -2)  # a row may have more than one dimension
    outputs: Tensor = _Dense.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
    return outputs.view(*inputs.shape[:-1], weight.shape[1])


class _Dense(torch.autograd.Function):
    """x w^T + b for each client (C, n, out), whose gradients have the strides of the weights."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        context.save_for_backward(inputs, weight)
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.mT)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, weight = context.saved_tensors
        needs_inputs, needs_weight, needs_bias = context.needs_input_grad
        return (
            torch.bmm(gradient, weight) if needs_inputs else None,
            torch.bmm(gradient.mT, inputs) if needs_weight else None,
            gradient.sum(1) if needs_bias else None,
        )


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
