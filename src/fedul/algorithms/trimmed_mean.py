"""Trimmed mean: robust aggregation without the largest and smallest updates in every coordinate.

Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018. With trim = 0 it is
FedAvg. All updates of a round are in memory at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedul._utils.settings import option
from fedul.algorithms.base import Algorithm
from fedul.algorithms.mean import apply_update, no_updates_error
from fedul.core import Update, Weights


@dataclass(frozen=True)
class CoordinateWise(Algorithm):
    """Base class of robust algorithms: the model moves by a center of the updates in every coordinate.

    All clients count the same. A subclass defines `center`.
    """

    uniform_only: ClassVar[bool] = True

    def center(self, values: Tensor) -> Tensor:
        """Return the center (...) of the changes of all clients (clients, ...)."""
        raise NotImplementedError

    @property
    def single_updates_reason(self) -> str:
        return "it orders the updates of all clients in every coordinate"

    def aggregate(
        self, weights: Weights, server_state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        # Copied, because an update is valid only until the next one is requested.
        pairs = [[{k: t.clone() for k, t in group.items()} for group in (u.delta, u.buffers)] for u in updates]
        if not pairs:
            raise no_updates_error()
        delta, buffers = (self._centers(group) for group in zip(*pairs, strict=True))
        return apply_update(weights, delta, self.step, buffers), server_state

    def _centers(self, changes: Sequence[Weights]) -> Weights:
        samples = {name: tensor for change in reversed(changes) for name, tensor in change.items()}
        # A buffer that is not in an update did not change.
        return {
            name: self.center(torch.stack([change.get(name, torch.zeros_like(sample)) for change in changes]))
            for name, sample in samples.items()
        }


@dataclass(frozen=True)
class TrimmedMean(CoordinateWise):
    """The global model moves by the coordinate-wise trimmed mean of the updates; all clients count the same.

    With trim = 0 it is FedAvg.

    Parameters
    ----------
    trim : float, default=0.2
        Share of the clients that is left out at either end.
    step : float, default=1.0
        Global step size.
    """

    trim: float = option(0.2, "Share of the clients left out at either end; with 0 this is fedavg.", low=0, high=0.49)

    def startup_warnings(self, weights: Weights, clients: int) -> list[str]:
        if not self.trim or self._cut(clients):
            return []
        return [f"trimmed-mean: trim {self.trim:g} of {clients} clients is less than one client, so this is fedavg."]

    def center(self, values: Tensor) -> Tensor:
        cut = self._cut(len(values))
        return values.sort(0).values[cut : len(values) - cut].mean(0)

    def _cut(self, clients: int) -> int:
        """Return the number of clients left out at either end."""
        return int(self.trim * clients + 1e-9)
