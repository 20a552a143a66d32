"""`fedul reproduce`: the tables and figures of the paper, each by one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.errors import InputError

if TYPE_CHECKING:
    from fedul.experiments.declaration import Declaration
    from fedul.experiments.runner import Found


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Table or figure; without it, they are listed.")] = None,
    scale: Annotated[
        str, typer.Option(help="paper: the published setting; laptop: what two cores finish; smoke: a test.")
    ] = "laptop",
    only: Annotated[
        str | None, typer.Option(help="Cells to run, e.g. 'data=mnist,split=iid,sets=10|20,method=fedul'.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Another data set for all cells (table2: mednist, brain-mri).")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with data files.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds (default: the table's).", min=1)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run (default: the scale's).", min=1)] = None,
    out: Annotated[str, typer.Option(help="Folder of results; runs that are in it are not repeated.")] = "reproduced",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Reproduce a table or figure of the paper, ours beside the published numbers."""
    from dataclasses import replace

    from fedul.experiments.declaration import declared, names
    from fedul.experiments.runner import judged, missing_data
    from fedul.experiments.runner import reproduce as run_cells

    if name is None:
        _list([declared(each) for each in names()])
        return
    changes = {"data": data, "data_dir": data_dir, "rounds": rounds}
    asked = declared(name, scale, {key: value for key, value in changes.items() if value is not None}).only(only)
    asked = replace(asked, seeds=seeds or asked.seeds)
    if missing := missing_data(asked):
        there = [cell for cell in asked.cells if cell.data.data not in missing]
        sentence = f"{', '.join(missing)}: not on this machine; 'fedul datasets' says how to get it."
        if not there:
            raise InputError(sentence)
        show.err.print(f"[yellow]note:[/] {escape(sentence)} Its cells are left out.", soft_wrap=True)
        asked = replace(asked, cells=there)
    folder = Path(out)
    place = folder / f"{name}-{scale}{f'-{data}' if data else ''}"
    found: list[Found] = []
    for one in run_cells(asked, folder, show.Runs()):
        found.append(one)
        _tell(asked, one)
        _write(asked, judged(asked, found), place)
    found = judged(asked, found)
    if json:
        show.print_json({"experiment": name, "scale": scale, "folder": str(place), "cells": [_plain(f) for f in found]})
        return
    _show(asked, found)
    show.out.print(f"tables and figures in [bold]{escape(str(place))}[/]", soft_wrap=True)


def _list(every: Sequence[Declaration]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("name", "in the paper", "what", "runs"):
        table.add_column(head, justify="right" if head == "runs" else "left")
    for one in every:
        table.add_row(one.name, one.source, one.title, f"{len(one.cells) * one.seeds:,}")
    show.out.print(table)
    show.out.print("run one with 'fedul reproduce NAME'; --scale paper, laptop or smoke.")


def _tell(declaration: Declaration, found: Found) -> None:
    """A line for a cell that is done."""
    from fedul.report.paper_tables import as_printed, printed

    values = ", ".join(declaration.label(value) for value in found.cell.values.values())
    theirs = f"   published {printed(found.cell.published)}" if found.cell.published else ""
    show.err.print(f"{escape(values)}: [bold]{as_printed(found)}[/]{theirs}", soft_wrap=True)


def _write(declaration: Declaration, found: Sequence[Found], place: Path) -> None:
    """The files of a table; each is whole at any time, and grows cell by cell."""
    from fedul.files import write_bytes
    from fedul.report.paper_figures import draw_figure
    from fedul.report.paper_tables import comma_separated, grid, latex, markdown

    table = grid(declaration, found)
    texts = {"table.md": markdown(table), "table.tex": latex(table), "runs.csv": comma_separated(declaration, found)}
    for file, text in texts.items():
        write_bytes(place / file, text.encode())
    if declaration.x is not None:
        draw_figure(declaration, found, place / "figure.svg")


def _show(declaration: Declaration, found: Sequence[Found]) -> None:
    """The table in the paper's layout where it fits, else a line for each cell."""
    from fedul.report.paper_tables import grid

    made = grid(declaration, found)
    seeds = "1 seed" if declaration.seeds == 1 else f"{declaration.seeds} seeds"
    title = f"{declaration.source}: {declaration.title} ({declaration.scale} scale, {seeds})"
    entries = [entry for _, row in made.rows for entry in row]
    width = sum(len(head) + 2 for head in made.corner) + 24
    width += len(made.columns) * (2 + max(max(len(e.ours), len(e.published)) for e in entries))
    table = Table(title=title, box=box.SIMPLE_HEAD)
    if width <= show.out.width:
        for i, head in enumerate([*made.corner, *made.columns]):
            table.add_column(head, justify="left" if i < len(made.corner) else "right", no_wrap=i < len(made.corner))
        for heads, row in made.rows:
            table.add_row(*heads, *(_bold(e.ours, marked=e.marked) for e in row))
            if any(e.published for e in row):
                theirs = [f"[dim]{e.published}[/]" for e in row]
                table.add_row("[dim]published[/]", *[""] * (len(heads) - 1), *theirs)
    else:
        for head in (*made.corner, "", "ours", "published"):
            table.add_column(head, justify="right" if head in ("ours", "published") else "left", no_wrap=True)
        for heads, row in made.rows:
            for column, e in zip(made.columns, row, strict=True):
                table.add_row(*heads, column, _bold(e.ours, marked=e.marked), f"[dim]{e.published}[/]")
    show.out.print(table)
    if any(one.marked for one in found):
        show.out.print("bold: the best without labels, and all that a paired t-test (5 %) does not call worse")


def _bold(text: str, *, marked: bool) -> str:
    return f"[bold green]{text}[/]" if marked else text


def _plain(found: Found) -> dict[str, object]:
    return {
        "cell": dict(found.cell.values),
        "means": found.means,
        "stds": found.deviations,
        "figures": [list(each) for each in found.figures],
        "published": [list(pair) for pair in found.cell.published],
        "labels_used": found.labels_used,
        "best": found.marked,
    }
