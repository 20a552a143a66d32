"""Runs the cells of a table, each once: what is finished is kept under a name that follows from its settings.

So a table that was stopped goes on where it was, more seeds add to what is there, and tables share the runs they have
in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedul import data
from fedul.comparison import LEVEL, Watcher, paired_p_value
from fedul.config import DataConfig
from fedul.data.study import load_config
from fedul.errors import InputError
from fedul.experiments.declaration import Cell, Declaration
from fedul.federation import Study
from fedul.models.operations import operations
from fedul.runs import RunFolder
from fedul.settings import plain
from fedul.training import train

PERCENT = ("test_error", "test_error_clients", "test_errors", "calibration_error")


@dataclass(frozen=True)
class Found:
    """What the runs of a cell came to so far."""

    cell: Cell
    figures: tuple[tuple[float, ...], ...] = ()  # for each seed one figure, or one for each client
    labels_used: int = 0
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


def reproduce(declaration: Declaration, out: Path, watcher: Watcher) -> Iterator[Found]:
    """Every cell as soon as all its seeds have run, in the order of the table; runs that are there are not repeated."""
    total = len(declaration.cells) * declaration.seeds
    studies = _Studies()
    for c, cell in enumerate(declaration.cells):
        results = []
        for seed in range(declaration.seeds):
            folder = RunFolder(out / "runs" / cell.key(seed))
            result = folder.result()
            if result is None:
                title = ", ".join(declaration.label(value) for value in cell.values.values())
                with watcher.run(c * declaration.seeds + seed + 1, total, f"{title}, seed {seed}") as reporter:
                    study = studies.of(replace(cell.data, seed=seed))
                    settings = plain(replace(cell.training, seed=seed))
                    run = train(study, out=folder.path, resume=True, force=True, reporter=reporter, **settings)
                result = {**run.summary(), "seconds": sum(line["seconds"] for line in run.history)}
            results.append((folder, result))
        yield _found(declaration, cell, results)


def finished(declaration: Declaration, out: Path) -> list[Found]:
    """The cells all of whose seeds have run, whoever ran them."""
    found = []
    for cell in declaration.cells:
        folders = [RunFolder(out / "runs" / cell.key(seed)) for seed in range(declaration.seeds)]
        results = [(folder, result) for folder in folders if (result := folder.result()) is not None]
        if len(results) == len(folders):
            found.append(_found(declaration, cell, results))
    return found


def _found(declaration: Declaration, cell: Cell, results: Sequence[tuple[RunFolder, Mapping[str, Any]]]) -> Found:
    metric = cell.values.get(declaration.metric, declaration.metric)  # an axis may say which
    every: list[tuple[float, ...]] = []
    labels: list[int] = []
    for folder, result in results:
        try:
            if metric == "operations":
                every.append((float(_operations(folder, cell)),))
            else:
                every.append(figures(result, metric))
            labels.append(int(result["labels_used"]))
        except (KeyError, TypeError, ValueError):
            damaged = folder.path / "result.json"
            raise InputError(f"{damaged}: damaged; delete it, and the run will write it again.") from None
    return Found(cell, tuple(every), round(sum(labels) / len(labels)))


class _Studies:
    """The study of the last cell, which the next one often shares."""

    def __init__(self) -> None:
        self._last: tuple[DataConfig, Study] | None = None

    def of(self, config: DataConfig) -> Study:
        if self._last is None or self._last[0] != config:
            self._last = config, load_config(config)
        return self._last[1]


def figures(result: Mapping[str, Any], metric: str) -> tuple[float, ...]:
    """The figures of a run; errors in per cent."""
    if metric == "seconds_a_round":
        return (result["seconds"] / result["rounds"],)
    value = result[metric]
    values = value if isinstance(value, list) else [value]
    return tuple((100 if metric in PERCENT else 1) * float(v) for v in values)


def _operations(folder: RunFolder, cell: Cell) -> int:
    """Of one row's prediction in training; FedUL's transition adds M K + M."""
    classifier = folder.load_classifier()
    transition = max(cell.data.sets) * (len(classifier.classes) + 1) if cell.training.method.startswith("fedul") else 0
    return operations(classifier.module, classifier.input_shape) + transition


def judged(declaration: Declaration, found: Sequence[Found]) -> list[Found]:
    """With the best method without labels marked in every row, and all that are not significantly worse."""
    if "method" not in declaration.columns:
        return list(found)
    best: dict[tuple[str, ...], Found] = {}
    for one in found:
        row = _row(one)
        if not one.labels_used and (row not in best or sum(one.means) < sum(best[row].means)):
            best[row] = one
    return [replace(one, marked=not one.labels_used and _level(one, best[_row(one)])) for one in found]


def _row(found: Found) -> tuple[str, ...]:
    return tuple(value for axis, value in found.cell.values.items() if axis != "method")


def _level(one: Found, best: Found) -> bool:
    if one is best:
        return True
    pairs = [[math.fsum(values) / len(values) for values in each.figures] for each in (one, best)]
    p_value = paired_p_value(*pairs)
    return p_value is not None and p_value >= LEVEL


def missing_data(declaration: Declaration) -> list[str]:
    """The data sets of a table that are not on this machine."""
    wanted = {cell.data.data: cell.data.data_dir for cell in declaration.cells}
    return [name for name, folder in wanted.items() if data.found(name, folder) is None]
