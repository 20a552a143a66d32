"""Local optimizers, created for every client and round, with the arithmetic of `torch.optim`.

For a small network, `torch.optim` takes as long as the gradients, and it imports a compiler. Parameters may have a
leading dimension of clients. Clients that have finished their steps are the last ones; the others are the active part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedul._utils import torch_private
from fedul._utils.torch_private import Tensors
from fedul.config import TrainConfig

BETA, EPSILON = (0.9, 0.999), 1e-8  # defaults of torch


@dataclass(frozen=True, eq=False)
class ProductGradient:
    """The gradient of a large dense layer, ``left @ right``, as two thin matrices.

    Writing the product to memory and reading it again takes longer than computing it, if the batch is small.
    """

    left: Tensor  # (outputs, n)
    right: Tensor  # (n, inputs)

    def to_tensor(self) -> Tensor:
        """Return the gradient (outputs, inputs), in the precision of its factors."""
        return self.left @ self.right

    def add_to(self, parameter: Tensor, factor: float) -> None:
        """Add ``factor`` times the gradient to the parameter, in the precision of the parameter."""
        parameter.addmm_(self.left.to(parameter.dtype), self.right.to(parameter.dtype), alpha=factor)


Gradient = Tensor | ProductGradient | None
"""Gradient of a parameter; None if the loss does not use it."""


class SGD:
    """Stochastic gradient descent: ``w - rate * b`` with ``b = momentum * b + gradient``.

    With Nesterov momentum the step is along ``gradient + momentum * b``.
    """

    def __init__(self, parameters: Sequence[Tensor], rate: float, momentum: float, nesterov: bool = False) -> None:
        largest = torch.finfo(parameters[0].dtype).max
        self._rate, self._momentum = rate if rate <= largest else math.inf, momentum  # torch refuses values between
        self._nesterov = nesterov
        self._momentum_buffers = [torch.zeros_like(p) for p in parameters] if momentum else []

    def step(self, parameters: Tensors, gradients: Tensors) -> None:
        """Update the parameters in place; gradients must have the same strides."""
        directions = gradients
        if self._momentum:
            directions = active_part(self._momentum_buffers, parameters)
            torch_private.multiply_(directions, self._momentum)
            torch_private.add_(directions, gradients)
            if self._nesterov:
                directions = torch_private.add(gradients, directions, alpha=self._momentum)
        torch_private.add_(parameters, directions, alpha=-self._rate)

    def step_with_products(self, parameters: Tensors, gradients: Sequence[Gradient]) -> None:
        """Update the parameters in place; without momentum, gradients that are products are never stored."""
        if self._momentum or not any(isinstance(gradient, ProductGradient) for gradient in gradients):
            self.step(parameters, match_layout(gradients, parameters))
            return
        others: list[Tensor] = []
        of_others: list[Gradient] = []
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if isinstance(gradient, ProductGradient):
                gradient.add_to(parameter, -self._rate)
            else:
                others.append(parameter)
                of_others.append(gradient)
        self.step(others, match_layout(of_others, others))


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) with the defaults of torch."""

    def __init__(self, parameters: Sequence[Tensor], rate: float) -> None:
        self._rate = rate
        self._first, self._second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        self._count = torch.zeros((), device=parameters[0].device)

    def step(self, parameters: Tensors, gradients: Tensors) -> None:
        """Update the parameters in place; gradients must have the same strides."""
        self._count += 1  # one count for all: active clients have taken the same number of steps
        first, second = active_part(self._first, parameters), active_part(self._second, parameters)
        # The fused function ignores gaps in memory.
        has_gaps = any(p.stride() != m.stride() for p, m in zip(parameters, first, strict=True))
        step = torch_private.unfused_adam_ if has_gaps else torch_private.adam_
        step(parameters, gradients, first, second, self._count, rate=self._rate, beta=BETA, epsilon=EPSILON)


def make_optimizer(config: TrainConfig, parameters: Sequence[Tensor], number: int = 1) -> SGD | Adam:
    """Return the local optimizer of a configuration, for the round of this number."""
    rate = config.rate_in(number)
    if config.optimizer_name == "adam":
        return Adam(parameters, rate)
    return SGD(parameters, rate, config.momentum, config.nesterov)


def match_layout(gradients: Sequence[Gradient], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return gradients as tensors with the strides and the dtype of their parameters, which fused functions require."""
    matched = []
    for gradient, parameter in zip(gradients, parameters, strict=True):
        if gradient is None:  # the loss does not use it
            gradient = torch.zeros_like(parameter)
        if isinstance(gradient, ProductGradient):
            gradient = gradient.to_tensor()
        if gradient.stride() != parameter.stride() or gradient.dtype != parameter.dtype:
            gradient = torch.empty_like(parameter).copy_(gradient)
        matched.append(gradient)
    return matched


CHUNK = 2**18
"""Weights that `add_l1` processes at a time; more of them do not fit into the cache."""


def add_l1(gradients: Sequence[Tensor], parameters: Sequence[Tensor], weight: float) -> list[Tensor]:
    """Return gradients with that of an L1 penalty added: large ones in place and in chunks, the others in one call."""
    addresses = [g.data_ptr() for g in gradients]
    large = [g.numel() > CHUNK and addresses.count(at) == 1 for g, at in zip(gradients, addresses, strict=True)]
    result = list(gradients)
    for gradient, parameter, is_large in zip(gradients, parameters, large, strict=True):
        if is_large:
            rows = max(1, CHUNK * len(parameter) // parameter.numel())
            for into, part in zip(torch.split(gradient, rows), torch.split(parameter, rows), strict=True):
                into.add_(part.sign(), alpha=weight)
    if small := [i for i, is_large in enumerate(large) if not is_large]:
        signs = torch_private.sign([parameters[i] for i in small])
        added = torch_private.add([gradients[i] for i in small], signs, alpha=weight)
        for i, gradient in zip(small, added, strict=True):
            result[i] = gradient
    return result


def add_l2(gradients: Sequence[Tensor], parameters: Sequence[Tensor], weight: float, leading: int) -> list[Tensor]:
    """Return gradients with that of the penalty ``weight * |w|^2`` of all weight matrices and kernels added.

    Biases and scales of normalisation are not penalised. `leading` is the number of dimensions before those of a
    client's parameter: 1 with vectorized clients.
    """
    result = list(gradients)
    matrices = [i for i, parameter in enumerate(parameters) if parameter.dim() - leading > 1]
    if matrices:
        some_gradients, weights = ([values[i] for i in matrices] for values in (gradients, parameters))
        for i, gradient in zip(matrices, torch_private.add(some_gradients, weights, alpha=2 * weight), strict=True):
            result[i] = gradient
    return result


def active_part(state: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the part of the state (C, ...) that belongs to the active clients, given their parameters."""
    return [s if s.shape == p.shape else s[: len(p)] for s, p in zip(state, parameters, strict=True)]
