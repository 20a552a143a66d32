"""`fedul datasets`: the benchmark data sets, where they are on this machine, and how to get them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.cli.completion import complete_data
from fedul.cli.options import Json, examples

WIDTH_WITH_LICENCE = 80
"""Width of a terminal from which on the table shows licences; --json always has them."""

app = typer.Typer(help="List the benchmark data sets, or download one.", invoke_without_command=True)


@app.callback(epilog=examples("datasets", "datasets fetch mnist"))
def datasets(
    context: typer.Context,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder with data (default: FEDUL_DATA, then the user cache).")
    ] = None,
    json: Json = False,
) -> None:
    """List the benchmark data sets and whether they are on this machine."""
    if context.invoked_subcommand is not None:
        return
    from fedul.data import SOURCES, find_source

    places = {name: find_source(name, data_dir) for name in SOURCES}
    if json:
        rows = [
            {
                "name": name,
                "rows": source.rows,
                "classes": source.classes,
                "licence": source.licence,
                "embedded": source.embedded,
                "obtain": source.instructions or None,
                "path": None if places[name] is None else str(places[name]),
            }
            for name, source in SOURCES.items()
        ]
        show.print_json({"datasets": rows})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("description")
    table.add_column("rows", no_wrap=True, justify="right")
    wide = show.out.width >= WIDTH_WITH_LICENCE
    if wide:
        table.add_column("licence", max_width=14)  # leaves more room for the description
    table.add_column("available", no_wrap=True)
    for name, source in SOURCES.items():
        available = "embedded" if source.embedded else "yes" if places[name] else "no"
        table.add_row(name, source.about, f"{source.rows:,}", *([source.licence] if wide else []), available)
    show.out.print(table)
    absent = [name for name, place in places.items() if place is None]
    for name in absent:
        if instructions := SOURCES[name].instructions:
            show.out.print(f"[bold]{name}[/] cannot be downloaded: {escape(instructions)}.")
    if fetchable := [name for name in absent if not SOURCES[name].instructions]:
        show.out.print(f"Download one with: fedul datasets fetch {fetchable[0]}")


@app.command(epilog=examples("datasets fetch mnist", "datasets fetch mnist --data-dir ~/data"))
def fetch(
    name: Annotated[str, typer.Argument(help="Name of the data set.", autocompletion=complete_data)],
    data_dir: Annotated[str | None, typer.Option(help="Folder to download to (default: the user cache).")] = None,
    mirror: Annotated[str | None, typer.Option(help="Address to download the files from instead.")] = None,
    json: Json = False,
) -> None:
    """Download the data set NAME and verify its published checksum."""
    from fedul.data.fetch import fetch

    path = fetch(name, data_dir, mirror=mirror, progress=show.DownloadProgress(name))
    show.print_result(json, {"name": name, "path": str(path)}, f"{name} is in [bold]{escape(str(path))}[/]")
