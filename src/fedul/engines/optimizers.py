"""Local optimisers, made anew for every client and round: torch's own arithmetic without what surrounds it.

`torch.optim` costs a small network as much as its gradients do, and imports a compiler. Parameters may be those of
several clients at once, in a dimension in front; of these only the first ones step where the others have finished.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedul.config import TrainConfig

Tensors = list[Tensor] | tuple[Tensor, ...]
BETA, EPSILON = (0.9, 0.999), 1e-8  # torch's defaults


class Sgd:
    """w - rate * b, with b = momentum * b + gradient."""

    def __init__(self, parameters: Sequence[Tensor], rate: float, momentum: float) -> None:
        largest = torch.finfo(parameters[0].dtype).max
        self._rate, self._momentum = rate if rate <= largest else math.inf, momentum  # torch refuses what is between
        self._gathered = [torch.zeros_like(p) for p in parameters] if momentum else []

    def step(self, parameters: Tensors, gradients: Tensors) -> None:
        """Moves the parameters in place, by gradients laid out as they are."""
        directions = gradients
        if self._momentum:
            directions = first_of(self._gathered, parameters)
            torch._foreach_mul_(directions, self._momentum)
            torch._foreach_add_(directions, gradients)
        torch._foreach_add_(parameters, directions, alpha=-self._rate)


class Adam:
    """Kingma and Ba, ICLR 2015, with torch's defaults."""

    def __init__(self, parameters: Sequence[Tensor], rate: float) -> None:
        self._rate = rate
        self._first, self._second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        self._count = torch.zeros((), device=parameters[0].device)

    def step(self, parameters: Tensors, gradients: Tensors) -> None:
        """Moves the parameters in place, by gradients laid out as they are."""
        self._count += 1  # one for all: whoever still steps has stepped as often as the others
        first, second = first_of(self._first, parameters), first_of(self._second, parameters)
        if any(p.stride() != m.stride() for p, m in zip(parameters, first, strict=True)):
            return self._step_with_gaps(parameters, gradients, first, second)
        torch._fused_adam_(
            parameters,
            gradients,
            first,
            second,
            [],
            [self._count] * len(parameters),
            lr=self._rate,
            beta1=BETA[0],
            beta2=BETA[1],
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def _step_with_gaps(self, parameters: Tensors, gradients: Tensors, first: Tensors, second: Tensors) -> None:
        """The same for parameters with gaps in memory, which fused arithmetic would take for values."""
        taken = float(self._count)
        torch._foreach_lerp_(first, gradients, 1 - BETA[0])
        torch._foreach_mul_(second, BETA[1])
        torch._foreach_addcmul_(second, gradients, gradients, 1 - BETA[1])
        for parameter, mean, square in zip(parameters, first, second, strict=True):
            divisor = (square / (1 - BETA[1] ** taken)).sqrt_().add_(EPSILON)
            parameter.addcdiv_(mean, divisor, value=-self._rate / (1 - BETA[0] ** taken))


def make_optimizer(config: TrainConfig, parameters: Sequence[Tensor]) -> Sgd | Adam:
    if config.optimizer == "adam":
        return Adam(parameters, config.learning_rate)
    return Sgd(parameters, config.learning_rate, config.momentum)


def laid_out(gradients: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Gradients laid out in memory as their parameters are, which fused arithmetic takes for granted."""
    found = []
    for gradient, parameter in zip(gradients, parameters, strict=True):
        if gradient is None:  # the loss does not use it
            gradient = torch.zeros_like(parameter)
        elif gradient.stride() != parameter.stride():
            gradient = torch.empty_like(parameter).copy_(gradient)
        found.append(gradient)
    return found


PIECE = 2**18
"""Weights whose signs are taken in one go; more of them leave the cache, and memory for them is fetched every time."""


def with_signs(gradients: Sequence[Tensor], parameters: Sequence[Tensor], weight: float) -> list[Tensor]:
    """Gradients with that of an L1 penalty added: large ones in place and piece by piece, the others all at once."""
    places = [g.data_ptr() for g in gradients]
    large = [g.numel() > PIECE and places.count(place) == 1 for g, place in zip(gradients, places, strict=True)]
    found = list(gradients)
    for gradient, parameter, pieces in zip(gradients, parameters, large, strict=True):
        if pieces:
            rows = max(1, PIECE * len(parameter) // parameter.numel())
            for into, part in zip(torch.split(gradient, rows), torch.split(parameter, rows), strict=True):
                into.add_(part.sign(), alpha=weight)
    if rest := [i for i, pieces in enumerate(large) if not pieces]:
        signs = torch._foreach_sign([parameters[i] for i in rest])
        added = torch._foreach_add([gradients[i] for i in rest], signs, alpha=weight)
        for i, gradient in zip(rest, added, strict=True):
            found[i] = gradient
    return found


def first_of(state: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """What belongs to those clients that step."""
    pairs = zip(state, parameters, strict=True)
    return [whole if whole.shape == part.shape else whole[: len(part)] for whole, part in pairs]
