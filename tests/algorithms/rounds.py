"""Rounds of the real engine and algorithm, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import Federation, Update, Weights
from fedul.engines.base import Broadcast
from fedul.engines.client_store import ClientStore, MemoryStore
from fedul.engines.held_out import HeldOutSums, Reference
from fedul.engines.simulation.engine import SimulationEngine
from fedul.methods.base import Method
from fedul.methods.fedul import FedUL
from fedul.training import CallbackList, RunContext, RunInfo
from fedul.training.rounds import iterate_rounds
from fedul.training.state import TrainingState
from fedul.training.steps import complete

from ..runs import copy_weights


@dataclass
class Training:
    """Training of a federation with a state that tests can read after every round."""

    federation: Federation
    algorithm: Algorithm
    module: nn.Module
    config: TrainConfig
    method: Method = field(default_factory=FedUL)
    store: ClientStore = field(default_factory=MemoryStore)
    weights: Weights = field(default_factory=dict)
    state: Weights = field(default_factory=dict)
    number: int = 0
    steps: dict[str, int] = field(default_factory=dict)  # of the last update of each client

    def __post_init__(self) -> None:
        self.weights = copy_weights(self.module)
        self.names = sorted(client.name for client in self.federation.clients)
        self.engine = SimulationEngine(
            self.federation, self.method, self.algorithm, self.module, self.config, self.store
        )

    def round(self, names: Sequence[str] | None = None) -> Training:
        """Train one round, with all clients unless some are named."""
        self.number += 1
        broadcast = Broadcast(self.number, self.weights, self.algorithm.broadcast(self.state))
        updates = self._updates(broadcast, names or self.names)
        self.weights, self.state = self.algorithm.aggregate(self.weights, self.state, updates, len(self.names))
        return self

    def rounds(self, count: int) -> Training:
        """Train several rounds with all clients."""
        for _ in range(count):
            self.round()
        return self

    def _updates(self, broadcast: Broadcast, names: Sequence[str]) -> Iterator[Update]:
        for update in self.engine.train(broadcast, names):
            self.steps[update.client] = update.steps
            yield update

    def client_state(self, name: str) -> Weights:
        """Return the state of the algorithm at a client."""
        return {key.removeprefix("algorithm/"): tensor for key, tensor in self.store.read(name).items()}


class RecordingEngine:
    """An engine that records the participants of every round."""

    def __init__(self, engine: SimulationEngine) -> None:
        self.engine, self.participants = engine, list[list[str]]()
        self.names, self.warnings, self.collect_metrics = engine.names, engine.warnings, engine.collect_metrics
        self.piggybacks_evaluation = engine.piggybacks_evaluation
        self.epsilon, self.begin_round = engine.epsilon, engine.begin_round

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        self.participants.append(list(clients))
        return self.engine.train(broadcast, clients)

    def evaluate_held_out(self, weights: Weights, reference: Reference | None = None) -> Mapping[str, HeldOutSums]:
        return self.engine.evaluate_held_out(weights, reference)


def sampled_run(training: Training, rounds: int, participation: float) -> tuple[TrainingState, list[list[str]]]:
    """Return the state after a run with partial participation, and the participants of each round."""
    engine = RecordingEngine(training.engine)
    context = RunContext(
        training.federation.spec,
        None,
        training.module,
        "custom",
        training.method,
        training.algorithm,
        engine,
        training.store,
    )
    config = replace(training.config, rounds=rounds, participation=participation, select="last")
    return complete(iterate_rounds(context, config, None, None, CallbackList(), RunInfo(0))), engine.participants


def aggregate_rounds(algorithm: Algorithm, rounds: Sequence[Sequence[Update]], start: Weights) -> Weights:
    """Return the weights after rounds with these updates."""
    weights, state = start, Weights()
    for updates in rounds:
        weights, state = algorithm.aggregate(weights, state, updates, len(updates))
    return weights
