"""Three rounds of any method under any algorithm, vectorized or in a loop, and the comparison of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from fedul.algorithms import make_algorithm
from fedul.config import TrainConfig
from fedul.core import RoundMetrics, Study, Update, Weights
from fedul.engines.base import Broadcast
from fedul.engines.client_store import ClientStore, MemoryStore
from fedul.engines.simulation.engine import SimulationEngine
from fedul.methods import make_method
from fedul.methods.base import Method

from ...factories import seeded_network
from ...runs import copy_update, copy_weights

HISTORY = [RoundMetrics(1, 1.0, 2, held_out_loss=1.0)]
"""One earlier round, from which a method computes its directive."""


def table_network() -> nn.Module:
    """Return a network for three columns and three classes."""
    return seeded_network((3,), 3)


@dataclass
class Result:
    """Weights after several rounds, with all updates and the last client states."""

    weights: Weights
    updates: list[Update]
    client_states: dict[str, Weights]


@dataclass(frozen=True, eq=False)
class Case:
    """A study with a method, algorithm, network and settings; an empty list of participants means all clients."""

    study: Study
    method: tuple[str, Mapping[str, Any]] = ("fedul", {})
    algorithm: tuple[str, Mapping[str, Any]] = ("fedavg", {})
    model: Callable[[], nn.Module] = table_network
    settings: Mapping[str, Any] = field(default_factory=dict)
    participants: Sequence[Sequence[str]] = ((), (), ())
    store: Callable[[], ClientStore] = MemoryStore

    def __repr__(self) -> str:
        rows = [len(client.train) for client in self.study.federation.clients]
        return f"{self.method} under {self.algorithm} with {self.settings}, rows {rows}, {self.participants}"

    @property
    def names(self) -> list[str]:
        return sorted(client.name for client in self.study.federation.clients)

    def build_method(self) -> Method:
        return make_method(*self.method, self.study.truth)

    def engine(self, store: ClientStore | None = None, **settings: Any) -> SimulationEngine:
        config = TrainConfig(**{"batch_size": 8, "learning_rate": 0.05, **self.settings, **settings})
        algorithm = make_algorithm(*self.algorithm)
        return SimulationEngine(self.study.federation, self.build_method(), algorithm, self.model(), config, store)

    def vectorized(self, **settings: Any) -> Result:
        store = self.store()
        engine = self.engine(store, engine_mode="vectorized", **settings)
        assert engine.layout.vectorized, "this network is not vectorized"
        return self.run(engine, store)

    def loop(self, **settings: Any) -> Result:
        store = self.store()
        return self.run(self.engine(store, engine_mode="loop", **settings), store)

    def run(self, engine: SimulationEngine, store: ClientStore) -> Result:
        """Return the result of the rounds, with all updates and client states."""
        method, algorithm = self.build_method(), make_algorithm(*self.algorithm)
        weights: Weights = copy_weights(self.model())
        state: Weights = {}
        sent: list[Update] = []
        for number, names in enumerate(self.participants, 1):
            directive = method.directive(HISTORY * (number - 1))
            broadcast = Broadcast(number, weights, algorithm.broadcast(state), directive)
            updates = [copy_update(update) for update in engine.train(broadcast, names or self.names)]
            weights, state = algorithm.aggregate(weights, state, updates, len(self.names))
            sent += updates
        return Result(weights, sent, {name: store.read(name) for name in self.names})


def with_layout(engine: SimulationEngine, clients: int) -> SimulationEngine:
    """Return the engine with another number of clients in a batch."""
    engine.layout = replace(engine.layout, batch_clients=clients)
    return engine


def assert_same_result(one: Result, other: Result, tolerance: float = 1e-9) -> None:
    """Assert that results are the same up to rounding, relative to the largest weight."""
    scale = max(float(tensor.abs().max()) for tensor in other.weights.values())
    assert_near(one.weights, other.weights, tolerance * scale)
    assert [(u.client, u.rows, u.steps) for u in one.updates] == [(u.client, u.rows, u.steps) for u in other.updates]
    for ours, theirs in zip(one.updates, other.updates, strict=True):
        assert_near(ours.delta, theirs.delta, tolerance * scale)
        assert_near(ours.buffers, theirs.buffers, tolerance * scale)
        assert_near(ours.message, theirs.message, tolerance * scale)
        assert abs(ours.loss - theirs.loss) <= tolerance * max(1.0, abs(theirs.loss))
    assert one.client_states.keys() == other.client_states.keys()
    for name in one.client_states:
        assert_near(one.client_states[name], other.client_states[name], tolerance * scale)


def assert_near(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float) -> None:
    """Assert that tensors have the same names, types and shapes, and values within the tolerance."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert bool(tensor.isfinite().all()), name
        assert float((found[name] - tensor).abs().max()) <= tolerance, name
