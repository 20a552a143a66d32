"""Federations whose training can be computed by hand, and what it takes to train them with the real code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedul.algorithms.base import Algorithm, Update, Weights
from fedul.config import TrainConfig
from fedul.engines.inprocess import InProcess
from fedul.engines.local import Broadcast
from fedul.engines.store import ClientStore, InMemory
from fedul.federation import Federation, UnlabeledSets
from fedul.methods.base import Method, Predict, Step, Targets, Task
from fedul.methods.fedul import FedUL, HeldOut
from fedul.models.weights import weights_of
from fedul.priors import Matrix
from fedul.rounds import Parts, run_rounds
from fedul.runs import State
from fedul.training import Quiet

from ..worlds import random_priors


@dataclass(frozen=True, eq=False)
class Bowl:
    """f(w) = 1/2 (w - centre)' curvature (w - centre) + slope' w, at a client that takes some local steps a round."""

    curvature: Matrix  # (d, d)
    centre: Matrix  # (d,)
    steps: int = 1
    slope: Matrix | float = 0.0  # (d,)

    def gradient(self, w: Matrix) -> Matrix:
        return self.curvature @ (w - self.centre) + self.slope


def bowls_of(seed: int, steps: Sequence[int], size: int = 3) -> dict[str, Bowl]:
    """A client for each number of steps, with eigenvalues of its curvature between 1/2 and 3."""
    generator = np.random.default_rng(seed)
    bowls = {}
    for c, count in enumerate(steps):
        axes, _ = np.linalg.qr(generator.normal(size=(size, size)))
        curvature = axes @ np.diag(generator.uniform(0.5, 3.0, size)) @ axes.T
        bowls[f"client-{c}"] = Bowl(curvature, generator.normal(size=size), count)
    return bowls


def optimum(bowls: Mapping[str, Bowl], shares: Mapping[str, float] | None = None) -> Matrix:
    """Where the mean of the objectives is least."""
    return balance({name: bowl.curvature for name, bowl in bowls.items()}, bowls, shares)


def balance(
    pulls: Mapping[str, Matrix], bowls: Mapping[str, Bowl], shares: Mapping[str, float] | None = None
) -> Matrix:
    """Where clients that move the model by pull (centre - w) keep it where it is."""
    weighted = {name: (1.0 if shares is None else shares[name]) * pull for name, pull in pulls.items()}
    return np.linalg.solve(sum(weighted.values()), sum(pull @ bowls[name].centre for name, pull in weighted.items()))


class Point(nn.Module):
    """A model that is one vector, whatever the input."""

    def __init__(self, start: Matrix) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.from_numpy(np.array(start)))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.w.expand(len(inputs), -1)


@dataclass(frozen=True)
class Descent(Method):
    """Minimise the client's bowl."""

    bowls: Mapping[str, Bowl]

    def task(self, client: UnlabeledSets, federation: Federation) -> Task:
        bowl = self.bowls[client.name]
        slope = np.zeros_like(bowl.centre) + bowl.slope
        parts = {"curvature": bowl.curvature, "centre": bowl.centre, "slope": slope}
        targets = Targets({}, client={name: torch.from_numpy(value) for name, value in parts.items()})
        return Task(client.inputs, client.train.index, targets, federation.scaling)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        w = predict(step.inputs)
        away = w - step.shared["centre"]
        return step.mean(0.5 * (away @ step.shared["curvature"] * away).sum(1) + w @ step.shared["slope"])


def federation_of(bowls: Mapping[str, Bowl]) -> Federation:
    """Two rows for every local step, since a single last row would join the step before."""
    clients = [
        UnlabeledSets.from_arrays(name, torch.zeros(2 * b.steps, 1), np.arange(2 * b.steps) % 2, np.eye(2), held_out=0)
        for name, b in bowls.items()
    ]
    return Federation(clients, "ab")


def table_federation(clients: int = 3, seed: int = 0, precision: Any = np.float64) -> Federation:
    """Random rows of two columns, of three classes, unequally many at each client."""
    generator = np.random.default_rng(seed)
    made = []
    for c in range(clients):
        rows = 24 + 9 * c
        inputs = generator.normal(size=(rows, 2)).astype(precision)
        made.append(UnlabeledSets.from_arrays(f"c{c}", inputs, np.arange(rows) % 4, random_priors(generator, 4, 3)))
    return Federation(made, "abc")


def network(*middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), *middle, nn.Tanh(), nn.Linear(5, 3)).double()


@dataclass
class Training:
    """The real engine and algorithm, a round at a time."""

    federation: Federation
    algorithm: Algorithm
    module: nn.Module
    config: TrainConfig
    method: Method = field(default_factory=FedUL)
    store: ClientStore = field(default_factory=InMemory)
    changed: Callable[[Update], Update] = lambda update: update
    weights: Weights = field(default_factory=dict)
    state: Weights = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self.weights = {name: tensor.clone() for name, tensor in weights_of(self.module).items()}
        self.names = sorted(client.name for client in self.federation.clients)
        self.engine = InProcess(self.federation, self.method, self.algorithm, self.module, self.config, self.store)

    def round(self, names: Sequence[str] | None = None) -> Training:
        self.number += 1
        broadcast = Broadcast(self.number, self.weights, self.algorithm.sent(self.state))
        updates = (self.changed(update) for update in self.engine.train(broadcast, names or self.names))
        self.weights, self.state = self.algorithm.aggregate(self.weights, self.state, updates, len(self.names))
        return self

    def rounds(self, count: int) -> Training:
        for _ in range(count):
            self.round()
        return self

    def kept(self, name: str) -> Weights:
        """What the algorithm keeps at a client; a method may keep something beside it."""
        return {key.removeprefix("algorithm/"): tensor for key, tensor in self.store.read(name).items()}


def descent(algorithm: Algorithm, bowls: Mapping[str, Bowl], start: Matrix, rate: float, **settings: Any) -> Training:
    """Plain gradient steps down the clients' bowls."""
    config = TrainConfig(optimizer="sgd", learning_rate=rate, batch_size=2, **settings)
    return Training(federation_of(bowls), algorithm, Point(start), config, Descent(bowls))


def point(training: Training) -> Matrix:
    return training.weights["w"].numpy()


class Noted:
    """An engine that writes down who was asked to train."""

    def __init__(self, engine: InProcess) -> None:
        self.engine, self.asked = engine, list[list[str]]()
        self.names, self.remarks, self.noted = engine.names, engine.remarks, engine.noted
        self.judges_along = engine.judges_along

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        self.asked.append(list(clients))
        return self.engine.train(broadcast, clients)

    def held_out(self, weights: Weights) -> Mapping[str, HeldOut]:
        return self.engine.held_out(weights)


def sampled_run(training: Training, rounds: int, participation: float) -> tuple[State, list[list[str]]]:
    """A whole run in which a share of the clients takes part, and who did in each round."""
    engine = Noted(training.engine)
    parts = Parts(
        training.federation,
        None,
        training.module,
        "custom",
        training.method,
        training.algorithm,
        engine,
        training.store,
    )
    config = replace(training.config, rounds=rounds, participation=participation, select="last")
    return run_rounds(parts, config, None, None, Quiet()), engine.asked


def random_start(generator: np.random.Generator, *, buffers: bool = True) -> Weights:
    """Parameters, and buffers of floating and whole numbers."""
    start = {"a": torch.from_numpy(generator.normal(size=(3, 2))), "b": torch.from_numpy(generator.normal(size=4))}
    if buffers:
        start |= {"level": torch.from_numpy(generator.normal(size=3)), "count": torch.tensor(generator.integers(100))}
    return start


def random_updates(
    generator: np.random.Generator, start: Weights, clients: int, steps: int | None = None
) -> list[Update]:
    """Updates of random rows and steps, or of these steps."""
    updates = []
    for c in range(clients):
        delta = {name: torch.from_numpy(generator.normal(size=tuple(start[name].shape))) for name in ("a", "b")}
        buffers = {}
        if "level" in start:
            count = torch.tensor(float(generator.integers(20)), dtype=torch.float64)
            buffers = {"level": torch.from_numpy(generator.normal(size=3)), "count": count}
        taken = int(generator.integers(1, 30)) if steps is None else steps
        updates.append(Update(f"c{c}", delta, int(generator.integers(1, 100)), taken, 0.0, buffers))
    return updates


def combined(algorithm: Algorithm, rounds: Sequence[Sequence[Update]], start: Weights) -> Weights:
    """The weights after rounds in which these updates came in."""
    weights, state = start, Weights()
    for updates in rounds:
        weights, state = algorithm.aggregate(weights, state, updates, len(updates))
    return weights
