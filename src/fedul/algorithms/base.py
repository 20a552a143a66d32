"""What an algorithm is: it turns clients' updates into the next global model, and knows nothing of data or engines.

It speaks in two places. At a client it may choose where to start, correct gradients and keep something for the next
time; at the coordinator it combines updates, one by one in a fixed order of clients, so that memory does not grow
with their number and the result does not depend on who was ready first. Everything it handles are tensors by name,
treated element by element: so a loop over clients, clients stacked into one computation and a remote site agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedul.errors import InputError, WorldError
from fedul.settings import check, option

Weights = dict[str, Tensor]
"""Parameters and buffers by name."""


@dataclass(frozen=True, eq=False)
class Update:
    """What a client sends back: how far it moved, on how much data. Valid until the next update is asked for."""

    client: str
    delta: Weights  # f_c - f of the parameters
    rows: int
    steps: float  # plain gradient steps that its local steps amount to; more than were taken, with momentum
    loss: float
    buffers: Weights = field(default_factory=dict)  # change of those buffers that changed, in floating point
    message: Weights = field(default_factory=dict)  # what the algorithm sends besides


@dataclass(frozen=True, eq=False)
class Trained:
    """What a client has after its local steps."""

    weights: Weights  # parameters and buffers; live tensors, to be copied by whoever keeps them
    mean_gradient: Weights  # of the local objective over the local steps, uncorrected; empty if nobody asked for it


@dataclass(frozen=True, eq=False)
class Correction:
    """What is added to every local gradient: proximal * (w - start) + offset."""

    proximal: float = 0.0
    offset: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class Algorithm:
    """How client updates become the next global model; as it stands here, by their mean.

    An algorithm is one file with one subclass that overrides what it does differently.
    """

    weighting: str = option("uniform", "Clients count the same, or by their rows.", choices=("uniform", "rows"))
    step: float = option(1.0, "Global step size (alpha_g).", low=0)

    wants_mean_gradient: ClassVar[bool] = False
    """Whether `finish` needs the mean of the local gradients, which costs an addition a step."""

    def __post_init__(self) -> None:
        check(self)

    def remarks(self, weights: Weights, clients: int) -> list[str]:
        """What a user should know of this algorithm with this model and so many clients a round, in sentences."""
        return []

    # At the coordinator; `state` is what the server keeps between rounds, empty at first.

    def sent(self, state: Weights) -> Weights:
        """What clients are sent besides the weights."""
        return {}

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        """The next weights and server state, of a federation of so many clients; the arguments stay as they are."""
        mean = mean_of(updates, self.weighting)
        return moved(weights, mean.delta, self.step, mean.buffers), state

    # At a client; `kept` is what `finish` returned there the last time, empty at first.

    def start(self, weights: Weights, kept: Weights) -> Weights:
        """The weights to start from."""
        return weights

    def correction(self, sent: Weights, kept: Weights) -> Correction | None:
        """What to add to local gradients."""
        return None

    def finish(self, trained: Trained, sent: Weights, kept: Weights) -> tuple[Weights, Weights]:
        """A message to the coordinator, and what to keep at the client. Tensors of `trained` must be copied."""
        return {}, {}


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of some updates."""

    delta: Weights
    buffers: Weights
    message: Weights
    steps: float
    clients: int


def mean_of(updates: Iterable[Update], weighting: str, factor: Callable[[Update], float] = lambda _: 1.0) -> Mean:
    """The mean of updates, streamed; each delta may be multiplied by a factor of its own first."""
    delta, buffers, message = _Sum(), _Sum(), _Sum()
    mass, steps, clients = 0.0, 0.0, 0
    for update in updates:
        share = float(update.rows) if weighting == "rows" else 1.0
        delta.add(update.delta, share * factor(update))
        buffers.add(update.buffers, share)
        message.add(update.message, share)
        mass += share
        steps += share * update.steps
        clients += 1
    if mass == 0:
        raise nobody()
    return Mean(delta.over(mass), buffers.over(mass), message.over(mass), steps / mass, clients)


class _Sum:
    def __init__(self) -> None:
        self._total: Weights = {}

    def add(self, tensors: Weights, times: float) -> None:
        if tensors.keys() - self._total.keys():
            self._total |= {k: torch.zeros_like(t) for k, t in tensors.items() if k not in self._total}
        if tensors:  # in one call, since small clients come by the hundred
            torch._foreach_add_([self._total[name] for name in tensors], list(tensors.values()), alpha=times)

    def over(self, mass: float) -> Weights:
        return {name: tensor / mass for name, tensor in self._total.items()}


def refuse_rows(algorithm: Algorithm) -> None:
    """For algorithms in which all clients count the same."""
    if algorithm.weighting != "uniform":
        raise InputError(f"weighting: '{algorithm.weighting}' is not possible here, where clients count the same.")


def nobody() -> WorldError:
    return WorldError("no client sent an update in this round; the model is as it was.")


def moved(weights: Weights, delta: Weights, step: float, buffers: Weights) -> Weights:
    """Parameters moved by step * delta, and buffers by all of their change: statistics know no step size.

    What has no change stays; values keep their type, integers are rounded.
    """
    result = dict(weights)
    for changes, times in ((delta, step), (buffers, 1.0)):
        for name, change in changes.items():
            value = weights[name]
            if value.is_floating_point():
                result[name] = (value + times * change).to(value.dtype)
            else:
                result[name] = (value.double() + times * change).round().to(value.dtype)
    return result


def plain_steps(optimizer: str, momentum: float, steps: int) -> float:
    """How many plain gradient steps a client's steps amount to: |a|_1 of FedNova.

    With momentum rho, gradient k of tau is counted (1 - rho^(tau-k+1)) / (1 - rho) times. For Adam, whose steps are not
    a fixed combination of gradients, the number of steps stands in for it: a heuristic.

    >>> plain_steps("sgd", 0.0, 3), plain_steps("sgd", 0.5, 2), plain_steps("adam", 0.0, 3)
    (3.0, 2.5, 3.0)
    """
    if optimizer != "sgd" or momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
