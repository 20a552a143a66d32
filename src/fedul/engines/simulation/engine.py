"""The simulation engine: all clients train in this process, in a loop or vectorized, on one worker or several threads.

Rows are indexed, not copied, and updates are yielded one by one, so memory does not grow with the number of clients.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fedul._utils.allocator import keep_freed_memory
from fedul._utils.hardware import available_cores, torch_threads
from fedul._utils.randomness import keep_layer_random_states
from fedul.algorithms.base import Algorithm, declared_update
from fedul.config import TrainConfig
from fedul.core import Federation, RoundSums, Update, Weights
from fedul.engines.base import Broadcast, EngineMetrics, participants
from fedul.engines.client_store import ClientStore, MemoryStore
from fedul.engines.held_out import HeldOutSums, Reference
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.engines.secure_sums import check_secure_aggregation
from fedul.engines.simulation.client_batch import ClientBatch
from fedul.engines.simulation.evaluated_rows import held_out_rows
from fedul.engines.simulation.layout import choose_layout, keeps_freed_memory, use_channels_last
from fedul.engines.simulation.local_steps import ClientJob, ClientOutcome, LoopWorker
from fedul.engines.simulation.precision import run_precision
from fedul.engines.simulation.shared_inputs import SharedInputs
from fedul.engines.simulation.vectorized import VectorizedWorker
from fedul.engines.simulation.vectorized_forward import vectorized_forward
from fedul.engines.simulation.worker_threads import train_groups
from fedul.errors import FedulError
from fedul.methods.base import Method
from fedul.methods.checked import checked_task
from fedul.methods.task import Task
from fedul.models.mixed_precision import in_precision
from fedul.models.weights import load_weights
from fedul.privacy.ledger import Ledger
from fedul.privacy.row_accountant import RowAccountant
from fedul.privacy.update_chain import UpdateChain, UpdateContext, build_update_chain

if TYPE_CHECKING:
    from fedul.engines.simulation.secure_clients import SecureClients


class SimulationEngine:
    """Runs clients in this process.

    Parameters
    ----------
    federation : Federation
        The clients and their data.
    method, algorithm, module, config
        What clients minimise, how they correct local steps, the network, and the configuration.
    store : ClientStore, optional
        State of the clients between rounds; by default in memory.
    update_chain : UpdateChain, optional
        Steps that every update passes through; by default those of the configuration.
    shared_inputs : SharedInputs, optional
        What several engines on the same rows share; by default nothing.
    ledger : Ledger, optional
        What the rows of each client have paid for, if they are protected; by default in memory.
    """

    piggybacks_evaluation = False

    def __init__(
        self,
        federation: Federation,
        method: Method,
        algorithm: Algorithm,
        module: nn.Module,
        config: TrainConfig,
        store: ClientStore | None = None,
        update_chain: UpdateChain | None = None,
        shared_inputs: SharedInputs | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.method, self.algorithm, self.module, self.config = method, algorithm, module, config
        self._store = store or MemoryStore()
        self._chain = build_update_chain(config) if update_chain is None else update_chain
        self._update_spec = self._chain.declare(declared_update(algorithm, module))
        self.precision = run_precision(config, module, federation.input_shape)
        self.layout = choose_layout(federation, method, module, config, self.precision)
        self._thread_choice = self.layout.thread_choice()
        shared = SharedInputs() if shared_inputs is None else shared_inputs
        self.federation = federation = shared.pool(federation) if self.layout.vectorized else federation
        self.names: Sequence[str] = sorted(federation.columns.names)
        self.warnings = self.layout.warnings
        self._tasks: dict[str, Task] = {}
        self.accountant = self._make_accountant(ledger or Ledger()) if config.protects_rows else None
        self._task(federation.columns.names[0])  # a method refuses unsuitable data before the first round
        use_channels_last(module, federation.input_shape)
        if keeps_freed_memory(module, min(self.layout.batch_clients, config.participants(len(self.names)))):
            keep_freed_memory()
        batches: dict[tuple[int, ...], ClientBatch] = {}
        self._workers: list[LoopWorker | VectorizedWorker] = []
        for one in [module, *(copy.deepcopy(module) for _ in range(self.layout.workers - 1))]:
            forward = vectorized_forward(one, federation.input_shape) if self.layout.vectorized else None
            if forward is None:
                self._workers.append(LoopWorker(one, method, algorithm, config, self.precision))
            else:
                self._workers.append(VectorizedWorker(one, forward, method, algorithm, config, batches))
        check_secure_aggregation(algorithm, config, config.participants(len(self.names)))
        self._secure: SecureClients | None = None
        self._held_out: Any  # the methods are the same, predictions are opaque
        if config.secure_aggregation:
            from fedul.engines.simulation.secure_clients import SecureClients
            from fedul.engines.simulation.secure_held_out import SecureHeldOut

            self._secure = SecureClients(algorithm, config, self._update_spec, _rows(federation))
            self._held_out = SecureHeldOut(federation, config.seed, self._secure)
        else:
            self._held_out = HeldOutEvaluator(held_out_rows(federation, config), config.seed)
        self._known: list[tuple[Mapping[str, Tensor], Any]] = []

    def collect_metrics(self) -> EngineMetrics:
        return EngineMetrics()

    @property
    def epsilon(self) -> Mapping[str, float]:
        return {} if self.accountant is None else self.accountant.epsilon

    def begin_round(self, number: int, clients: Sequence[str]) -> None:
        if self.accountant is not None:
            self.accountant.charge_round(number, clients)

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update] | RoundSums:
        return self.answer(self._updates(broadcast, clients), broadcast, len(clients))

    def answer(self, updates: Iterator[Update], broadcast: Broadcast, count: int) -> Iterator[Update] | RoundSums:
        """Return the updates of a round as a run receives them: one by one, or as sums under secure aggregation."""
        return updates if self._secure is None else self._secure.sum_updates(updates, broadcast, count)

    def _updates(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        groups = [partial(self.jobs, group) for group in self.layout.groups(clients)]
        device = next(self.module.parameters()).device
        try:
            with (
                keep_layer_random_states(device),
                closing(
                    train_groups(self._workers, self.layout.threads, broadcast, groups, self._thread_choice)
                ) as outcomes,
            ):
                for outcome in chain.from_iterable(outcomes):
                    yield self.finish(outcome, broadcast)
        finally:
            torch.set_num_threads(torch.get_num_threads())  # workers change a part of it for all threads

    def jobs(self, names: Sequence[str], broadcast: Broadcast | None = None) -> list[ClientJob]:
        """Return the jobs of these clients in a round."""
        device = next(self.module.parameters()).device
        made = []
        for name in names:
            state = {key: t.to(device) for key, t in self._store.read(name).items()}
            privacy = None if self.accountant is None else self.accountant.plan(name)
            made.append(ClientJob(name, self._task(name), state, broadcast, privacy))
        return made

    def finish(self, outcome: ClientOutcome, broadcast: Broadcast) -> Update:
        """Store the new state of a client, and return its update as it leaves the client."""
        update, client_state = outcome
        client = update.client
        if self._chain.steps:
            context = UpdateContext(client, broadcast.round, self.config.seed, broadcast.clips)
            update = self._chain.apply(update, context)
        if problem := self._update_spec.problem(update):
            raise FedulError(f"the update of client '{client}' is not as declared: {problem}.")
        self._store.write(client, broadcast.round, client_state)
        return update

    def _make_accountant(self, ledger: Ledger) -> RowAccountant:
        """Return the accountant of the rows, for all rounds of the configuration."""
        config, numbers = self.config, range(1, self.config.rounds + 1)
        rounds = dict.fromkeys(self.names, config.rounds)
        if config.participation < 1:
            rounds = Counter(name for number in numbers for name in participants(self.names, number, config))
        return RowAccountant(config, ledger, self.names, lambda name: len(self._task(name)), rounds)

    def _task(self, name: str) -> Task:
        """Return the task of a client; it is kept if all clients take part in every round."""
        task = self._tasks.get(name)
        if task is None:
            task = checked_task(self.method, self.federation.columns.named(name), self.federation.spec)
            if self.config.participation == 1:
                self._tasks[name] = task
        return task

    @torch.no_grad()
    def evaluate_held_out(self, weights: Weights, reference: Reference | None = None) -> Mapping[str, HeldOutSums]:
        threads = torch_threads(self.config.threads or available_cores())
        with threads if self._held_out.gains_from_threads else nullcontext():
            if reference is None:
                sums = self._held_out.compare(self._predictions(weights))
            else:
                other = self._predictions(reference.weights, reference.temperature)
                sums = self._held_out.compare(self._predictions(weights), other, reference.temperature)
        return {"all clients": sums}

    def _predictions(self, weights: Mapping[str, Tensor], temperature: float | None = None) -> Any:
        """Return predictions for held-out rows. Those of the last two models are kept: one is often the reference."""
        same = [
            (known, found)
            for known, found in self._known
            if all(known[name] is t for name, t in weights.items()) and found.fits(temperature)
        ]
        if not same:
            load_weights(self.module, dict(weights))
            self.module.eval()
            predict = in_precision(self.module, self.precision)
            same = [(weights, self._held_out.predictions(predict, temperature))]
        self._known = [*(each for each in self._known if each is not same[0]), same[0]][-2:]
        return same[0][1]


def _rows(federation: Federation) -> dict[str, int]:
    """Return the rows of every client, held-out ones included."""
    clients = federation.columns
    return dict(zip(clients.names, (clients.train_rows + clients.held_out_rows).tolist(), strict=True))
