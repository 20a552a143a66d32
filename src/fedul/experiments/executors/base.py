"""The protocol of executors, and what executors have in common that train several jobs at the same time."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from fedul.config import TrainConfig
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.training import Callback, CollectWarnings, RunBusy, RunInfo

POLL_SECONDS = 0.5
"""Time between two checks of runs that other processes are training."""


class Executor(Protocol):
    """Where the runs of a grid are trained."""

    def checkable(self, training: TrainConfig) -> TrainConfig:
        """Return the settings as far as this process can check them."""

    def run(
        self, jobs: Sequence[RunJob], left: Sequence[int], callback: Callback, studies: StudyCache
    ) -> Iterator[int]:
        """Train jobs and yield the position of each once it is done; what was started ends with the iterator.

        Parameters
        ----------
        jobs : sequence of RunJob
            All jobs of the grid.
        left : sequence of int
            Positions of those to train.
        callback : Callback
            Called as `fedul.experiments.job_pool.run_jobs` says.
        studies : StudyCache
            Data that is loaded already in this process.
        """


class Pool(Protocol):
    """Several jobs that are trained at the same time in other processes."""

    parallel: int
    """Jobs at the same time, as far as it is known."""

    def has_room(self, job: RunJob) -> bool:
        """Return whether a job can start now."""

    def submit(self, place: int, job: RunJob) -> None:
        """Start a job under a number."""

    def wait(self) -> Sequence[int]:
        """Return the numbers of jobs that have an answer, as soon as there is one; maybe none, after a while."""

    def receive(self, place: int) -> list[str] | None:
        """Return the warnings of a job; None if another process is training it. Raises what the job raised."""


def run_pool(pool: Pool, jobs: Sequence[RunJob], left: Sequence[int], callback: Callback) -> Iterator[int]:
    """Train jobs on a pool and yield the position of each once it is done."""
    done = len(jobs) - len(left)
    infos = {
        place: RunInfo(
            jobs[place].training.rounds,
            jobs[place].title,
            number,
            len(jobs),
            pool.parallel,
            folder,
            warn=callback.on_warning,
        )
        for number, place, folder in ((done + i + 1, place, jobs[place].folder.path) for i, place in enumerate(left))
    }
    waiting, running = deque(left), set[int]()
    failure: BaseException | None = None
    try:
        while waiting or running:
            while waiting and pool.has_room(jobs[waiting[0]]):
                place = waiting.popleft()
                running.add(place)
                callback.on_run_start(infos[place])
                pool.submit(place, jobs[place])
            for place in pool.wait():
                messages = pool.receive(place)
                running.remove(place)
                if messages is None:  # another process is training it
                    waiting.append(place)
                for message in messages or ():
                    callback.on_warning(message)
                callback.on_run_end(infos[place], None if messages is None else jobs[place].folder.result())
                if messages is not None:
                    yield place
    except BaseException as problem:
        failure = problem
        raise
    finally:
        for place in running:
            callback.on_run_end(replace(infos[place], failure=failure), None)


def train_job(job: RunJob, studies: StudyCache) -> list[str] | Exception | None:
    """Train a job in a process of a pool; return its warnings, what it raised, or None if another process trains it."""
    warnings = CollectWarnings()
    try:
        job.train(studies, warnings, RunInfo(0, job.title))
    except RunBusy:
        time.sleep(POLL_SECONDS)
        return None
    except Exception as problem:
        problem.add_note(traceback.format_exc())
        return problem
    return warnings.messages


def with_cores(job: RunJob, cores: int) -> RunJob:
    """Return a job that uses this number of cores where its settings leave it open."""
    training = job.training
    return replace(
        job, training=replace(training, threads=training.threads or cores, workers=training.workers or cores)
    )
