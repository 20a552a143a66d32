"""Quadratic objectives at clients, whose federated training has an optimum in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import Federation, Matrix, TaskSpec, UnlabeledSets
from fedul.methods.base import Method
from fedul.methods.task import Predict, Step, Targets, Task

from ..factories import make_client, make_federation
from .rounds import Training


@dataclass(frozen=True, eq=False)
class Bowl:
    """f(w) = 1/2 (w - centre)' curvature (w - centre) + slope' w, with `steps` local steps per round."""

    curvature: Matrix  # (d, d)
    centre: Matrix  # (d,)
    steps: int = 1
    slope: Matrix | float = 0.0  # (d,)

    def gradient(self, w: Matrix) -> Matrix:
        return self.curvature @ (w - self.centre) + self.slope


def random_bowls(seed: int, steps: Sequence[int], size: int = 3) -> dict[str, Bowl]:
    """Return one client for each number of steps; the eigenvalues of its curvature are between 1/2 and 3."""
    generator = np.random.default_rng(seed)
    bowls = {}
    for c, count in enumerate(steps):
        axes, _ = np.linalg.qr(generator.normal(size=(size, size)))
        curvature = axes @ np.diag(generator.uniform(0.5, 3.0, size)) @ axes.T
        bowls[f"client-{c}"] = Bowl(curvature, generator.normal(size=size), count)
    return bowls


def optimum(bowls: Mapping[str, Bowl], shares: Mapping[str, float] | None = None) -> Matrix:
    """Return the minimum of the weighted mean of the objectives."""
    return balance({name: bowl.curvature for name, bowl in bowls.items()}, bowls, shares)


def balance(
    pulls: Mapping[str, Matrix], bowls: Mapping[str, Bowl], shares: Mapping[str, float] | None = None
) -> Matrix:
    """Return the fixed point of clients that move the model by pull (centre - w)."""
    weighted = {name: (1.0 if shares is None else shares[name]) * pull for name, pull in pulls.items()}
    return np.linalg.solve(sum(weighted.values()), sum(pull @ bowls[name].centre for name, pull in weighted.items()))


class Point(nn.Module):
    """A model whose output is its one vector, independent of the input."""

    def __init__(self, start: Matrix) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.from_numpy(np.array(start)))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.w.expand(len(inputs), -1)


@dataclass(frozen=True)
class Descent(Method):
    """A method that minimises the quadratic objective of the client."""

    bowls: Mapping[str, Bowl]

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        bowl = self.bowls[client.name]
        slope = np.zeros_like(bowl.centre) + bowl.slope
        values = {"curvature": bowl.curvature, "centre": bowl.centre, "slope": slope}
        targets = Targets({}, client={name: torch.from_numpy(value) for name, value in values.items()})
        return Task(client.inputs, client.train.index, targets, spec.scaling)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        w = predict(step.inputs)
        difference = w - step.shared["centre"]
        return step.mean(0.5 * (difference @ step.shared["curvature"] * difference).sum(1) + w @ step.shared["slope"])


def bowl_federation(bowls: Mapping[str, Bowl]) -> Federation:
    """Return clients with two rows for every local step, since a single last row would join the step before."""
    return make_federation(*(make_client(name, np.eye(2), bowl.steps) for name, bowl in bowls.items()))


def descent(algorithm: Algorithm, bowls: Mapping[str, Bowl], start: Matrix, rate: float, **settings: Any) -> Training:
    """Return training with plain gradient steps on the quadratic objectives."""
    config = TrainConfig(optimizer="sgd", learning_rate=rate, batch_size=2, **settings)
    return Training(bowl_federation(bowls), algorithm, Point(start), config, Descent(bowls))


def point(training: Training) -> Matrix:
    """Return the vector that was trained."""
    return training.weights["w"].numpy()
