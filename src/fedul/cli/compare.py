"""`fedul compare`: methods and algorithms side by side on one federation and several seeds."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.cli.options import merged, part, with_options
from fedul.config import CompareConfig, DataConfig, TrainConfig
from fedul.errors import InputError
from fedul.settings import make

if TYPE_CHECKING:
    from fedul.comparison import Result

CHOSEN_HERE = ("method", "method_option", "algorithm", "algorithm_option")


@with_options(CompareConfig, DataConfig, TrainConfig, leave_out=CHOSEN_HERE)
def compare(
    settings: dict[str, Any],
    config: Annotated[str | None, typer.Option(help="TOML file with options by name; flags win.")] = None,
) -> None:
    """Compare methods (and algorithms) on one federation over several seeds, with a paired t-test."""
    kinds = (CompareConfig, DataConfig, TrainConfig)
    options = merged(settings, config, kinds, leave_out=CHOSEN_HERE)
    command = make(CompareConfig, part(CompareConfig, options))
    folder = Path(command.out or f"runs/compare-{options.get('data', 'digits')}-{time.strftime('%Y%m%d-%H%M%S')}")
    if command.resume:
        from fedul.comparison import stored_options

        options = {**stored_options(folder), **options}
        command = make(CompareConfig, part(CompareConfig, options))
    data, training = make(DataConfig, part(DataConfig, options)), make(TrainConfig, part(TrainConfig, options))
    table, picture = _places(command, folder)

    from fedul.comparison import compare as run_comparison
    from fedul.report.curves import draw_errors

    results = run_comparison(data, training, command, folder, show.Runs())
    write_table(results, table, first_seed=data.seed)
    draw_errors(results, picture, f"{data.data}: {data.clients} clients, {data.split}, {data.prior_recipe} priors")
    if command.json:
        document = {"comparison": str(folder), "csv": str(table), "plot": str(picture)}
        show.print_json({**document, "results": [result.summary() for result in results]})
        return
    seeds = "1 seed" if command.seeds == 1 else f"{command.seeds} seeds"
    show_results(results, f"{data.data}: {data.clients} clients, {seeds}, {training.rounds} rounds")
    show.out.print(f"comparison [bold]{escape(str(folder))}[/]; plot {escape(str(picture))}", soft_wrap=True)


def _places(command: CompareConfig, folder: Path) -> tuple[Path, Path]:
    """Where the table and the plot go; a place that would spoil something, or is not there, is refused beforehand."""
    table = Path(command.csv) if command.csv else folder / "runs.csv"
    picture = Path(command.plot) if command.plot else folder / "error-by-round.svg"
    for name, file in (("csv", table), ("plot", picture)):
        inside = file.resolve().is_relative_to((folder / "runs").resolve())
        if inside or file.resolve() == (folder / "comparison.json").resolve():
            raise InputError(f"{name}: '{file}' belongs to the comparison itself; name another file.")
        if file.parent.resolve() != folder.resolve() and not file.parent.is_dir():
            raise InputError(f"{name}: there is no folder '{file.parent}'; make it, or name another file.")
    if table.resolve() == picture.resolve():
        raise InputError(f"csv and plot: both are '{table}'; name two files.")
    return table, picture


def write_table(results: Sequence[Result], path: Path, first_seed: int) -> None:
    """A CSV with a line for each run."""
    from fedul.files import write_bytes

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "algorithm", "seed", "test_error", "labels_used"])
    for result in results:
        contestant = result.contestant
        for i, error in enumerate(result.errors):
            row = [contestant.method_name, contestant.algorithm_name, first_seed + i, error, result.labels_used]
            writer.writerow(row)
    write_bytes(path, text.getvalue().encode())


def show_results(results: Sequence[Result], title: str) -> None:
    """The results as a table: without labels first, the best and all that are not significantly worse in bold."""
    several = len(results[0].errors) > 1
    algorithms = len({result.contestant.algorithm_name for result in results}) > 1
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True)
    if algorithms:
        table.add_column("algorithm", no_wrap=True)
    table.add_column("labels", justify="right", no_wrap=True)
    table.add_column("error %" + (" (std)" if several else ""), justify="right", no_wrap=True)
    if several:
        table.add_column("p", justify="right", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    ordered = sorted(results, key=lambda result: (result.labels_used > 0, result.mean))
    for i, result in enumerate(ordered):
        star = "*" if result.marked else " "
        error = f"{100 * result.mean:.2f}" + (f" ({100 * result.deviation:.2f})" if several else "") + star
        p_value = "" if result.p_value is None else f"{result.p_value:.3f}"
        cells = [result.contestant.method_name]
        cells += [result.contestant.algorithm_name] if algorithms else []
        cells += [f"{result.labels_used:,}", f"[bold green]{error}[/]" if result.marked else error]
        cells += [p_value] if several else []
        last_without = not result.labels_used and i + 1 < len(ordered) and ordered[i + 1].labels_used > 0
        table.add_row(*cells, f"{result.seconds:.1f}", end_section=last_without)
    show.out.print(table)
    if several:
        show.out.print("* the best without labels, and all that a paired t-test (5 %) does not call worse")
