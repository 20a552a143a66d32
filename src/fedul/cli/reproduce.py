"""`fedul reproduce`: the tables and figures of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.cli.completion import complete_choice, complete_data, complete_experiment
from fedul.cli.options import Json
from fedul.config import (
    EXECUTOR_HELP,
    EXECUTORS,
    EXPERIMENT_HELP,
    RAY_ADDRESS_HELP,
    SCALES,
    TRACK_HELP,
    TRACKING_URI_HELP,
    TrackingConfig,
)

if TYPE_CHECKING:
    from fedul.experiments.paper import Experiment
    from fedul.experiments.paper_cells import CellResult


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="Table or figure; without it, they are listed.", autocompletion=complete_experiment),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="paper: the published setting; laptop: what two cores finish; smoke: a test on digits.",
            autocompletion=complete_choice(SCALES),
        ),
    ] = "laptop",
    only: Annotated[
        str | None, typer.Option(help="Cells to run, by their axes: 'split=iid,sets=10|20'; --json lists the axes.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Another data set for all cells (table2: mednist, brain-mri).", autocompletion=complete_data),
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with data files.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds (default: the table's).", min=1, max=1000)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run (default: the scale's).", min=1)] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Option of 'fedul train' for all cells: --set loss=authors (repeatable).",
            metavar="NAME=VALUE",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Concurrent runs (0 = one per core at laptop scale, else one).", min=0, max=1024)
    ] = 0,
    executor: Annotated[str, typer.Option(help=EXECUTOR_HELP, autocompletion=complete_choice(EXECUTORS))] = EXECUTORS[
        0
    ],
    ray_address: Annotated[str | None, typer.Option(help=RAY_ADDRESS_HELP)] = None,
    track: Annotated[str | None, typer.Option(help=TRACK_HELP)] = None,
    tracking_uri: Annotated[str | None, typer.Option(help=TRACKING_URI_HELP)] = None,
    experiment: Annotated[str | None, typer.Option(help=EXPERIMENT_HELP)] = None,
    out: Annotated[
        str, typer.Option(help="Folder for the results; runs that it holds are not repeated.")
    ] = "reproduced",
    json: Json = False,
) -> None:
    """Reproduce NAME, a table or figure of the paper, and print it with the published numbers.

    Without NAME, the tables and figures are listed.
    """
    from fedul.experiments.paper import experiment_names, load_experiment
    from fedul.experiments.reproduce import reproduce as run_experiment
    from fedul.tracking import make_trackers

    if name is None:
        _list_experiments([load_experiment(each) for each in experiment_names()], as_json=json)
        return
    trackers = make_trackers(TrackingConfig(track, tracking_uri, experiment))
    with show.TrainingProgress() as progress:
        result = run_experiment(
            name,
            scale=scale,
            only=only,
            data=data,
            data_dir=data_dir,
            seeds=seeds,
            rounds=rounds,
            settings=change or [],
            jobs=jobs,
            executor=executor,
            ray_address=ray_address,
            out=out,
            callbacks=[progress, *trackers],
            on_cell=_print_cell,
        )
    place = f"tables and figures in [bold]{escape(str(result.folder))}[/]"
    show.print_result(json, result.to_dict(), result, place)


def _list_experiments(experiments: Sequence[Experiment], *, as_json: bool) -> None:
    listed = [{"name": e.name, "source": e.source, "title": e.title, "axes": dict(e.axes)} for e in experiments]
    table = Table("name", "in the paper", "title", box=box.SIMPLE_HEAD)
    table.add_column("laptop runs", justify="right")
    for experiment in experiments:
        runs = len(experiment.cells) * experiment.seeds
        table.add_row(experiment.name, experiment.source, experiment.title, f"{runs:,}")
    advice = "Run one with: fedul reproduce NAME --scale SCALE (paper, laptop or smoke)"
    show.print_result(as_json, {"experiments": listed}, table, advice)


def _print_cell(experiment: Experiment, result: CellResult) -> None:
    from fedul.experiments.paper_tables import format_published, format_result

    place = ", ".join(map(experiment.label, result.cell.place))
    published = f"   published {format_published(result.cell.published)}" if result.cell.published else ""
    show.err.print(f"{escape(place)}: [bold]{format_result(result)}[/]{published}", soft_wrap=True)
