"""Reproduction of the paper's tables and figures: what ``fedul reproduce`` does.

The folder `out` has the runs of all tables, and one folder per table with its page, table, figure and CSV file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul import data as benchmarks
from fedul._utils.display import RichDisplay, make_table
from fedul._utils.files import write_bytes
from fedul._utils.hardware import available_cores
from fedul._utils.settings import parse_name_values, with_underscores
from fedul.config import EXECUTORS, check_executor
from fedul.errors import InputError, unknown_name
from fedul.experiments.executors import make_executor
from fedul.experiments.figures import draw_experiment
from fedul.experiments.grid import BEST_NOTE
from fedul.experiments.paper import COMMAND_OPTIONS, Experiment, load_experiment
from fedul.experiments.paper_cells import CellResult, finished_cells, mark_best_cells, run_cells
from fedul.experiments.paper_tables import SMOKE_NOTE, lay_out_table, render_page, to_csv, to_latex, to_markdown
from fedul.training import Callback, CallbackList

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

MAX_DEFAULT_JOBS = 8
"""Most concurrent runs by default: each takes half a gigabyte."""
PAGE, TABLE, LATEX, RUNS_TABLE, FIGURE = "page.md", "table.md", "table.tex", "runs.csv", "figure.svg"


@dataclass(frozen=True, eq=False, repr=False)
class ReproductionResult(RichDisplay):
    """Result of a reproduction; prints as a table in the paper's layout.

    Parameters
    ----------
    experiment : Experiment
        The table or figure, with the cells that were asked for.
    results : sequence of CellResult
        Results of these cells.
    folder : Path
        Folder of the written files.
    """

    experiment: Experiment
    results: Sequence[CellResult]
    folder: Path

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values, as ``fedul reproduce --json`` prints them."""
        return {
            "experiment": self.experiment.name,
            "scale": self.experiment.scale,
            "folder": str(self.folder),
            "cells": [result.to_dict() for result in self.results],
        }

    def __rich__(self) -> RenderableType:
        from rich.console import Group

        tables = _FirstThatFits(self._table_as_published(), self._table_by_cell())
        if self.experiment.seeds > 1 and any(result.best for result in self.results):
            return Group(tables, f"bold: {BEST_NOTE}")
        return tables

    def _table_as_published(self) -> Table:
        layout = lay_out_table(self.experiment, self.results)
        table = make_table(layout.row_axes, layout.columns, _heading(self.experiment), wrap_numbers=True)
        for heads, entries in layout.rows:
            table.add_row(*heads, *(_emphasize(entry.ours, best=entry.best) for entry in entries))
            if any(entry.published for entry in entries):
                published = [f"[dim]{entry.published}[/]" for entry in entries]
                table.add_row("[dim]published[/]", *[""] * (len(heads) - 1), *published)
        return table

    def _table_by_cell(self) -> Table:
        layout = lay_out_table(self.experiment, self.results)
        table = make_table([*layout.row_axes, ""], ["ours", "published"], _heading(self.experiment), wrap_numbers=True)
        for heads, entries in layout.rows:
            for column, entry in zip(layout.columns, entries, strict=True):
                table.add_row(*heads, column, _emphasize(entry.ours, best=entry.best), f"[dim]{entry.published}[/]")
        return table


def reproduce(
    name: str,
    *,
    scale: str = "laptop",
    only: str | None = None,
    data: str | None = None,
    data_dir: str | None = None,
    seeds: int | None = None,
    rounds: int | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    jobs: int = 0,
    executor: str = EXECUTORS[0],
    ray_address: str | None = None,
    out: str | Path = "reproduced",
    callbacks: Sequence[Callback] = (),
    on_cell: Callable[[Experiment, CellResult], None] | None = None,
) -> ReproductionResult:
    """Reproduce a table or figure of the paper.

    Files are written after every cell, so that they are complete at any time.

    Parameters
    ----------
    name : str
        One of `fedul.experiments.paper.experiment_names`.
    scale : {"paper", "laptop", "smoke"}, default="laptop"
        The published setting, what two cores finish, or a test on digits.
    only : str, optional
        Cells to run: "split=iid,sets=10|20".
    data : str, optional
        Another data set for all cells.
    data_dir : str, optional
        Folder with data files.
    seeds, rounds : int, optional
        Number of seeds, and rounds of every run. Default: those of the scale.
    settings : mapping or sequence of "NAME=VALUE"
        Settings for all cells.
    jobs : int, default=0
        Runs at the same time; 0 means one per core at laptop scale, and else one. On Ray it means all that the
        cluster has room for, but one if times are measured.
    executor : {"processes", "ray"}, default="processes"
        Where runs are trained: in processes of this machine, or as tasks of a Ray cluster.
    ray_address : str, optional
        Address (HOST:PORT) of a Ray cluster. Default: the variable RAY_ADDRESS, else a local Ray is started.
    out : str or Path
        Folder of results. Runs in it are not repeated.
    callbacks : sequence of Callback
        Called for every run.
    on_cell : callable, optional
        Called with the experiment and the result of every cell once it is finished.

    Returns
    -------
    ReproductionResult
        The results of the cells, and where the files are.
    """
    if not str(out) or Path(out).is_file():
        raise InputError(f"out: '{out}' is not a folder; name one.")
    if data is not None and data not in benchmarks.SOURCES:
        raise unknown_name("data set", data, benchmarks.SOURCES)
    check_executor(executor, ray_address)
    callback, changes = CallbackList(callbacks), _parse_settings(settings)
    options = {"data": data, "data_dir": data_dir, "rounds": rounds}
    changes_of_all = {**changes, **{key: value for key, value in options.items() if value is not None}}
    whole = load_experiment(name, scale, changes_of_all)
    whole = replace(whole, seeds=seeds or whole.seeds)
    asked = _with_available_data(whole.select(only), callback)
    changed = [f"{key.replace('_', '-')}={value}" for key, value in changes.items()]
    parts = [name, scale, data, rounds and f"{rounds}-rounds", seeds and f"{seeds}-seeds", *changed]
    folder = Path(out) / _as_file_name("-".join(str(part) for part in parts if part))
    flags = {"scale": scale, "data": data, "seeds": seeds, "rounds": rounds}
    given = [f"--{key} {value}" for key, value in flags.items() if value]
    command = " ".join(["fedul reproduce", name, *given, *(f"--set {each}" for each in changed)])
    default_jobs = min(available_cores(), MAX_DEFAULT_JOBS) if scale == "laptop" and not whole.is_timed else 1
    most = jobs or (1 if whole.is_timed else None)
    chosen = make_executor(executor, jobs=most, default_jobs=default_jobs, ray_address=ray_address)

    results = {}
    finished = {result.cell.place: result for result in finished_cells(whole, Path(out))}
    with closing(run_cells(asked, Path(out), callback, chosen)) as cells:
        for result in cells:
            place = result.cell.place
            results[place] = result
            if on_cell is not None:
                on_cell(asked, result)
            if place not in finished:
                finished[place] = result
                so_far = [finished[cell.place] for cell in whole.cells if cell.place in finished]
                write_files(whole, so_far, folder, command)
    write_files(whole, finished_cells(whole, Path(out)), folder, command)  # with cells that other processes ran
    return ReproductionResult(asked, mark_best_cells(asked, [results[cell.place] for cell in asked.cells]), folder)


def missing_data(experiment: Experiment) -> list[str]:
    """Return the data sets of an experiment that are not on this machine."""
    wanted = {cell.data.data: cell.data.data_dir for cell in experiment.cells}
    return [name for name, folder in wanted.items() if benchmarks.find_source(name, folder) is None]


def write_files(experiment: Experiment, results: Sequence[CellResult], folder: Path, command: str) -> None:
    """Write the page, the table in three formats, and the figure if there is one."""
    results = mark_best_cells(experiment, results)
    table = lay_out_table(experiment, results)
    texts = {
        PAGE: render_page(experiment, results, command),
        TABLE: f"{_heading(experiment)}.\n\n{to_markdown(table)}",
        LATEX: f"% {_heading(experiment)}.\n{to_latex(table)}",
        RUNS_TABLE: to_csv(experiment, results),
    }
    for file, text in texts.items():
        write_bytes(folder / file, text.encode())
    if experiment.x is not None:
        draw_experiment(experiment, results, folder / FIGURE)


def _parse_settings(settings: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    try:
        parsed = with_underscores(parse_name_values(settings))
    except ValueError as problem:
        raise InputError(f"set: expected {problem}, got '{' '.join(settings)}'.") from None
    if elsewhere := [name for name in (*COMMAND_OPTIONS, "seed") if name in parsed]:
        raise InputError(f"set: {elsewhere[0].replace('_', '-')} has its own option; see --help.")
    return parsed


def _with_available_data(experiment: Experiment, callback: Callback) -> Experiment:
    """Return the experiment with the cells whose data is on this machine."""
    missing = missing_data(experiment)
    if not missing:
        return experiment
    available = [cell for cell in experiment.cells if cell.data.data not in missing]
    message = f"{', '.join(missing)}: not on this machine; 'fedul datasets' says how to get it."
    if not available:
        raise InputError(message)
    callback.on_warning(f"{message} Its cells are left out.")
    return replace(experiment, cells=available)


def _heading(experiment: Experiment) -> str:
    return f"{experiment.heading}. {SMOKE_NOTE}" if experiment.scale == "smoke" else experiment.heading


def _as_file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.=," else "_" for c in text)[:120]


def _emphasize(text: str, *, best: bool) -> str:
    return f"[bold green]{text}[/]" if best else text


class _FirstThatFits:
    """The first of several tables that fits into the width of the terminal, or the last."""

    def __init__(self, *tables: Table) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        fitting = [table for table in self._tables if console.measure(table).maximum <= options.max_width]
        yield (*fitting, self._tables[-1])[0]
