"""The simulation engine: all clients train in this process, in a loop or vectorized, on one worker or several threads.

Rows are indexed, not copied, and updates are yielded one by one, so memory does not grow with the number of clients.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import accumulate, chain

import torch
from torch import Tensor, nn

from fedul._utils.allocator import keep_freed_memory
from fedul.algorithms.base import Algorithm, declared_update
from fedul.config import TrainConfig
from fedul.core import Federation, Rows, Update, Weights, compute_dtype
from fedul.engines.base import Broadcast, EngineMetrics
from fedul.engines.client_store import ClientStore, MemoryStore
from fedul.engines.held_out import HeldOutEvaluator, HeldOutSums, Reference
from fedul.engines.simulation.client_batch import ClientBatch
from fedul.engines.simulation.layout import choose_layout, keeps_freed_memory, use_channels_last
from fedul.engines.simulation.local_steps import ClientJob, ClientOutcome, LoopWorker
from fedul.engines.simulation.precision import choose_precision
from fedul.engines.simulation.vectorized import VectorizedWorker
from fedul.engines.simulation.vectorized_forward import vectorized_forward
from fedul.errors import FedulError
from fedul.methods.base import Method
from fedul.methods.fedul import set_task
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
        self._clients = {client.name: client for client in federation.clients}
        self.names: Sequence[str] = sorted(self._clients)
        self.warnings = self.layout.warnings
        self._tasks: dict[str, Task] = {}
        self._task(federation.clients[0].name)  # a method refuses unsuitable data before the first round
        use_channels_last(module, federation.input_shape)
        if keeps_freed_memory(module):
            keep_freed_memory()
        batches: dict[tuple[str, ...], ClientBatch] = {}
        self._workers: list[LoopWorker | VectorizedWorker] = []
        for one in [module, *(copy.deepcopy(module) for _ in range(self.layout.workers - 1))]:
            forward = vectorized_forward(one, federation.input_shape) if self.layout.vectorized else None
            if forward is None:
                self._workers.append(LoopWorker(one, method, algorithm, config, self.precision))
            else:
                self._workers.append(VectorizedWorker(one, forward, method, algorithm, config, batches))
        evaluators = sorted((c for c in federation.clients if len(c.held_out)), key=lambda c: c.name)
        self._held_out = HeldOutEvaluator(set_task(client, client.held_out, federation.spec) for client in evaluators)
        self._known_logits: list[tuple[Mapping[str, Tensor], Tensor]] = []

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
            task = self._method.task(self._clients[name], self._federation.spec)
            if self._config.participation == 1:
                self._tasks[name] = task
        return task

    @torch.no_grad()
    def evaluate_held_out(self, weights: Weights, reference: Reference | None = None) -> Mapping[str, HeldOutSums]:
        if reference is None:
            sums = self._held_out.sums(self._held_out_logits(weights))
        else:
            other = self._held_out_logits(reference.weights)
            sums = self._held_out.sums(self._held_out_logits(weights), other, reference.temperature)
        return {"all clients": sums}

    def _held_out_logits(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Return the logits of all held-out rows. Those of the last two models are kept: one is often the reference."""
        same = [each for each in self._known_logits if all(each[0][name] is t for name, t in weights.items())]
        if not same:
            load_weights(self._module, dict(weights))
            self._module.eval()
            same = [(weights, self._held_out.logits(in_precision(self._module, self.precision)))]
        self._known_logits = [*(each for each in self._known_logits if each is not same[0]), same[0]][-2:]
        return same[0][1]


POOL_BYTES = 2**28
"""Largest size of inputs that are copied into one tensor: gathering rows from many tensors is slower than training."""


def pool_inputs(federation: Federation) -> Federation:
    """Return the federation with the inputs of all clients in one tensor, if they are small."""
    sources = {id(client.inputs): client.inputs for client in federation.clients}
    tensors = list(sources.values())
    if len(tensors) == 1 or sum(t.nbytes for t in tensors) > POOL_BYTES or len({t.dtype for t in tensors}) > 1:
        return federation
    pooled = torch.cat(tensors)
    starts = dict(zip(sources, accumulate((len(t) for t in tensors), initial=0), strict=False))
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
    tensors = {id(client.inputs): client.inputs for client in federation.clients}
    moved = {key: t.to(device, t.dtype if compute_dtype(t) == precision else precision) for key, t in tensors.items()}
    if all(moved[id(client.inputs)] is client.inputs for client in federation.clients):
        return federation
    return replace(federation, clients=[replace(c, inputs=moved[id(c.inputs)]) for c in federation.clients])
