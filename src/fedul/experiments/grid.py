"""A grid of runs: cells, such as a method or an entry of a table in the paper, each run with several seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from fedul.core import SIGNIFICANCE, paired_p_value
from fedul.errors import InputError
from fedul.experiments.executors import Executor
from fedul.experiments.job_pool import run_jobs
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.training import Callback, RunFolder, RunResult
from fedul.training.run_files import RESULT

BEST_NOTE = f"the best without labels, and all that a paired t-test ({SIGNIFICANCE:.0%}) does not call worse"
"""Legend of the mark in a table."""


@dataclass(frozen=True, kw_only=True)
class GridResult:
    """Result of a cell over its seeds.

    Parameters
    ----------
    values : tuple of tuple of float
        For each seed, one measured value, or one per client.
    labels_used : int
        Rows whose label was used, on average over seeds.
    seconds : float
        Training time of one run, on average over seeds.
    p_value : float or None
        Of the paired t-test against the best cell without labels; None for that cell, for cells with labels, and for
        a single seed.
    best : bool
        Whether this is the best cell without labels, or not significantly worse.
    """

    values: tuple[tuple[float, ...], ...]
    labels_used: int = 0
    seconds: float = 0.0
    p_value: float | None = None
    best: bool = False

    @property
    def by_seed(self) -> list[float]:
        """One value per seed, averaged over clients."""
        return [_mean(values) for values in self.values]

    @property
    def mean(self) -> float:
        """Mean over seeds and clients."""
        return _mean(self.by_seed)

    @property
    def means(self) -> list[float]:
        """Mean over seeds, by client."""
        return [_mean(values) for values in zip(*self.values, strict=True)]

    @property
    def deviations(self) -> list[float]:
        """Standard deviation over seeds, by client; 0 for one seed."""
        return [_deviation(values) for values in zip(*self.values, strict=True)]


R = TypeVar("R", bound=GridResult)


def run_grid(
    cells: Sequence[Sequence[RunJob]],
    callback: Callback,
    *,
    executor: Executor | None = None,
    seed_by_seed: bool = False,
    studies: StudyCache | None = None,
) -> Generator[int, None, None]:
    """Run the jobs that are not finished, and yield the position of each cell when all its seeds are finished.

    Parameters
    ----------
    cells : sequence of sequence of RunJob
        For each cell, one job per seed.
    callback : Callback
        Called for every run that is trained.
    executor : Executor, optional
        Where the runs are trained. Default: one after another in this process.
    seed_by_seed : bool, default=False
        Run all cells with the first seed, then with the next, instead of one cell after another.
    studies : StudyCache, optional
        Data that is loaded already.
    """
    order = [(cell, seed) for cell, jobs in enumerate(cells) for seed in range(len(jobs))]
    if seed_by_seed:
        order.sort(key=lambda place: place[1])
    missing = [len(jobs) for jobs in cells]
    jobs = [cells[cell][seed] for cell, seed in order]
    for place in run_jobs(jobs, callback, executor=executor, studies=studies):
        cell = order[place][0]
        missing[cell] -= 1
        if not missing[cell]:
            yield cell


def collect_results(
    folders: Sequence[RunFolder], measure: Callable[[RunFolder, RunResult], tuple[float, ...]]
) -> GridResult:
    """Read the results of the runs of a cell.

    Parameters
    ----------
    folders : sequence of RunFolder
        For each seed, the folder of a finished run.
    measure : callable
        Returns the values of a run; raises ValueError if they are not plausible.

    Raises
    ------
    InputError
        If a result is missing or damaged.
    """
    values, results = [], []
    for folder in folders:
        result = folder.result()
        if result is None:
            raise InputError(f"{folder.path}: its result is gone; run the command again.")
        try:
            check_measured(result.labels_used)
            check_measured(result.seconds)
            values.append(measure(folder, result))
            if len(values[-1]) != len(values[0]):
                raise ValueError("another number of clients")
        except ValueError:
            raise InputError(f"{folder.path / RESULT}: damaged; delete it, and the run will write it again.") from None
        results.append(result)
    return GridResult(
        values=tuple(values),
        labels_used=round(_mean([result.labels_used for result in results])),
        seconds=_mean([result.seconds for result in results]),
    )


def check_measured(value: float | None) -> float:
    """Return a measured value as float; ValueError unless it is finite and not negative."""
    if value is None or not 0 <= value < math.inf:
        raise ValueError("not a finite number of at least 0")
    return float(value)


def mark_best(results: Sequence[R], *, labels_of_all: bool = False) -> list[R]:
    """Return the results with the best one without labels marked, and all that are not significantly worse.

    Parameters
    ----------
    results : sequence of GridResult
        One per cell, over the same seeds.
    labels_of_all : bool, default=False
        Whether labels are those of a user's own rows, which all cells use, so that all are compared.
    """
    compared = [result for result in results if labels_of_all or not result.labels_used]
    best = min(compared, key=lambda result: result.mean, default=None)
    if best is None:
        return list(results)
    marked = []
    for result in results:
        is_compared = labels_of_all or not result.labels_used
        p_value = paired_p_value(result.by_seed, best.by_seed) if is_compared and result is not best else None
        tied = result.mean == best.mean or (p_value is not None and p_value >= SIGNIFICANCE)
        marked.append(replace(result, p_value=p_value, best=tied and is_compared))
    return marked


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
