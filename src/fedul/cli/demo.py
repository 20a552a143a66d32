"""`fedul demo` and `fedul example`: all methods on the embedded digits, and files to try the other commands on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markup import escape

from fedul._utils.display import make_table
from fedul._utils.files import require_unused
from fedul.cli import show
from fedul.cli.documents import FilesDocument
from fedul.cli.options import Json, default_folder
from fedul.config import check_plot

TITLE = "Handwritten digits: 5 clients, 10 sets each; test digits by other writers"
COLUMNS = ("--client-column", "hospital", "--set-column", "month")
"""Options for the tables of the example."""

if TYPE_CHECKING:
    from fedul.experiments.comparison_result import VariantResult


def demo(
    out: Annotated[str | None, typer.Option(help="Folder for the runs (default: a new one under runs/).")] = None,
    rounds: Annotated[int | None, typer.Option(help="Global rounds (default: those of a comparison).", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", min=0)] = 0,
    plot: Annotated[str | None, typer.Option(help="Bar chart of the table to write, .svg or .png.")] = None,
    json: Json = False,
) -> None:
    """Train on handwritten digits across five clients, with every method.

    Prints the test error of the methods that use no labels next to that of training with labels. Takes about a minute.
    """
    folder = Path(out or default_folder("demo"))
    require_unused(folder, "--out")
    check_plot(plot)

    from fedul.experiments.compare import compare
    from fedul.experiments.figures import draw_bars

    with show.TrainingProgress() as progress:
        comparison = compare("digits", seeds=1, out=folder, rounds=rounds or 0, seed=seed, callbacks=[progress])
    if plot is not None:
        draw_bars(comparison.results, Path(plot), TITLE)
    fields = [(result.variant.title, result.labels_used, result.mean, result.seconds) for result in comparison.results]
    keys = ("method", "labels_used", "test_error", "seconds")
    show.print_result(
        json,
        {"results": [dict(zip(keys, each, strict=True)) for each in fields], "run": str(folder), "plot": plot},
        _view(comparison.results),
        f"runs: [bold]{escape(str(folder))}[/]; more seeds and plots: fedul compare",
    )


def example(
    folder: Annotated[str, typer.Argument(help="Folder to write the files into.")] = "hospitals",
    json: Json = False,
) -> None:
    """Write example files into FOLDER: synthetic patients of four hospitals, and prevalences by month.

    The patients have no diagnosis. Further files hold new patients and their true diagnoses, for comparison.
    """
    from fedul.data.example import write_example

    require_unused(Path(folder), "folder")
    files = [str(path) for path in write_example(Path(folder))]
    show.print_result(
        json,
        FilesDocument(files).to_dict(),
        *map(escape, files),
        f"next: {show.command('check', '--data', files[0], '--priors', files[1], *COLUMNS)}",
    )


def _view(results: Sequence[VariantResult]) -> Group:
    table = make_table(["method"], ["labels used", "test error"], TITLE)
    table.add_column("", no_wrap=True, overflow="crop")
    errors = {result.variant.title: result.mean for result in results}
    last_unlabeled = max((i for i, result in enumerate(results) if not result.labels_used), default=-1)
    for i, result in enumerate(results):
        bar = "█" * max(1, round(24 * result.mean / (max(errors.values()) or 1)))
        cells = [result.variant.title, f"{result.labels_used:,}", f"{result.mean:.2%}", bar]
        table.add_row(*cells, end_section=i == last_unlabeled)
    close = errors["fedul"] < 1.5 * errors["supervised"]
    return Group(
        table,
        "What was shown (with the round selected without labels): clients that know only how common each digit is in "
        "each of their sets of images trained one classifier together"
        + (", and its error is close to that of training with every label." if close else "."),
    )
