"""The runs of a table of the paper. A run is stored under a name that follows from its settings.

So a table that was interrupted can be continued, more seeds add to the runs that exist, and tables share the runs that
they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedul.errors import InputError
from fedul.experiments.cell import Cell
from fedul.experiments.executors import Executor
from fedul.experiments.grid import GridResult, check_measured, collect_results, mark_best, run_grid
from fedul.experiments.paper import Experiment
from fedul.experiments.run_job import RunJob
from fedul.methods import METHODS
from fedul.models.operations import operations
from fedul.training import Callback, RunFolder, RunResult

RUNS = "runs"
ERRORS = ("test_error", "test_error_clients", "test_errors", "calibration_error")
"""Metrics that are shares, and printed in per cent."""


@dataclass(frozen=True, kw_only=True)
class CellResult(GridResult):
    """Result of a cell over its seeds; errors in `values` are in per cent."""

    cell: Cell

    @property
    def row(self) -> tuple[str, ...]:
        """Where in its table the cell is, apart from the method."""
        return tuple(value for axis, value in self.cell.values.items() if axis != "method")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values, as ``fedul reproduce --json`` prints them."""
        return {
            "cell": dict(self.cell.values),
            "means": self.means,
            "stds": self.deviations,
            "figures": [list(values) for values in self.values],
            "ran_on": self.cell.data.data,
            "published": [[None if math.isnan(v) else v for v in pair] for pair in self.cell.published],
            "labels_used": self.labels_used,
            "best": self.best,
        }


def run_cells(
    experiment: Experiment, out: Path, callback: Callback, executor: Executor | None = None
) -> Generator[CellResult, None, None]:
    """Run the cells of an experiment, and yield each once all its seeds have run; finished ones come first."""
    cells = [[_job(experiment, cell, seed, out) for seed in range(experiment.seeds)] for cell in experiment.cells]
    for place in run_grid(cells, callback, executor=executor):
        yield _collect(experiment, experiment.cells[place], out)


def finished_cells(experiment: Experiment, out: Path) -> list[CellResult]:
    """Return the cells all of whose seeds have run, also in other processes; damaged results are left out."""
    results = []
    for cell in experiment.cells:
        with suppress(InputError):
            results.append(_collect(experiment, cell, out))
    return results


def measure(result: RunResult, metric: str) -> tuple[float, ...]:
    """Return the measured values of a run, errors in per cent; ValueError if they cannot be right."""
    if metric == "seconds_per_round":
        return (check_measured(result.seconds) / check_measured(result.rounds),)
    value = getattr(result, metric)
    values = [check_measured(each) for each in (value if isinstance(value, tuple) else (value,))]
    if not values or (metric in ERRORS and max(values) > 1):
        raise ValueError("not a share")
    return tuple((100 if metric in ERRORS else 1) * each for each in values)


def mark_best_cells(experiment: Experiment, results: Sequence[CellResult]) -> list[CellResult]:
    """Return the results with the best methods without labels marked in every row that has several."""
    if "method" not in experiment.axes:
        return list(results)
    rows: dict[tuple[str, ...], list[CellResult]] = {}
    for result in results:
        rows.setdefault(result.row, []).append(result)
    marked: dict[tuple[str, ...], CellResult] = {}
    for row in rows.values():
        several = sum(not result.labels_used for result in row) > 1
        marked.update((result.cell.place, result) for result in (mark_best(row) if several else row))
    return [marked[result.cell.place] for result in results]


def _job(experiment: Experiment, cell: Cell, seed: int, out: Path) -> RunJob:
    title = ", ".join(experiment.label(value) for value in cell.place)
    data, training = replace(cell.data, seed=seed), replace(cell.training, seed=seed)
    return RunJob(f"{title}, seed {seed}", _folder(cell, seed, out), data, training, force=True)


def _folder(cell: Cell, seed: int, out: Path) -> RunFolder:
    return RunFolder(out / RUNS / cell.key(seed))


def _collect(experiment: Experiment, cell: Cell, out: Path) -> CellResult:
    metric = experiment.metric_of(cell)

    def measured(folder: RunFolder, result: RunResult) -> tuple[float, ...]:
        return (float(_operations(folder, cell)),) if metric == "operations" else measure(result, metric)

    folders = [_folder(cell, seed, out) for seed in range(experiment.seeds)]
    return CellResult(**vars(collect_results(folders, measured)), cell=cell)


def _operations(folder: RunFolder, cell: Cell) -> int:
    """Return the operations of the prediction of one row in training; a transition adds M K + M."""
    classifier = folder.load_classifier()
    count = operations(classifier.module, classifier.input_shape)
    if METHODS.load(cell.training.method).uses_transition:
        count += max(cell.data.sets) * (len(classifier.classes) + 1)
    return count
