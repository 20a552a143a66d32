"""Runs of many jobs, one after another or in several processes.

A finished run is not repeated, and a run that another process is training is left to that process. So a table or a
comparison that was interrupted can be continued, and several processes can share one folder.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Self

from fedul._utils.hardware import available_cores
from fedul._utils.processes import DeferredSignals
from fedul.config import TrainConfig
from fedul.core import Study
from fedul.data.load import AnyDataConfig, load_study
from fedul.errors import EnvironmentFailure
from fedul.training import Callback, CollectWarnings, Recipe, Run, RunBusy, RunFolder, RunInfo, run_training

POLL_SECONDS = 0.5
"""Time between two checks of runs that other processes are training."""

EXIT_SECONDS = 5.0
"""Time that a worker process has to end before it is killed."""


@dataclass(frozen=True)
class RunJob:
    """One run: its title, its folder, its data and its training."""

    title: str
    folder: RunFolder
    data: AnyDataConfig
    training: TrainConfig
    force: bool = False

    def is_done(self) -> bool:
        """Return whether all its rounds are finished."""
        result, rounds, patience = self.folder.result(), self.training.rounds, self.training.patience
        if result is None or result.rounds == rounds or not patience:
            return result is not None and result.rounds == rounds
        stored = self.folder.stored_config()  # the result may be that of a run that ended early
        return stored is not None and (stored.training.rounds, stored.training.patience) == (rounds, patience)

    def train(self, studies: StudyCache, callback: Callback, info: RunInfo) -> None:
        """Train the run unless it is done; RunBusy if another process is training it."""
        if self.is_done():
            return
        self.folder.check_free()  # before any data is read
        recipe, out = Recipe(self.training), self.folder.path
        study = self.study(studies)
        run = run_training(study, recipe, out=out, resume=True, force=self.force, callback=callback, info=info)
        self.finish(studies, run)

    def study(self, studies: StudyCache) -> Study:
        """Return the data to train on."""
        return studies.of(self.data)

    def finish(self, studies: StudyCache, run: Run) -> None:
        """Called after training; a job that measures more than the run does it here."""


class StudyCache:
    """The study that was loaded last, which the next run often shares."""

    def __init__(self) -> None:
        self._last: tuple[AnyDataConfig, Study] | None = None

    def of(self, config: AnyDataConfig) -> Study:
        """Return the study of a configuration."""
        if self._last is None or self._last[0] != config:
            self._last = None  # two of them may not fit into memory
            self._last = config, load_study(config)
        return self._last[1]


def run_jobs(
    jobs: Sequence[RunJob], callback: Callback, *, parallel: int = 1, studies: StudyCache | None = None
) -> Generator[int, None, None]:
    """Run the jobs that are not done, and yield the position of each once it is done; finished ones come first.

    Close the iterator to end the worker processes early (`contextlib.closing`).

    Parameters
    ----------
    jobs : sequence of RunJob
        The runs.
    callback : Callback
        Called for every run that is trained. Every `on_run_start` is followed by an `on_run_end`, with None if the run
        failed or was interrupted. Rounds of parallel runs are not reported.
    parallel : int, default=1
        Runs at the same time; more than one are trained in worker processes.
    studies : StudyCache, optional
        Data that is loaded already.
    """
    done = {place for place, job in enumerate(jobs) if job.is_done()}
    yield from sorted(done)
    left = [place for place in range(len(jobs)) if place not in done]
    parallel = min(parallel, len(left))
    if parallel > 1:
        yield from _run_parallel(jobs, left, callback, parallel)
    else:
        yield from _run_serial(jobs, left, callback, studies or StudyCache())


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


def _run_parallel(jobs: Sequence[RunJob], left: Sequence[int], callback: Callback, parallel: int) -> Iterator[int]:
    """Run jobs in worker processes, which share the cores."""
    share, done = max(1, available_cores() // parallel), len(jobs) - len(left)
    infos = {
        place: RunInfo(job.training.rounds, job.title, done + i + 1, len(jobs), parallel, job.folder.path)
        for i, (place, job) in enumerate((place, jobs[place]) for place in left)
    }
    with ExitStack() as stack:
        with DeferredSignals():
            idle = [stack.enter_context(_Worker()) for _ in range(parallel)]
        waiting, busy = deque(left), dict[_Worker, int]()
        try:
            while waiting or busy:
                while waiting and idle:
                    worker = idle.pop()
                    busy[worker] = place = waiting.popleft()
                    callback.on_run_start(infos[place])
                    worker.send(_with_cores(jobs[place], share))
                answered = wait([worker.pipe for worker in busy])
                for worker in [worker for worker in busy if worker.pipe in answered]:
                    messages = worker.receive()
                    place = busy.pop(worker)
                    idle.append(worker)
                    if messages is None:  # another process is training it
                        waiting.append(place)
                    for message in messages or ():
                        callback.on_warning(message)
                    callback.on_run_end(infos[place], None if messages is None else jobs[place].folder.result())
                    if messages is not None:
                        yield place
        finally:
            for place in busy.values():
                callback.on_run_end(infos[place], None)


def _with_cores(job: RunJob, cores: int) -> RunJob:
    training = job.training
    return replace(
        job, training=replace(training, threads=training.threads or cores, workers=training.workers or cores)
    )


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
        job, warnings = pipe.recv(), CollectWarnings()
        answer: list[str] | Exception | None = warnings.messages
        try:
            job.train(studies, warnings, RunInfo(0, job.title))
        except RunBusy:
            time.sleep(POLL_SECONDS)
            answer = None
        except Exception as problem:
            problem.add_note(traceback.format_exc())
            answer = problem
        pipe.send(answer)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
