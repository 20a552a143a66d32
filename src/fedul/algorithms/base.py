"""What an algorithm is: it turns clients' updates into the next global model, and knows nothing of data or engines.

Updates come one by one in a fixed order of clients, so that memory does not grow with their number and the result does
not depend on who was ready first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

Weights = dict[str, Tensor]
"""Parameters and buffers by name."""


@dataclass(frozen=True, eq=False)
class Update:
    """What a client sends back: how far it moved, on how much data. Valid until the next update is asked for."""

    client: str
    delta: Weights  # f_c - f, in floating point also for integer buffers; a buffer that did not change is left out
    rows: int
    steps: int
    loss: float


class Algorithm(Protocol):
    """How client updates become the next global model."""

    def initial_state(self, weights: Weights) -> Weights:
        """What the server keeps between rounds, as named tensors."""
        ...

    def aggregate(self, weights: Weights, state: Weights, updates: Iterable[Update]) -> tuple[Weights, Weights]:
        """The next weights and server state; the arguments are left as they are."""
        ...


def moved(weights: Weights, delta: Weights, step: float) -> Weights:
    """weights + step * delta, in the type of the weights; what has no delta stays, integer buffers are rounded."""
    result = dict(weights)
    for name, change in delta.items():
        value = weights[name]
        if value.is_floating_point():
            result[name] = value + step * change
        else:
            result[name] = (value.double() + step * change).round().to(value.dtype)
    return result
