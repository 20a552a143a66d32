"""Runs the cells of a table, each once: what is finished is kept under a name that follows from its settings.

So a table that was stopped goes on where it was, more seeds add to what is there, and tables share the runs they have
in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedul import data
from fedul.comparison import LEVEL, paired_p_value
from fedul.errors import InputError
from fedul.experiments.declaration import Cell, Declaration
from fedul.jobs import Job, Watcher, run_all
from fedul.models.operations import operations
from fedul.runs import RunFolder, damaged

PERCENT = ("test_error", "test_error_clients", "test_errors", "calibration_error")


@dataclass(frozen=True)
class Found:
    """What the runs of a cell came to so far."""

    cell: Cell
    figures: tuple[tuple[float, ...], ...] = ()  # for each seed one figure, or one for each client
    labels_used: int = 0
    seconds: float = 0.0  # of training, a run
    marked: bool = False  # the best without labels of its row, or not significantly worse

    @property
    def means(self) -> list[float]:
        return [math.fsum(values) / len(values) for values in zip(*self.figures, strict=True)]

    @property
    def deviations(self) -> list[float]:
        """Over seeds; 0 for one seed."""
        several = len(self.figures) > 1
        pairs = zip(zip(*self.figures, strict=True), self.means, strict=True)
        return [
            math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) if several else 0.0
            for values, mean in pairs
        ]


def reproduce(declaration: Declaration, out: Path, watcher: Watcher, at_once: int = 1) -> Iterator[Found]:
    """Every cell as soon as all its seeds have run, those first that have; no run is repeated."""
    cells, seeds = declaration.cells, declaration.seeds
    jobs = [_job(declaration, cell, seed, out) for cell in cells for seed in range(seeds)]
    missing = [seeds] * len(cells)
    for place in run_all(jobs, watcher, at_once=at_once):
        missing[place // seeds] -= 1
        if not missing[place // seeds]:
            first = place - place % seeds
            folders = [job.folder for job in jobs[first : first + seeds]]
            yield _found(declaration, cells[place // seeds], [(folder, folder.result() or {}) for folder in folders])


def _job(declaration: Declaration, cell: Cell, seed: int, out: Path) -> Job:
    title = ", ".join(declaration.label(value) for value in cell.values.values())
    folder = RunFolder(out / "runs" / cell.key(seed))
    return Job(f"{title}, seed {seed}", folder, replace(cell.data, seed=seed), replace(cell.training, seed=seed), True)


def finished(declaration: Declaration, out: Path) -> list[Found]:
    """The cells all of whose seeds have run, whoever ran them; a damaged result is none."""
    found = []
    for cell in declaration.cells:
        folders = [RunFolder(out / "runs" / cell.key(seed)) for seed in range(declaration.seeds)]
        with suppress(InputError):
            results = [(folder, result) for folder in folders if (result := folder.result()) is not None]
            if len(results) == len(folders):
                found.append(_found(declaration, cell, results))
    return found


def _found(declaration: Declaration, cell: Cell, results: Sequence[tuple[RunFolder, Mapping[str, Any]]]) -> Found:
    metric = cell.values.get(declaration.metric, declaration.metric)  # an axis may say which
    every: list[tuple[float, ...]] = []
    labels: list[int] = []
    seconds: list[float] = []
    for folder, result in results:
        try:
            operations = metric == "operations"
            every.append((float(_operations(folder, cell)),) if operations else figures(result, metric))
            labels.append(int(_checked(result["labels_used"])))
            seconds.append(_checked(result["seconds"]))
            if len(every[-1]) != len(every[0]):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise damaged(folder.path / "result.json") from None
    return Found(cell, tuple(every), round(sum(labels) / len(labels)), sum(seconds) / len(seconds))


def figures(result: Mapping[str, Any], metric: str) -> tuple[float, ...]:
    """The figures of a run; errors in per cent. ValueError or TypeError for what cannot be one."""
    if metric == "seconds_a_round":
        return (_checked(result["seconds"]) / _checked(result["rounds"]),)
    value = result[metric]
    values = [_checked(v) for v in (value if isinstance(value, list) else [value])]
    if not values or (metric in PERCENT and max(values) > 1):
        raise ValueError
    return tuple((100 if metric in PERCENT else 1) * v for v in values)


def _checked(value: Any) -> float:
    """A figure of a run, which is a finite number and not below zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError
    return float(value)


def _operations(folder: RunFolder, cell: Cell) -> int:
    """Of one row's prediction in training; FedUL's transition adds M K + M."""
    classifier = folder.load_classifier()
    transition = max(cell.data.sets) * (len(classifier.classes) + 1) if cell.training.method.startswith("fedul") else 0
    return operations(classifier.module, classifier.input_shape) + transition


def judged(declaration: Declaration, found: Sequence[Found]) -> list[Found]:
    """With the best method without labels marked in every row, and all that are not significantly worse."""
    if "method" not in declaration.axes:
        return list(found)
    rows: dict[tuple[str, ...], list[Found]] = {}
    for one in found:
        if not one.labels_used:
            rows.setdefault(row_of(one), []).append(one)
    best = {row: min(members, key=lambda one: sum(one.means)) for row, members in rows.items() if len(members) > 1}
    return [replace(one, marked=not one.labels_used and _level(one, best.get(row_of(one)))) for one in found]


def row_of(found: Found) -> tuple[str, ...]:
    """Where in its table a cell is, but for the method."""
    return tuple(value for axis, value in found.cell.values.items() if axis != "method")


def _level(one: Found, best: Found | None) -> bool:
    """Whether one is the best, or is not significantly worse; where there is no other, there is no best."""
    if best is None:
        return False
    if one.means == best.means:
        return True
    p_value = paired_p_value(of_each_seed(one), of_each_seed(best))
    return p_value is not None and p_value >= LEVEL


def of_each_seed(found: Found) -> list[float]:
    """The figure of each seed; the mean where there is one for each client."""
    return [math.fsum(values) / len(values) for values in found.figures]


def missing_data(declaration: Declaration) -> list[str]:
    """The data sets of a table that are not on this machine."""
    wanted = {cell.data.data: cell.data.data_dir for cell in declaration.cells}
    return [name for name, folder in wanted.items() if data.found(name, folder) is None]
