"""Several runs of the same settings as one: the clients of a round of each run train together, vectorized.

The runs are on different data, as the folds of a cross-validation are. Clients of small networks train one by one in
about the time of all of them together, and a run of few clients fills no batch. Each client starts from the weights of
its own run, so the result is that of each run alone, up to rounding.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Self

import torch
from torch import Tensor

from fedul._utils.allocator import keep_freed_memory
from fedul.core import PREDICT_BATCH, RoundSums, Update
from fedul.engines.base import Broadcast
from fedul.engines.simulation.client_batch import ClientBatch
from fedul.engines.simulation.engine import SimulationEngine
from fedul.engines.simulation.layout import Layout, choose_layout, keeps_freed_memory
from fedul.engines.simulation.local_steps import ClientJob
from fedul.engines.simulation.vectorized import VectorizedWorker
from fedul.engines.simulation.vectorized_forward import trial_copy, vectorized_forward
from fedul.engines.simulation.worker_threads import train_groups

MAX_RUNS = 16
"""Runs that train together, at most: the data of each takes memory."""
MAX_ROWS = 5_000_000
"""Rows of all runs that train together, at most."""


def joint_runs(engine: SimulationEngine) -> int:
    """Return the number of runs like that of this engine that train together; 1 if they train one by one."""
    columns = engine.federation.columns
    rows = int(columns.train_rows.sum() + columns.held_out_rows.sum())
    if next(engine.module.parameters()).device.type != "cpu" or not _same_in_evaluation(engine):
        return 1
    layout = _layout(engine, 2)
    if not layout.vectorized:
        return 1
    # Beyond one full batch for every worker there is nothing to gain.
    clients = engine.config.participants(len(engine.names))
    full = _layout(engine, MAX_RUNS).workers * layout.batch_clients // clients
    return max(1, min(MAX_RUNS, full, MAX_ROWS // max(rows, 1)))


class JointEngine:
    """Trains the clients of several engines with the same settings.

    Parameters
    ----------
    engines : sequence of SimulationEngine
        The engines, each with the clients of its run.
    """

    def __init__(self, engines: Sequence[SimulationEngine]) -> None:
        self._engines, first = engines, engines[0]
        self._layout = _layout(first, len(engines))
        self._thread_choice = self._layout.thread_choice()
        clients = len(engines) * first.config.participants(len(first.names))
        if keeps_freed_memory(first.module, min(self._layout.batch_clients, clients)):
            keep_freed_memory()
        self._trainable = {name: p.shape for name, p in first.module.named_parameters() if p.requires_grad}
        self._batches: dict[tuple[int, ...], ClientBatch] = {}
        self._active: set[int] = set()
        self._workers: list[_JointWorker] = []
        for _ in range(self._layout.workers):
            worker = _JointWorker.of(first, self._batches)
            if worker is not None:
                self._workers.append(worker)

    @classmethod
    def of(cls, engines: Sequence[SimulationEngine]) -> Self | None:
        """Return the engines as one; None if they cannot train together."""
        first = engines[0]
        parameters = dict(first.module.named_parameters())
        for other in engines[1:]:
            theirs = dict(other.module.named_parameters())
            if not (
                other.method == first.method
                and other.algorithm == first.algorithm
                and other.config == first.config
                and other.federation.scaling == first.federation.scaling
                and {name: p.shape for name, p in theirs.items()} == {name: p.shape for name, p in parameters.items()}
                and all(p.requires_grad or torch.equal(p, theirs[name]) for name, p in parameters.items())
            ):
                return None
        joint = cls(engines) if len(engines) > 1 and joint_runs(first) > 1 else None
        return joint if joint is not None and joint._workers else None

    def train(self, requests: Mapping[int, tuple[Broadcast, Sequence[str]]]) -> dict[int, list[Update]]:
        """Return the updates of the clients of each run, in their order.

        Parameters
        ----------
        requests : mapping of int to tuple
            By number of the engine, what its coordinator sends, and the clients of the round.
        """
        if self._active != set(requests):  # batches of runs that have ended are not needed any more
            self._batches.clear()
            self._active = set(requests)
        alike: dict[Hashable, list[tuple[int, ClientJob]]] = {}  # by what they must have in common
        for number, (broadcast, clients) in requests.items():
            jobs = self._engines[number].jobs(clients, broadcast)
            alike.setdefault(self._key(number, broadcast), []).extend((number, job) for job in jobs)
        groups = [group for each in alike.values() for group in self._layout.groups(each)]
        some = next(iter(requests.values()))[0]  # every job has its own
        work = [partial(_jobs_of, group) for group in groups]
        updates: dict[int, list[Update]] = {number: [] for number in requests}
        try:
            with closing(
                train_groups(self._workers, self._layout.threads, some, work, self._thread_choice)
            ) as outcomes:
                for group, its_outcomes in zip(groups, outcomes, strict=True):
                    for (number, _), outcome in zip(group, its_outcomes, strict=True):
                        updates[number].append(self._engines[number].finish(outcome, requests[number][0]))
        finally:
            torch.set_num_threads(torch.get_num_threads())  # workers change a part of it for all threads
        return updates

    def answer(self, number: int, updates: Sequence[Update], broadcast: Broadcast) -> Iterator[Update] | RoundSums:
        """Return the updates of the clients of one run as it receives them."""
        return self._engines[number].answer(iter(updates), broadcast, len(updates))

    def _key(self, number: int, broadcast: Broadcast) -> Hashable:
        """Return what runs must have in common for their clients to be in one batch."""
        received = {name: t.shape for name, t in broadcast.received.items()}
        elementwise = all(self._trainable.get(name) == shape for name, shape in received.items())
        alone = () if elementwise else (number,)  # an algorithm expects other tensors as they were sent
        return tuple(sorted(broadcast.directive.items())), tuple(sorted(received)), alone


class _JointWorker(VectorizedWorker):
    """Trains clients of several runs, each from the weights of its own."""

    @classmethod
    def of(cls, engine: SimulationEngine, batches: dict[tuple[int, ...], ClientBatch]) -> Self | None:
        module = trial_copy(engine.module)
        forward = None if module is None else vectorized_forward(module, engine.federation.input_shape)
        if module is None or forward is None:
            return None
        return cls(module, forward, engine.method, engine.algorithm, engine.config, batches)

    def join_broadcasts(self, jobs: Sequence[ClientJob], broadcast: Broadcast) -> Broadcast:
        sent = [job.broadcast or broadcast for job in jobs]
        first = sent[0]
        if all(each is first for each in sent):
            return first
        weights = {
            name: torch.stack([each.weights[name] for each in sent]) if name in self._trainable else tensor
            for name, tensor in first.weights.items()
        }
        received = {name: torch.stack([each.received[name] for each in sent]) for name in first.received}
        return replace(first, weights=weights, received=received)

    @torch.no_grad()
    def predict(self, batch: ClientBatch, broadcast: Broadcast) -> Tensor:
        weights = {
            name: tensor.expand(len(batch), *self._trainable[name]) if name in self._trainable else tensor
            for name, tensor in broadcast.weights.items()
        }
        blocks = torch.split(torch.arange(batch.largest, device=batch.device), PREDICT_BATCH)
        positions = [block.expand(1, len(batch), len(block)) for block in blocks]
        return torch.cat([self._forward(weights, batch.inputs(at)[0]) for at in positions], dim=1)


def _jobs_of(group: Sequence[tuple[int, ClientJob]]) -> list[ClientJob]:
    return [job for _, job in group]


def _layout(engine: SimulationEngine, runs: int) -> Layout:
    return choose_layout(engine.federation, engine.method, engine.module, engine.config, engine.precision, runs)


def _same_in_evaluation(engine: SimulationEngine) -> bool:
    """Return whether the network predicts the same in evaluation mode, in which the vectorized one is not."""
    trial = trial_copy(engine.module)
    if trial is None:
        return False
    first = next(trial.parameters())
    shape = (3, *engine.federation.input_shape)
    rows = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(first.device, first.dtype)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            in_training = trial(rows)
            return torch.equal(in_training, trial.eval()(rows))
    except Exception:  # a user's network may raise anything for random rows
        return False
