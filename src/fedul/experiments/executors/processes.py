"""Processes of this machine, which share its cores; a single job at a time is trained in this process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Self

from fedul._utils.hardware import available_cores
from fedul._utils.processes import DeferredSignals
from fedul.config import TrainConfig
from fedul.errors import EnvironmentFailure
from fedul.experiments.executors.base import POLL_SECONDS, run_pool, train_job, with_cores
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.training import Callback, RunBusy, RunInfo

EXIT_SECONDS = 5.0
"""Time that a worker process has to end before it is killed."""


@dataclass(frozen=True)
class ProcessExecutor:
    """Processes of this machine.

    Parameters
    ----------
    parallel : int, default=1
        Jobs at the same time. One is trained in this process, and its rounds are reported.
    """

    parallel: int = 1

    def checkable(self, training: TrainConfig) -> TrainConfig:
        """Return the settings themselves."""
        return training

    def run(
        self, jobs: Sequence[RunJob], left: Sequence[int], callback: Callback, studies: StudyCache
    ) -> Iterator[int]:
        """Train jobs one after another, or in worker processes that share the cores."""
        parallel = min(self.parallel, len(left))
        if parallel < 2:
            yield from _run_serial(jobs, left, callback, studies)
            return
        with _ProcessPool(parallel) as pool:
            yield from run_pool(pool, jobs, left, callback)


def _run_serial(jobs: Sequence[RunJob], left: Sequence[int], callback: Callback, studies: StudyCache) -> Iterator[int]:
    waiting, busy = deque(left), 0  # busy: consecutive jobs that other processes are training
    while waiting:
        place = waiting.popleft()
        try:
            jobs[place].train(studies, callback, RunInfo(0, jobs[place].title, place + 1, len(jobs)))
        except RunBusy:
            waiting.append(place)
            busy += 1
            if busy >= len(waiting):
                time.sleep(POLL_SECONDS)
        else:
            busy = 0
            yield place


class _ProcessPool:
    """Worker processes, which share the cores and end with the block."""

    def __init__(self, parallel: int) -> None:
        self.parallel = parallel
        self._share = max(1, available_cores() // parallel)
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            with DeferredSignals():
                self._idle = [stack.enter_context(_Worker()) for _ in range(self.parallel)]
            self._workers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def has_room(self, job: RunJob) -> bool:
        return bool(self._idle)

    def submit(self, place: int, job: RunJob) -> None:
        worker = self._busy[place] = self._idle.pop()
        worker.send(with_cores(job, self._share))

    def wait(self) -> Sequence[int]:
        answered = wait([worker.pipe for worker in self._busy.values()])
        return [place for place, worker in self._busy.items() if worker.pipe in answered]

    def receive(self, place: int) -> list[str] | None:
        worker = self._busy.pop(place)
        self._idle.append(worker)
        return worker.receive()


class _Worker:
    """A process that runs one job after another, and ends with the block.

    The pipe is the only thing that both processes share: a worker that is killed closes it, and leaves no lock behind.
    """

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
        self.pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=_run_worker, args=(child_pipe,), daemon=True)
        self._process.start()
        child_pipe.close()
        return self

    def __exit__(self, *_: object) -> None:
        with DeferredSignals():
            self._process.terminate()
            self._process.join(EXIT_SECONDS)
            self._process.kill()
            self._process.join()
            self.pipe.close()

    def send(self, job: RunJob) -> None:
        with _explain_lost_worker():
            self.pipe.send(job)

    def receive(self) -> list[str] | None:
        """Return the warnings of the job; None if another process is training it. Raises what the job raised."""
        with _explain_lost_worker():
            answer: list[str] | Exception | None = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def _explain_lost_worker() -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError):
        raise EnvironmentFailure(
            "a worker process was killed, maybe because memory ran out; use fewer --jobs. Finished runs are kept."
        ) from None


def _run_worker(pipe: Connection) -> None:
    """Run jobs until the parent ends the process. Ctrl-C is left to the parent; the worker does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    studies = StudyCache()
    while True:
        pipe.send(train_job(pipe.recv(), studies))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
