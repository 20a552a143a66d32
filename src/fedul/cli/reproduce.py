"""`fedul reproduce`: the tables and figures of the paper, each by one command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.errors import InputError, unknown
from fedul.settings import name_values, underscored

if TYPE_CHECKING:
    from fedul.experiments.declaration import Cell, Declaration
    from fedul.experiments.runner import Found

MOST_AT_ONCE = 8
"""Processes that are started unasked: each takes half a gigabyte."""


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Table or figure; without it, they are listed.")] = None,
    scale: Annotated[
        str, typer.Option(help="paper: the published setting; laptop: what two cores finish; smoke: a test on digits.")
    ] = "laptop",
    only: Annotated[
        str | None, typer.Option(help="Cells to run, by their axes: 'split=iid,sets=10|20'; --json lists the axes.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Another data set for all cells (table2: mednist, brain-mri).")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with data files.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds (default: the table's).", min=1, max=1000)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run (default: the scale's).", min=1)] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting for all cells, as 'fedul train' has it: --set loss=authors.", metavar="NAME=VALUE"
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Runs at a time (0: one a core at laptop scale, else one).", min=0, max=1024)
    ] = 0,
    out: Annotated[str, typer.Option(help="Folder of results; runs that are in it are not repeated.")] = "reproduced",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Reproduce a table or figure of the paper, ours beside the published numbers."""
    from dataclasses import replace

    from fedul.data import SOURCES
    from fedul.experiments.declaration import declared, names
    from fedul.experiments.runner import finished, judged
    from fedul.experiments.runner import reproduce as run_cells
    from fedul.hardware import cores

    if name is None:
        _list([declared(each) for each in names()], as_json=json)
        return
    folder = Path(out)
    if not out or folder.is_file():
        raise InputError(f"out: '{out}' is not a folder; name one.")
    if data is not None and data not in SOURCES:
        raise unknown("data set", data, SOURCES)
    changed = _changed(change or [])
    given = {"data": data, "data_dir": data_dir, "rounds": rounds}
    whole = declared(name, scale, {**changed, **{key: value for key, value in given.items() if value is not None}})
    whole = replace(whole, seeds=seeds or whole.seeds)
    asked = _with_data(whole.only(only))
    also = [f"{key.replace('_', '-')}={value}" for key, value in changed.items()]
    parts = [name, scale, data, rounds and f"{rounds}-rounds", seeds and f"{seeds}-seeds", *also]
    place = folder / _file_name("-".join(str(part) for part in parts if part))
    told = [("scale", scale), ("data", data), ("seeds", seeds), ("rounds", rounds), *(("set", each) for each in also)]
    command = " ".join(["fedul reproduce", name, *(f"--{key} {value}" for key, value in told if value)])
    at_once = min(cores(), MOST_AT_ONCE) if scale == "laptop" and not whole.timed else 1
    found: list[Found] = []
    known = {_place(one.cell): one for one in finished(whole, folder)}  # read once, and not for every cell
    for one in run_cells(asked, folder, show.Runs(), jobs or at_once):
        found.append(one)
        _tell(asked, one)
        if _place(one.cell) not in known:
            known[_place(one.cell)] = one
            so_far = [known[_place(cell)] for cell in whole.cells if _place(cell) in known]
            _write(whole, judged(whole, so_far), place, command)
    _write(whole, judged(whole, finished(whole, folder)), place, command)
    order = {_place(cell): number for number, cell in enumerate(asked.cells)}
    found = judged(asked, sorted(found, key=lambda one: order[_place(one.cell)]))
    if json:
        show.print_json({"experiment": name, "scale": scale, "folder": str(place), "cells": [_plain(f) for f in found]})
        return
    _show(asked, found)
    show.out.print(f"tables and figures in [bold]{escape(str(place))}[/]", soft_wrap=True)


def _with_data(asked: Declaration) -> Declaration:
    """The cells whose data is on this machine."""
    from dataclasses import replace

    from fedul.experiments.runner import missing_data

    missing = missing_data(asked)
    if not missing:
        return asked
    there = [cell for cell in asked.cells if cell.data.data not in missing]
    sentence = f"{', '.join(missing)}: not on this machine; 'fedul datasets' says how to get it."
    if not there:
        raise InputError(sentence)
    show.err.print(f"[yellow]note:[/] {escape(sentence)} Its cells are left out.", soft_wrap=True)
    return replace(asked, cells=there)


def _changed(settings: Sequence[str]) -> dict[str, Any]:
    """Settings that hold for all cells."""
    try:
        found = underscored(name_values(settings))
    except ValueError as problem:
        raise InputError(f"set: expected {problem}, got '{' '.join(settings)}'.") from None
    for own in ("data", "data_dir", "rounds", "seed"):
        if own in found:
            raise InputError(f"set: {own.replace('_', '-')} has an option of its own; see --help.")
    return found


def _file_name(text: str) -> str:
    """Without what a file name cannot have."""
    return "".join(c if c.isalnum() or c in "-_.=," else "_" for c in text)[:120]


def _place(cell: Cell) -> tuple[str, ...]:
    """Where in its table a cell is."""
    return tuple(cell.values.values())


def _list(every: Sequence[Declaration], *, as_json: bool) -> None:
    if as_json:
        facts = [{"name": d.name, "source": d.source, "title": d.title, "axes": dict(d.axes)} for d in every]
        show.print_json({"experiments": facts})
        return
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("name", "in the paper", "what", "laptop runs"):
        table.add_column(head, justify="right" if head == "laptop runs" else "left")
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


def _write(declaration: Declaration, found: Sequence[Found], place: Path, command: str) -> None:
    """The files of a table; each is whole at any time, and grows cell by cell."""
    from fedul.files import write_bytes
    from fedul.report.paper_figures import draw_figure
    from fedul.report.paper_pages import page
    from fedul.report.paper_tables import comma_separated, grid, heading, latex, markdown

    table = grid(declaration, found)
    said = heading(declaration)
    texts = {
        "page.md": page(declaration, found, command),
        "table.md": f"{said}.\n\n{markdown(table)}",
        "table.tex": f"% {said}.\n{latex(table)}",
        "runs.csv": comma_separated(declaration, found),
    }
    for file, text in texts.items():
        write_bytes(place / file, text.encode())
    if declaration.x is not None:
        draw_figure(declaration, found, place / "figure.svg")


def _show(declaration: Declaration, found: Sequence[Found]) -> None:
    """The table in the paper's layout where it fits, else a line for each cell."""
    from fedul.report.paper_tables import grid, heading

    made = grid(declaration, found)
    entries = [entry for _, row in made.rows for entry in row]
    width = sum(len(head) + 2 for head in made.corner) + 24
    width += len(made.columns) * (2 + max(max(len(e.ours), len(e.published)) for e in entries))
    table = Table(title=heading(declaration), box=box.SIMPLE_HEAD)
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
            table.add_column(head, justify="right" if head in ("ours", "published") else "left", no_wrap=head == "ours")
        for heads, row in made.rows:
            for column, e in zip(made.columns, row, strict=True):
                table.add_row(*heads, column, _bold(e.ours, marked=e.marked), f"[dim]{e.published}[/]")
    show.out.print(table)
    if declaration.seeds > 1 and any(one.marked for one in found):
        show.out.print("bold: the best without labels, and all that a paired t-test (5 %) does not call worse")


def _bold(text: str, *, marked: bool) -> str:
    return f"[bold green]{text}[/]" if marked else text


def _plain(found: Found) -> dict[str, object]:
    return {
        "cell": dict(found.cell.values),
        "means": found.means,
        "stds": found.deviations,
        "figures": [list(each) for each in found.figures],
        "ran_on": found.cell.data.data,
        "published": [[None if math.isnan(v) else v for v in pair] for pair in found.cell.published],
        "labels_used": found.labels_used,
        "best": found.marked,
    }
