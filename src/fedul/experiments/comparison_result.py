"""Result of a comparison: what `fedul.compare` returns and ``fedul compare`` prints."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul._utils.display import RichDisplay, counted, make_table
from fedul._utils.files import csv_text, write_bytes
from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.data.load import AnyDataConfig
from fedul.experiments.figures import draw_errors, draw_measures
from fedul.experiments.grid import BEST_NOTE, GridResult
from fedul.experiments.measures import TEST_ERROR, Measure
from fedul.experiments.variants import Variant

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class VariantResult(GridResult):
    """Result of a variant: `values` are what was measured, by default its test errors.

    Parameters
    ----------
    variant : Variant
        Method and algorithm.
    curves : tuple of tuple of float or None
        By seed, the test error of every round; None where it was not measured.
    measure : Measure
        What was measured.
    """

    variant: Variant
    curves: tuple[tuple[float | None, ...], ...] = ()
    measure: Measure = TEST_ERROR

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values, as ``fedul compare --json`` prints them."""
        return {
            "method": self.variant.method_name,
            "algorithm": self.variant.algorithm_name,
            "labels_used": self.labels_used,
            f"mean_{self.measure.quantity}": self.mean,
            "std": self.deviations[0],
            self.measure.plural: self.by_seed,
            "p_value": self.p_value,
            "best": self.best,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonResult(RichDisplay):
    """Result of a comparison; prints as a table.

    Parameters
    ----------
    results : sequence of VariantResult
        One per variant, in the order in which they were named.
    data : BenchmarkDataConfig or FileDataConfig
        The data; its seed is the first seed.
    training : TrainConfig
        How all variants were trained.
    folder, csv_file, plot_file : Path or None
        Where the comparison, its table and its plot were written.
    """

    results: Sequence[VariantResult]
    data: AnyDataConfig
    training: TrainConfig
    folder: Path | None = None
    csv_file: Path | None = None
    plot_file: Path | None = None

    @property
    def measure(self) -> Measure:
        """What was measured of every run."""
        return self.results[0].measure

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values, as ``fedul compare --json`` prints them."""
        files = {"comparison": self.folder, "csv": self.csv_file, "plot": self.plot_file}
        return {
            **{name: None if file is None else str(file) for name, file in files.items()},
            "measure": self.measure.key,
            "results": [result.to_dict() for result in self.results],
        }

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file with one line per run."""
        rows = [
            (result.variant.method_name, result.variant.algorithm_name, seed, value, result.labels_used)
            for result in self.results
            for seed, value in enumerate(result.by_seed, self.data.seed)
        ]
        head = ("method", "algorithm", "seed", self.measure.key, "labels_used")
        write_bytes(Path(path), csv_text([head, *rows]).encode())

    def plot(self, path: str | Path) -> None:
        """Draw the test error by round, or for own data what was measured, into an .svg or .png file."""
        data = self.data
        if not isinstance(data, BenchmarkDataConfig):
            draw_measures(self.results, Path(path), self._title)
            return
        title = f"{data.data}: {counted(data.clients, 'client')}, {data.split}, {data.prior_recipe} priors"
        draw_errors(self.results, Path(path), title)

    def __rich__(self) -> RenderableType:
        from rich.console import Group

        several, measure = len(self.results[0].values) > 1, self.measure
        heading = f"{measure.heading} (std)" if several else measure.heading
        names, numbers = ["method", "algorithm"], ["labels", heading, "p", "s"]
        shown = [True, len({result.variant.algorithm_name for result in self.results}) > 1, True, True, several, True]
        table = make_table(itertools.compress(names, shown), itertools.compress(numbers, shown[2:]), self._title)
        ordered = sorted(self.results, key=lambda result: (result.labels_used > 0, result.mean))
        last_unlabeled = sum(not result.labels_used for result in ordered) - 1
        for i, result in enumerate(ordered):
            mean, std = (f"{measure.scale * x:.{measure.decimals}f}" for x in (result.mean, result.deviations[0]))
            value = f"{mean} ({std})" if several else mean
            row = [
                result.variant.method_name,
                result.variant.algorithm_name,
                f"{result.labels_used:,}",
                f"[bold green]{value}*[/]" if result.best else f"{value} ",
                "" if result.p_value is None else f"{result.p_value:.3f}",
                f"{result.seconds:.1f}",
            ]
            table.add_row(*itertools.compress(row, shown), end_section=i == last_unlabeled)
        return Group(table, f"* {BEST_NOTE}") if several else table

    @property
    def _title(self) -> str:
        """Data, seeds and rounds."""
        clients = [counted(self.data.clients, "client")] if isinstance(self.data, BenchmarkDataConfig) else []
        rounds = counted(self.training.rounds, "round")
        parts = [*clients, counted(len(self.results[0].values), "seed"), rounds]
        return f"{Path(self.data.data).name}: {', '.join(parts)}"
