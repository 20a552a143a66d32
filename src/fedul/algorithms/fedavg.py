"""FedAvg: the next model is the mean of the clients' models.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017. FedUL's server
step is f + step * mean(f_c - f) (printed there with a minus sign); at step = 1 this is the mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from fedul.algorithms.base import Update, Weights, moved
from fedul.config import check, option
from fedul.errors import WorldError


@dataclass(frozen=True)
class FedAvg:
    """The mean of the updates, streamed.

    >>> start = {"w": torch.tensor([0.0])}
    >>> moves = {"a": (1.0, 10), "b": (4.0, 20)}  # how far each client moved, on how many rows
    >>> updates = [Update(c, {"w": torch.tensor([move])}, rows, 1, 0.0) for c, (move, rows) in moves.items()]
    >>> FedAvg().aggregate(start, {}, updates)[0], FedAvg(weighting="rows").aggregate(start, {}, updates)[0]
    ({'w': tensor([2.5000])}, {'w': tensor([3.])})
    """

    weighting: str = option("uniform", "Clients count the same, or by their rows.", choices=("uniform", "rows"))
    step: float = option(1.0, "Global step size (alpha_g).", low=0)

    def __post_init__(self) -> None:
        check(self)

    def initial_state(self, weights: Weights) -> Weights:
        return {}

    def aggregate(self, weights: Weights, state: Weights, updates: Iterable[Update]) -> tuple[Weights, Weights]:
        total: Weights = {}
        mass = 0.0
        for update in updates:
            share = float(update.rows) if self.weighting == "rows" else 1.0
            for name, delta in update.delta.items():
                total.setdefault(name, torch.zeros_like(delta)).add_(delta, alpha=share)
            mass += share
        if mass == 0:
            raise WorldError("no client sent an update in this round; the model is as it was.")
        mean = {name: delta / mass for name, delta in total.items()}
        return moved(weights, mean, self.step), state
