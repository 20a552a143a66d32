"""SCAFFOLD: control variates take out the part of a client's gradient that is its own, so that clients do not drift.

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020. A client's c_i is the
mean of its own gradients over the local steps, which under SGD equals the paper's option II and makes sense under any
optimiser; gradients are corrected by c - c_i before the local optimiser sees them. With a share S of the N clients
taking part, c moves by |S|/N times the mean change of theirs. One client alone is FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fedul.algorithms.base import Algorithm, Correction, Trained, Update, Weights, mean_of, moved, refuse_rows


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Local gradients gain c - c_i; a client that has not taken part yet has c_i = 0."""

    wants_mean_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_rows(
            self
        )  # as in the paper: c is the mean of all c_i, which a share of the clients cannot weigh by rows

    def sent(self, state: Weights) -> Weights:
        return state

    def correction(self, sent: Weights, kept: Weights) -> Correction | None:
        return Correction(offset={name: c - kept[name] if name in kept else c for name, c in sent.items()})

    def finish(self, trained: Trained, sent: Weights, kept: Weights) -> tuple[Weights, Weights]:
        own = {name: gradient.clone() for name, gradient in trained.mean_gradient.items()}
        return {name: c - kept[name] if name in kept else c for name, c in own.items()}, own

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        mean = mean_of(updates, self.weighting)
        share = mean.clients / clients
        control = {name: share * change + state.get(name, 0.0) for name, change in mean.message.items()}
        return moved(weights, mean.delta, self.step, mean.buffers), control
