"""How a network predicts with the weights of several clients at once: (C, n, ...) in, (C, n, K) out.

A chain of dense layers becomes a chain of batched products. Any other network that torch can vectorise over its weights
is vectorised; one that draws at random, keeps statistics or looks at values in Python cannot be.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""From weights by name, those that learn (C, ...), and inputs (C, n, ...) to logits (C, n, K)."""

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


def stacked_forward(module: nn.Module, shape: tuple[int, ...]) -> Forward | None:
    """The network for several clients at once; None if it cannot be had.

    It uses the module, which therefore must not train on another thread meanwhile.
    """
    layers, parameters = module.modules(), module.parameters()
    if any(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks for layer in layers):
        return None
    if any(parameter._backward_hooks for parameter in parameters):
        return None
    return _dense_chain(module) or _vectorised(module, shape)


def _dense_chain(module: nn.Module) -> Forward | None:
    """The network by batched products, if it is a chain of dense layers."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    chain = _chain(module, names)
    if chain is None:
        return None

    def forward(weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        for layer in chain:
            inputs = layer(weights, inputs)
        return inputs

    return forward


def _chain(module: nn.Module, names: Mapping[int, str]) -> list[Forward] | None:
    if type(module) is nn.Sequential:
        parts = [_chain(part, names) for part in module]
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
    if weight.dim() == 2:  # it does not learn, and so is one for all
        weight = weight.expand(clients, *weight.shape)
    if bias is None:
        bias = weight.new_zeros(()).expand(clients, weight.shape[1])
    elif bias.dim() == 1:
        bias = bias.expand(clients, *bias.shape)
    found = inputs.flatten(1, -2)  # rows of a table have one dimension; a layer may be given more
    logits: Tensor = _Dense.apply(found, weight, bias)  # type: ignore[no-untyped-call]
    return logits.view(*inputs.shape[:-1], weight.shape[1])


class _Dense(torch.autograd.Function):
    """x w^T + b for each client (C, n, out), with gradients laid out as the weights are."""

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


def _vectorised(module: nn.Module, shape: tuple[int, ...]) -> Forward | None:
    """The network by `torch.func.vmap`, if it has no state and torch can."""
    trial = on_trial(module)
    if trial is None or any(True for _ in module.buffers()):
        return None
    learning = {name for name, p in module.named_parameters() if p.requires_grad}

    def alone(weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        logits: Tensor = torch.func.functional_call(trial, dict(weights), (inputs,))
        return logits

    def forward(weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        axes = ({name: 0 if name in learning else None for name in weights}, 0)
        logits: Tensor = torch.func.vmap(alone, in_dims=axes)(dict(weights), inputs)
        return logits

    return forward if _rows_stand_alone(trial, forward, learning, shape) else None


@torch.no_grad()
def _rows_stand_alone(module: nn.Module, forward: Forward, learning: set[str], shape: tuple[int, ...]) -> bool:
    """Whether torch can, and a row's logits do not depend on the rows beside it, of which some only fill up."""
    first = next(module.parameters())
    rows = torch.rand(2, 3, *shape, generator=torch.Generator().manual_seed(0)).to(first.device, first.dtype)
    weights = {name: torch.stack([p, p]) if name in learning else p for name, p in module.named_parameters()}
    try:
        together = forward(weights, rows)
        alone = torch.stack([torch.cat([module(row[None]) for row in rows[c]]) for c in range(2)])
    except Exception:  # whatever a user's network raises: it then trains one client at a time
        return False
    return torch.allclose(together, alone, rtol=1e-3, atol=1e-5)


def on_trial(module: nn.Module) -> nn.Module | None:
    """A copy as it is when it trains, except for layers that a user has frozen in eval mode; None if it has no copy."""
    if any(parameter._backward_hooks for parameter in module.parameters()):
        return None  # torch does not copy them
    try:
        trial = copy.deepcopy(module)
    except Exception:  # it may hold anything: a lock, an open file
        return None
    return trial if trial.training else trial.train()
