"""The simulation engine: all clients train in this process, in a loop or vectorized, on one worker or several threads.

Rows are indexed, not copied, and updates are yielded one by one, so memory does not grow with the number of clients.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor, nn

from fedul._utils.hardware import available_cores, torch_threads
from fedul.algorithms.base import Algorithm, declared_update
from fedul.config import TrainConfig
from fedul.core import Federation, Rows, Update, Weights, compute_dtype
from fedul.engines.base import Broadcast, EngineMetrics
from fedul.engines.client_store import ClientStore, MemoryStore
from fedul.engines.held_out import HeldOutSums, Reference
from fedul.engines.held_out_evaluator import HeldOutEvaluator, Predictions
from fedul.engines.simulation.client_batch import ClientBatch
from fedul.engines.simulation.evaluated_rows import held_out_rows
from fedul.engines.simulation.layout import choose_layout, use_channels_last
from fedul.engines.simulation.local_steps import ClientJob, ClientOutcome, LoopWorker
from fedul.engines.simulation.precision import choose_precision
from fedul.engines.simulation.vectorized import VectorizedWorker
from fedul.engines.simulation.vectorized_forward import vectorized_forward
from fedul.errors import FedulError
from fedul.methods.base import Method
from fedul.methods.task import Task
from fedul.models.mixed_precision import in_precision
from fedul.models.weights import load_weights
from fedul.privacy.update_chain import UpdateChain, UpdateContext, build_update_chain


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
    ) -> None:
        self._method, self._module, self._config = method, module, config
        self._store = store or MemoryStore()
        self._chain = build_update_chain(config) if update_chain is None else update_chain
        self._update_spec = self._chain.declare(declared_update(algorithm, module))
        self.precision = choose_precision(config.precision, module, federation.input_shape)
        self.layout = choose_layout(federation, method, module, config, self.precision)
        self._federation = federation = pool_inputs(federation) if self.layout.vectorized else federation
        self.names: Sequence[str] = sorted(federation.columns.names)
        self.warnings = self.layout.warnings
        self._tasks: dict[str, Task] = {}
        self._task(federation.columns.names[0])  # a method refuses unsuitable data before the first round
        use_channels_last(module, federation.input_shape)
        batches: dict[tuple[str, ...], ClientBatch] = {}
        self._workers: list[LoopWorker | VectorizedWorker] = []
        for one in [module, *(copy.deepcopy(module) for _ in range(self.layout.workers - 1))]:
            forward = vectorized_forward(one, federation.input_shape) if self.layout.vectorized else None
            if forward is None:
                self._workers.append(LoopWorker(one, method, algorithm, config, self.precision))
            else:
                self._workers.append(VectorizedWorker(one, forward, method, algorithm, config, batches))
        self._held_out = HeldOutEvaluator(held_out_rows(federation, config), config.seed)
        self._known: list[tuple[Mapping[str, Tensor], Predictions]] = []

    def collect_metrics(self) -> EngineMetrics:
        return EngineMetrics()

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        generator_state = torch.random.get_rng_state()
        groups = self.layout.groups(clients)
        try:
            with closing(self._train_groups(broadcast, groups)) as outcomes:
                for update, client_state in chain.from_iterable(outcomes):
                    context = UpdateContext(update.client, broadcast.round, self._config.seed)
                    update = self._chain.apply(update, context)
                    if problem := self._update_spec.problem(update):
                        raise FedulError(f"the update of client '{context.client}' is not as declared: {problem}.")
                    self._store.write(context.client, broadcast.round, client_state)
                    yield update
        finally:
            torch.random.set_rng_state(generator_state)
            torch.set_num_threads(torch.get_num_threads())  # workers change a part of it for all threads

    def _train_groups(self, broadcast: Broadcast, groups: Sequence[Sequence[str]]) -> Generator[list[ClientOutcome]]:
        """Yield the outcomes of the groups in their order, computed by all workers."""
        if len(self._workers) == 1 or len(groups) == 1:
            for group in groups:
                yield self._workers[0].train(self._jobs(group), broadcast, lambda: False)
            return
        stopped = threading.Event()
        idle = deque(self._workers)  # thread-safe

        def train_group(jobs: Sequence[ClientJob]) -> list[ClientOutcome]:
            torch.set_num_threads(self.layout.threads)  # for this thread
            worker = idle.pop()
            try:
                return worker.train(jobs, broadcast, stopped.is_set)
            finally:
                idle.append(worker)

        running: deque[Future[list[ClientOutcome]]] = deque()
        with ThreadPoolExecutor(len(self._workers), thread_name_prefix="fedul") as pool:
            try:
                for group in groups:
                    running.append(pool.submit(train_group, self._jobs(group)))
                    if len(running) > len(self._workers):  # one more than can run, so that no worker is idle
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            finally:  # in any case, workers stop before their next step
                stopped.set()
                for future in running:
                    future.cancel()

    def _jobs(self, names: Sequence[str]) -> list[ClientJob]:
        device = next(self._module.parameters()).device
        return [
            ClientJob(name, self._task(name), {key: t.to(device) for key, t in self._store.read(name).items()})
            for name in names
        ]

    def _task(self, name: str) -> Task:
        """Return the task of a client; it is kept if all clients take part in every round."""
        task = self._tasks.get(name)
        if task is None:
            task = self._method.task(self._federation.columns.named(name), self._federation.spec)
            if self._config.participation == 1:
                self._tasks[name] = task
        return task

    @torch.no_grad()
    def evaluate_held_out(self, weights: Weights, reference: Reference | None = None) -> Mapping[str, HeldOutSums]:
        threads = torch_threads(self._config.threads or available_cores())
        with threads if self._held_out.gains_from_threads else nullcontext():
            if reference is None:
                sums = self._held_out.compare(self._predictions(weights))
            else:
                other = self._predictions(reference.weights, reference.temperature)
                sums = self._held_out.compare(self._predictions(weights), other, reference.temperature)
        return {"all clients": sums}

    def _predictions(self, weights: Mapping[str, Tensor], temperature: float | None = None) -> Predictions:
        """Return predictions for held-out rows. Those of the last two models are kept: one is often the reference."""
        same = [
            (known, found)
            for known, found in self._known
            if all(known[name] is t for name, t in weights.items()) and found.fits(temperature)
        ]
        if not same:
            load_weights(self._module, dict(weights))
            self._module.eval()
            predict = in_precision(self._module, self.precision)
            same = [(weights, self._held_out.predictions(predict, temperature))]
        self._known = [*(each for each in self._known if each is not same[0]), same[0]][-2:]
        return same[0][1]


POOL_BYTES = 2**28
"""Largest size of inputs that are copied into one tensor: gathering rows from many tensors is slower than training."""


def pool_inputs(federation: Federation) -> Federation:
    """Return the federation with the inputs of all clients in one tensor, if they are small."""
    tensors = list(federation.columns.sources)
    if len(tensors) == 1 or sum(t.nbytes for t in tensors) > POOL_BYTES or len({t.dtype for t in tensors}) > 1:
        return federation
    pooled = torch.cat(tensors)
    starts = dict(zip(map(id, tensors), accumulate((len(t) for t in tensors), initial=0), strict=False))
    clients = []
    for client in federation.clients:
        start = starts[id(client.inputs)]
        train, held_out = (Rows(rows.index + start, rows.sets) for rows in (client.train, client.held_out))
        clients.append(replace(client, inputs=pooled, train=train, held_out=held_out))
    return replace(federation, clients=clients)


def move_to_device(federation: Federation, device: torch.device, precision: torch.dtype) -> Federation:
    """Return the federation with its inputs on a device, in a dtype that scales to the precision of the network.

    Inputs that clients share stay shared. If nothing has to be moved, the result is the federation itself, so that a
    memory-mapped file is not read.
    """
    moved: Any = federation.columns.moved(
        lambda t: t.to(device, t.dtype if compute_dtype(t) == precision else precision)
    )
    return federation if moved is federation.clients else replace(federation, clients=moved)
