"""The private functions of torch that training uses, each with a fallback of public operations.

`torch._foreach_*` and `torch._fused_adam_` process a list of tensors in one call, which is faster for small networks
than a Python loop. They are not part of torch's public interface and may disappear from it, so only this module calls
them. The fallbacks give the same numbers up to rounding. Functions whose names end with an underscore modify their
first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

Tensors = list[Tensor] | tuple[Tensor, ...]


def add_(tensors: Tensors, others: Tensors, alpha: float = 1) -> None:
    """Compute ``tensors += alpha * others``."""
    _for_each("_foreach_add_", torch.Tensor.add_, (tensors, others), alpha=alpha)


def multiply_(tensors: Tensors, factor: float) -> None:
    """Compute ``tensors *= factor``."""
    _for_each("_foreach_mul_", torch.Tensor.mul_, (tensors,), factor)


def lerp_(tensors: Tensors, ends: Tensors, weight: float) -> None:
    """Compute ``tensors += weight * (ends - tensors)``."""
    _for_each("_foreach_lerp_", torch.Tensor.lerp_, (tensors, ends), weight)


def addcmul_(tensors: Tensors, left: Tensors, right: Tensors, value: float) -> None:
    """Compute ``tensors += value * left * right``."""
    _for_each("_foreach_addcmul_", torch.Tensor.addcmul_, (tensors, left, right), value=value)


def copy_(tensors: Tensors, sources: Tensors) -> None:
    """Copy the values of ``sources`` into ``tensors``."""
    _for_each("_foreach_copy_", torch.Tensor.copy_, (tensors, sources))


def add(tensors: Tensors, others: Tensors, alpha: float = 1) -> Tensors:
    """Return ``tensors + alpha * others``."""
    return _for_each("_foreach_add", torch.add, (tensors, others), alpha=alpha)


def subtract(tensors: Tensors, others: Tensors) -> Tensors:
    """Return ``tensors - others``."""
    return _for_each("_foreach_sub", torch.sub, (tensors, others))


def sign(tensors: Tensors) -> Tensors:
    """Return the signs of the elements."""
    return _for_each("_foreach_sign", torch.sign, (tensors,))


def relu_gradient(gradient: Tensor, values: Tensor) -> Tensor:
    """Return the gradient where the values are positive, and 0 elsewhere."""
    if function := getattr(torch.ops.aten, "threshold_backward", None):
        result: Tensor = function(gradient, values, 0)
        return result
    return gradient * (values > 0)


def convolution_gradients(
    gradient: Tensor,
    inputs: Tensor,
    weight: Tensor,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    needed: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of the inputs and of the weight of a convolution of images, from that of its outputs.

    Those that are not needed are None.
    """
    if function := getattr(torch.ops.aten, "convolution_backward", None):
        mask = [*needed, False]
        found = function(gradient, inputs, weight, None, stride, padding, dilation, False, [0, 0], groups, mask)
        return found[0], found[1]
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in (inputs, weight)]
        outputs = torch.nn.functional.conv2d(leaves[0], leaves[1], None, stride, padding, dilation, groups)
        of_leaves = torch.autograd.grad(outputs, leaves, gradient)
    of_inputs, of_weight = (one if wanted else None for one, wanted in zip(of_leaves, needed, strict=True))
    return of_inputs, of_weight


def adam_(
    parameters: Tensors,
    gradients: Tensors,
    first: Tensors,
    second: Tensors,
    count: Tensor,
    *,
    rate: float,
    beta: tuple[float, float],
    epsilon: float,
) -> None:
    """Take a step of Adam; the moments ``first`` and ``second`` are modified too.

    Parameters, gradients and moments must have the same strides, without gaps in memory. ``count`` is the number of
    steps including this one.
    """
    if function := _private("_fused_adam_"):
        function(
            parameters,
            gradients,
            first,
            second,
            [],
            [count] * len(parameters),
            lr=rate,
            beta1=beta[0],
            beta2=beta[1],
            weight_decay=0.0,
            eps=epsilon,
            amsgrad=False,
            maximize=False,
        )
    else:
        unfused_adam_(parameters, gradients, first, second, count, rate=rate, beta=beta, epsilon=epsilon)


def unfused_adam_(
    parameters: Tensors,
    gradients: Tensors,
    first: Tensors,
    second: Tensors,
    count: Tensor,
    *,
    rate: float,
    beta: tuple[float, float],
    epsilon: float,
) -> None:
    """Take the step of `adam_` for any strides, with one operation after another."""
    taken = float(count)
    lerp_(first, gradients, 1 - beta[0])
    multiply_(second, beta[1])
    addcmul_(second, gradients, gradients, 1 - beta[1])
    for parameter, mean, square in zip(parameters, first, second, strict=True):
        divisor = (square / (1 - beta[1] ** taken)).sqrt_().add_(epsilon)
        parameter.addcdiv_(mean, divisor, value=-rate / (1 - beta[0] ** taken))


def _for_each(
    private: str, public: Callable[..., Tensor], lists: tuple[Tensors, ...], *numbers: float, **options: float
) -> Tensors:
    """Call the private function with lists of tensors, or the public one with the tensors of each place."""
    if function := _private(private):
        result: Tensors = function(*lists, *numbers, **options)
        return result
    return [public(*tensors, *numbers, **options) for tensors in zip(*lists, strict=True)]


@cache
def _private(name: str) -> Callable[..., Any] | None:
    """Return the private function of torch, or None if this version of torch does not have it."""
    return getattr(torch, name, None)


def processor_has_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16 matrices in hardware."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)
