"""`fedul example`: files to try the four commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.errors import InputError


def example(
    folder: Annotated[str, typer.Argument(help="Folder to write the files into.")] = "hospitals",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write an example: patients of four hospitals without a diagnosis, and published prevalences. All made up."""
    from fedul.data.example import write_example

    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{folder}: exists already; name a new folder.")
    files = [str(path) for path in write_example(place)]
    if json:
        show.print_json({"files": files})
        return
    for file in files:
        show.out.print(escape(file), soft_wrap=True)
    show.out.print(
        f"next: fedul check --data {escape(folder)}/patients.csv --priors {escape(folder)}/prevalence.csv "
        "--client-column hospital --set-column month",
        soft_wrap=True,
    )
