"""`fedul datasets`: what research data there is, where it is, and how to get it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedul.cli import show

app = typer.Typer(help="List the data sets, or fetch one.", invoke_without_command=True)

Folder = Annotated[str | None, typer.Option(help="Folder with data (default: FEDUL_DATA, then the user cache).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.callback(epilog="Example:  fedul datasets fetch mnist")
def datasets(context: typer.Context, data_dir: Folder = None, json: Json = False) -> None:
    """List the data sets and where they are on this machine."""
    if context.invoked_subcommand is not None:
        return
    from fedul.data import SOURCES, found

    places = {name: found(name, data_dir) for name in SOURCES}
    if json:
        rows = [
            {
                "name": name,
                "rows": source.rows,
                "classes": source.classes,
                "licence": source.licence,
                "embedded": source.embedded,
                "obtain": source.obtain or None,
                "path": None if places[name] is None else str(places[name]),
            }
            for name, source in SOURCES.items()
        ]
        show.print_json({"datasets": rows})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("what")
    table.add_column("rows", no_wrap=True, justify="right")
    table.add_column("licence", max_width=14)  # so that more is left for what it is
    table.add_column("here", no_wrap=True)
    for name, source in SOURCES.items():
        there = "embedded" if source.embedded else "yes" if places[name] else "no"
        table.add_row(name, source.about, f"{source.rows:,}", source.licence, there)
    show.out.print(table)
    for name, place in places.items():
        if place is None and (obtain := SOURCES[name].obtain):
            show.out.print(f"[bold]{name}[/] cannot be fetched: {escape(obtain)}.")
    if absent := [name for name, place in places.items() if place is None and not SOURCES[name].obtain]:
        show.out.print(f"Get one with: fedul datasets fetch {absent[0]}")


@app.command(epilog="Example:  fedul datasets fetch mnist --data-dir ~/data")
def fetch(
    name: Annotated[str, typer.Argument(help="Name of the data set.")],
    data_dir: Annotated[str | None, typer.Option(help="Where to put it (default: the user cache).")] = None,
    mirror: Annotated[str | None, typer.Option(help="Take the files from this address instead.")] = None,
    json: Json = False,
) -> None:
    """Download a data set, checked against its published checksum."""
    from fedul.data import fetch as fetching

    path = fetching.fetch(name, data_dir, mirror=mirror, progress=show.Download(name))
    if json:
        show.print_json({"name": name, "path": str(path)})
    else:
        show.out.print(f"{name} is in [bold]{escape(str(path))}[/]", soft_wrap=True)
