"""The in-process engine: clients train one after another or stacked, on one worker or on several threads.

Data is indexed, not copied, and updates are handed on as they come: memory does not grow with the number of clients.
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
from typing import Any, Protocol

import torch
from torch import nn

from fedul.algorithms.base import Algorithm, Update, Weights
from fedul.config import TrainConfig
from fedul.engines.cohort import Cohorts
from fedul.engines.layers import stacked_forward
from fedul.engines.layout import layout_of, put_channels_last
from fedul.engines.local import Broadcast, Job, Result, Worker
from fedul.engines.stacked import StackedWorker
from fedul.engines.store import ClientStore, InMemory
from fedul.federation import Federation, Rows
from fedul.methods.base import Method, Task
from fedul.methods.fedul import HeldOut, HeldOutRows, set_task
from fedul.models.weights import load_weights


class Engine(Protocol):
    """Where clients run."""

    @property
    def judges_along(self) -> bool:
        """Whether asking clients is dear, so that a round is judged by those that train the next one."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """The clients that can take part in the next round, in a fixed order."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """What a user should know of how they will run, in sentences."""
        ...

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        """Updates of these clients, in this order, all from the same weights."""
        ...

    def held_out(self, weights: Weights) -> Mapping[str, HeldOut]:
        """-log Q over held-out rows, by who judged, in a fixed order; clients that always judge together are one."""
        ...

    def noted(self) -> Mapping[str, Any]:
        """What is to be told in a round's line of figures beside them, since this was last asked."""
        ...


class InProcess:
    """Runs clients in this process."""

    judges_along = False

    def __init__(
        self,
        federation: Federation,
        method: Method,
        algorithm: Algorithm,
        module: nn.Module,
        config: TrainConfig,
        store: ClientStore | None = None,
    ) -> None:
        self._method, self._module, self._config = method, module, config
        self._store = store or InMemory()
        self.layout = layout_of(federation, method, module, config)
        self._federation = federation = pooled(federation) if self.layout.stacked else federation
        self._clients = {client.name: client for client in federation.clients}
        self._names = sorted(self._clients)
        self._tasks: dict[str, Task] = {}
        self._task(federation.clients[0].name)  # what a method refuses, it refuses before the first round
        put_channels_last(module, federation.input_shape)
        cohorts = Cohorts(every_round=config.participation == 1)
        self._workers: list[Worker | StackedWorker] = []
        for one in [module, *(copy.deepcopy(module) for _ in range(self.layout.workers - 1))]:
            forward = stacked_forward(one, federation.input_shape) if self.layout.stacked else None
            if forward is None:
                self._workers.append(Worker(one, method, algorithm, config))
            else:
                self._workers.append(StackedWorker(one, forward, method, algorithm, config, cohorts))
        judges = sorted((c for c in federation.clients if len(c.held_out)), key=lambda c: c.name)
        self._held_out = HeldOutRows(set_task(client, client.held_out, federation) for client in judges)

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @property
    def remarks(self) -> Sequence[str]:
        return self.layout.remarks

    def noted(self) -> Mapping[str, Any]:
        return {}

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        generator = torch.random.get_rng_state()
        groups = self.layout.groups(clients)
        try:
            with closing(self._results(broadcast, groups)) as every:
                for update, kept in chain.from_iterable(every):
                    if kept:
                        self._store.write(update.client, broadcast.round, kept)
                    yield update
        finally:
            torch.random.set_rng_state(generator)
            torch.set_num_threads(torch.get_num_threads())  # part of what workers set holds for all threads

    def _results(self, broadcast: Broadcast, groups: Sequence[Sequence[str]]) -> Generator[list[Result]]:
        """Results of the groups in their order, computed by all workers."""
        if len(self._workers) == 1 or len(groups) == 1:
            for group in groups:
                yield self._workers[0].train(self._jobs(group), broadcast, lambda: False)
            return
        stopped = threading.Event()
        idle = deque(self._workers)  # appended to and popped from by several threads, which a deque allows

        def trained(jobs: Sequence[Job]) -> list[Result]:
            torch.set_num_threads(self.layout.threads)  # of this very thread
            worker = idle.pop()
            try:
                return worker.train(jobs, broadcast, stopped.is_set)
            finally:
                idle.append(worker)

        running: deque[Future[list[Result]]] = deque()
        with ThreadPoolExecutor(len(self._workers), thread_name_prefix="fedul") as pool:
            try:
                for group in groups:
                    running.append(pool.submit(trained, self._jobs(group)))
                    if len(running) > len(self._workers):  # one more than can run: no worker waits for its next group
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            finally:  # whatever ended this, workers stop at their next step
                stopped.set()
                for future in running:
                    future.cancel()

    def _jobs(self, names: Sequence[str]) -> list[Job]:
        device = next(self._module.parameters()).device
        return [
            Job(name, self._task(name), {key: t.to(device) for key, t in self._store.read(name).items()})
            for name in names
        ]

    def _task(self, name: str) -> Task:
        """A client's task; where few of many clients take part, it is made when it is needed, and not kept."""
        task = self._tasks.get(name)
        if task is None:
            task = self._method.task(self._clients[name], self._federation)
            if self._config.participation == 1:
                self._tasks[name] = task
        return task

    @torch.no_grad()
    def held_out(self, weights: Weights) -> Mapping[str, HeldOut]:
        load_weights(self._module, weights)
        self._module.eval()
        return {"everyone": self._held_out.judged(self._module)}


POOLED_BYTES = 2**28
"""Rows of all clients are copied into one place where they are no more than this: gathered from a thousand places, they
cost more than the arithmetic."""


def pooled(federation: Federation) -> Federation:
    """The same federation with all rows in one tensor, if they are few."""
    sources = {id(client.inputs): client.inputs for client in federation.clients}
    every = list(sources.values())
    if len(every) == 1 or sum(t.nbytes for t in every) > POOLED_BYTES or len({t.dtype for t in every}) > 1:
        return federation
    together = torch.cat(every)
    starts = dict(zip(sources, accumulate((len(t) for t in every), initial=0), strict=False))
    clients = []
    for client in federation.clients:
        start = starts[id(client.inputs)]
        train, held_out = (Rows(rows.index + start, rows.sets) for rows in (client.train, client.held_out))
        clients.append(replace(client, inputs=together, train=train, held_out=held_out))
    return replace(federation, clients=clients)
