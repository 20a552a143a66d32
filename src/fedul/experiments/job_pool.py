"""Runs of many jobs, on an executor.

A finished run is not repeated, and a run that another process is training is left to that process. So a table or a
comparison that was interrupted can be continued, and several processes can share one folder.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from fedul.experiments.executors.base import Executor
from fedul.experiments.executors.processes import ProcessExecutor
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.training import Callback


def run_jobs(
    jobs: Sequence[RunJob], callback: Callback, *, executor: Executor | None = None, studies: StudyCache | None = None
) -> Generator[int, None, None]:
    """Run the jobs that are not done, and yield the position of each once it is done; finished ones come first.

    Close the iterator to end the runs early (`contextlib.closing`).

    Parameters
    ----------
    jobs : sequence of RunJob
        The runs.
    callback : Callback
        Called for every run that is trained. Every `on_run_start` is followed by an `on_run_end`, with None if the run
        failed or was interrupted. Rounds of parallel runs are not reported.
    executor : Executor, optional
        Where the jobs are trained. Default: one after another in this process.
    studies : StudyCache, optional
        Data that is loaded already.
    """
    done = {place for place, job in enumerate(jobs) if job.is_done()}
    yield from sorted(done)
    if left := [place for place in range(len(jobs)) if place not in done]:
        yield from (executor or ProcessExecutor()).run(jobs, left, callback, studies or StudyCache())
