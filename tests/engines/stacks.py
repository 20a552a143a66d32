"""Random ragged federations, and three rounds of any method under any algorithm on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedul.algorithms import make_algorithm
from fedul.algorithms.base import Update, Weights
from fedul.config import TrainConfig
from fedul.engines.inprocess import InProcess
from fedul.engines.local import Broadcast
from fedul.engines.store import ClientStore, InMemory
from fedul.federation import Federation, Rows, Scaling, UnlabeledSets
from fedul.methods import make_method
from fedul.methods.base import Method
from fedul.models.weights import weights_of
from fedul.priors import Matrix
from fedul.truth import Study, Truth

from ..worlds import random_priors, random_shares

COLUMNS = 3
IMAGE = (1, 6, 5)
HISTORY = [{"held_out_loss": 1.0}]
"""A round as a method's coordinator sees it."""


def random_study(
    seed: int,
    *,
    clients: int = 4,
    classes: int = 3,
    rows: tuple[int, int] = (3, 40),
    sets: tuple[int, int] = (1, 5),
    shape: tuple[int, ...] = (COLUMNS,),
    shared: bool = False,
    precision: torch.dtype = torch.float64,
) -> Study:
    """Clients of different rows, sets and classes, with inputs of their own or rows of the same.

    Labels are as good as any: they are drawn without a look at the rows.
    """
    generator = np.random.default_rng(seed)
    source = random_inputs(generator, (60, *shape), precision)
    made, labels = [], {}
    for c in range(clients):
        count = int(generator.integers(rows[0], rows[1] + 1))
        tables = int(generator.integers(sets[0], min(sets[1], count) + 1))
        inputs = source if shared else random_inputs(generator, (count, *shape), precision)
        index = np.sort(generator.choice(len(inputs), count, replace=False))
        numbers = generator.permutation(np.arange(count) % tables)
        kept = Rows(torch.from_numpy(index), torch.from_numpy(numbers))
        held_out = Rows(*[torch.zeros(0, dtype=torch.int64)] * 2)
        priors = some_priors(generator, tables, classes, every=c == 0)
        made.append(UnlabeledSets(f"client-{c}", inputs, kept, held_out, priors))
        labels[f"client-{c}"] = generator.integers(classes, size=count)
    scaling = Scaling(2.0, -0.5) if precision.is_floating_point else Scaling(1 / 128, -1.0)
    federation = Federation(made, "abcd"[:classes], random_shares(generator, classes), scaling)
    return Study(federation, Truth(source, np.zeros(60, np.int64), np.zeros(60, np.int64), labels, {}))


def random_inputs(generator: np.random.Generator, shape: tuple[int, ...], precision: torch.dtype) -> Tensor:
    if precision.is_floating_point:
        return torch.from_numpy(generator.normal(size=shape)).to(precision)
    return torch.from_numpy(generator.integers(256, size=shape)).to(precision)


def some_priors(generator: np.random.Generator, sets: int, classes: int, *, every: bool) -> Matrix:
    """Some of them zero; unless every class must be there, one may be missing at the client."""
    priors = random_priors(generator, sets, classes, zeros=0.0 if every else 0.3)
    if not every and classes > 2 and generator.random() < 0.5:
        missing = generator.integers(classes)
        priors[:, missing] = 0
        priors[:, missing - 1] += 1e-3
    return priors / priors.sum(axis=1, keepdims=True)


def dense(shape: tuple[int, ...] = (COLUMNS,), classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    inputs = int(np.prod(shape))
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, classes)).double()


class Residual(nn.Module):
    """A convolution, and a dense layer that is added to what it is given."""

    def __init__(self, shape: tuple[int, ...] = IMAGE, classes: int = 3) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(shape[0], 2, 3, padding=1)
        self.beside = nn.Linear(2 * shape[1] * shape[2], 2 * shape[1] * shape[2])
        self.last = nn.Linear(2 * shape[1] * shape[2], classes)

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.convolution(inputs).tanh().flatten(1)
        return self.last(found + self.beside(found).tanh())


def residual(shape: tuple[int, ...] = IMAGE, classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return Residual(shape, classes).double()


@dataclass
class Ran:
    """What rounds came to."""

    weights: Weights
    updates: list[Update]
    kept: dict[str, Weights]


@dataclass(frozen=True, eq=False)
class Case:
    """A federation with all that is trained on it; participants are those of each round, none meaning all."""

    study: Study
    method: tuple[str, Mapping[str, Any]] = ("fedul", {})
    algorithm: tuple[str, Mapping[str, Any]] = ("fedavg", {})
    model: Callable[[], nn.Module] = dense
    settings: Mapping[str, Any] = field(default_factory=dict)
    participants: Sequence[Sequence[str]] = ((), (), ())
    store: Callable[[], ClientStore] = InMemory

    def __repr__(self) -> str:
        rows = [len(client.train) for client in self.study.federation.clients]
        return f"{self.method} under {self.algorithm} with {self.settings}, rows {rows}, {self.participants}"

    @property
    def names(self) -> list[str]:
        return sorted(client.name for client in self.study.federation.clients)

    def made_method(self) -> Method:
        return make_method(*self.method, self.study.truth)

    def engine(self, store: ClientStore | None = None, **settings: Any) -> InProcess:
        config = TrainConfig(**{"batch_size": 8, "learning_rate": 0.05, **self.settings, **settings})
        algorithm = make_algorithm(*self.algorithm)
        return InProcess(self.study.federation, self.made_method(), algorithm, self.model(), config, store)

    def stacked(self, **settings: Any) -> Ran:
        store = self.store()
        engine = self.engine(store, engine_mode="stacked", **settings)
        assert engine.layout.stacked, "this network is not stacked"
        return self.ran(engine, store)

    def loop(self, **settings: Any) -> Ran:
        store = self.store()
        return self.ran(self.engine(store, engine_mode="loop", **settings), store)

    def ran(self, engine: InProcess, store: ClientStore) -> Ran:
        """Three rounds with all that clients sent and kept."""
        method, algorithm = self.made_method(), make_algorithm(*self.algorithm)
        weights: Weights = copied(weights_of(self.model()))
        state: Weights = {}
        sent: list[Update] = []
        for number, some in enumerate(self.participants, 1):
            directive = method.coordinate(HISTORY * (number - 1))
            broadcast = Broadcast(number, weights, algorithm.sent(state), directive)
            updates = [settled(update) for update in engine.train(broadcast, some or self.names)]
            weights, state = algorithm.aggregate(weights, state, updates, len(self.names))
            sent += updates
        return Ran(weights, sent, {name: store.read(name) for name in self.names})


def with_layout(engine: InProcess, together: int) -> InProcess:
    """The engine with so many clients in a stack."""
    engine.layout = replace(engine.layout, together=together)
    return engine


def copied(weights: Weights) -> Weights:
    return {name: tensor.clone() for name, tensor in weights.items()}


def settled(update: Update) -> Update:
    """The update, which stays valid when the next one is asked for."""
    delta, buffers, message = (copied(group) for group in (update.delta, update.buffers, update.message))
    return replace(update, delta=delta, buffers=buffers, message=message)


def assert_alike(one: Ran, other: Ran, tolerance: float = 1e-9) -> None:
    """All is the same but for rounding, relative to the largest weight."""
    scale = max(float(tensor.abs().max()) for tensor in other.weights.values())
    assert_near(one.weights, other.weights, tolerance * scale)
    assert [(u.client, u.rows, u.steps) for u in one.updates] == [(u.client, u.rows, u.steps) for u in other.updates]
    for ours, theirs in zip(one.updates, other.updates, strict=True):
        assert_near(ours.delta, theirs.delta, tolerance * scale)
        assert_near(ours.buffers, theirs.buffers, tolerance * scale)
        assert_near(ours.message, theirs.message, tolerance * scale)
        assert abs(ours.loss - theirs.loss) <= tolerance * max(1.0, abs(theirs.loss))
    assert one.kept.keys() == other.kept.keys()
    for name in one.kept:
        assert_near(one.kept[name], other.kept[name], tolerance * scale)


def assert_near(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert bool(tensor.isfinite().all()), name
        assert float((found[name] - tensor).abs().max()) <= tolerance, name
