"""Result of a comparison: what `fedul.compare` returns and ``fedul compare`` prints."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul._utils.display import RichDisplay, make_table
from fedul._utils.files import csv_text, write_bytes
from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.experiments.figures import draw_errors
from fedul.experiments.grid import BEST_NOTE, GridResult
from fedul.experiments.variants import Variant

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class VariantResult(GridResult):
    """Result of a variant: `values` are its test errors.

    Parameters
    ----------
    variant : Variant
        Method and algorithm.
    curves : tuple of tuple of float or None
        By seed, the test error of every round; None where it was not measured.
    """

    variant: Variant
    curves: tuple[tuple[float | None, ...], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values, as ``fedul compare --json`` prints them."""
        return {
            "method": self.variant.method_name,
            "algorithm": self.variant.algorithm_name,
            "labels_used": self.labels_used,
            "mean_error": self.mean,
            "std": self.deviations[0],
            "errors": self.by_seed,
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
    data : BenchmarkDataConfig
        The data; its seed is the first seed.
    training : TrainConfig
        How all variants were trained.
    folder, csv_file, plot_file : Path or None
        Where the comparison, its table and its plot were written.
    """

    results: Sequence[VariantResult]
    data: BenchmarkDataConfig
    training: TrainConfig
    folder: Path | None = None
    csv_file: Path | None = None
    plot_file: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values, as ``fedul compare --json`` prints them."""
        files = {"comparison": self.folder, "csv": self.csv_file, "plot": self.plot_file}
        return {
            **{name: None if file is None else str(file) for name, file in files.items()},
            "results": [result.to_dict() for result in self.results],
        }

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file with one line per run."""
        rows = [
            (result.variant.method_name, result.variant.algorithm_name, seed, error, result.labels_used)
            for result in self.results
            for seed, error in enumerate(result.by_seed, self.data.seed)
        ]
        head = ("method", "algorithm", "seed", "test_error", "labels_used")
        write_bytes(Path(path), csv_text([head, *rows]).encode())

    def plot(self, path: str | Path) -> None:
        """Draw the test error by round into an .svg or .png file."""
        data = self.data
        title = f"{data.data}: {data.clients} clients, {data.split}, {data.prior_recipe} priors"
        draw_errors(self.results, Path(path), title)

    def __rich__(self) -> RenderableType:
        from rich.console import Group

        several = len(self.results[0].values) > 1
        seeds = f"{len(self.results[0].values)} seeds" if several else "1 seed"
        title = f"{self.data.data}: {self.data.clients} clients, {seeds}, {self.training.rounds} rounds"
        names, numbers = ["method", "algorithm"], ["labels", "error % (std)" if several else "error %", "p", "s"]
        shown = [True, len({result.variant.algorithm_name for result in self.results}) > 1, True, True, several, True]
        table = make_table(itertools.compress(names, shown), itertools.compress(numbers, shown[2:]), title)
        ordered = sorted(self.results, key=lambda result: (result.labels_used > 0, result.mean))
        last_unlabeled = sum(not result.labels_used for result in ordered) - 1
        for i, result in enumerate(ordered):
            spread = f" ({100 * result.deviations[0]:.2f})" if several else ""
            error = f"{100 * result.mean:.2f}{spread}"
            row = [
                result.variant.method_name,
                result.variant.algorithm_name,
                f"{result.labels_used:,}",
                f"[bold green]{error}*[/]" if result.best else f"{error} ",
                "" if result.p_value is None else f"{result.p_value:.3f}",
                f"{result.seconds:.1f}",
            ]
            table.add_row(*itertools.compress(row, shown), end_section=i == last_unlabeled)
        return Group(table, f"* {BEST_NOTE}") if several else table
