"""Workers on threads: groups of clients are trained by whichever worker is idle, and returned in their order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Protocol

import torch

from fedul.engines.base import Broadcast
from fedul.engines.simulation.local_steps import ClientJob, ClientOutcome
from fedul.engines.simulation.thread_choice import ThreadChoice


class Worker(Protocol):
    """Trains a group of clients. Workers that train together are alike: any of them may train what one prepared."""

    def prepare(self, jobs: Sequence[ClientJob], broadcast: Broadcast) -> Any:
        """Return what `train` takes; called in one thread for all groups."""

    def train(self, prepared: Any, broadcast: Broadcast, stopped: Callable[[], bool]) -> list[ClientOutcome]:
        """Return the update and the new state of each client; `Cancelled` soon after `stopped` returns True."""


def train_groups(
    workers: Sequence[Worker],
    threads: int,
    broadcast: Broadcast,
    groups: Sequence[Callable[[], Sequence[ClientJob]]],
    choice: ThreadChoice | None = None,
) -> Generator[list[ClientOutcome]]:
    """Yield the outcomes of the groups in their order, computed by all workers.

    Close the generator to stop the workers early; none works on when it is closed.

    Parameters
    ----------
    workers : sequence of Worker
        One for each thread; a single one works in the thread of the caller.
    threads : int
        Threads of torch in each worker, if there are several.
    broadcast : Broadcast
        What the coordinator sends.
    groups : sequence of callable
        Each returns the jobs of a group; called when a worker is about to be free, in the thread of the caller.
    choice : ThreadChoice, optional
        Threads of torch where groups are trained one by one; by default those of the caller.
    """
    if len(workers) == 1 or len(groups) == 1:
        for group in groups:
            jobs = group()
            prepared = workers[0].prepare(jobs, broadcast)
            with nullcontext() if choice is None else choice.batch(sum(len(job.task) for job in jobs)):
                outcomes = workers[0].train(prepared, broadcast, lambda: False)
            yield outcomes
        return
    stopped = threading.Event()
    idle = deque(workers)  # thread-safe

    def train_group(prepared: Any) -> list[ClientOutcome]:
        torch.set_num_threads(threads)  # for this thread
        worker = idle.pop()
        try:
            return worker.train(prepared, broadcast, stopped.is_set)
        finally:
            idle.append(worker)

    running: deque[Future[list[ClientOutcome]]] = deque()
    with ThreadPoolExecutor(len(workers), thread_name_prefix="fedul") as pool:
        try:
            for group in groups:
                running.append(pool.submit(train_group, workers[0].prepare(group(), broadcast)))
                if len(running) > len(workers):  # one more than can run, so that no worker is idle
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:  # in any case, workers stop before their next step
            stopped.set()
            for future in running:
                future.cancel()
