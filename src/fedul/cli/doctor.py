"""`fedul doctor`: versions, machine and folders, and what is wrong with the installation."""

from __future__ import annotations

import typer

from fedul.cli import show
from fedul.cli.options import Json


def doctor(json: Json = False) -> None:
    """Print versions, extras, processor and folders, and what is wrong with this installation.

    Every problem is one sentence with what to do. The exit code is 1 if there is a problem. Nothing is changed, and no
    network is used.
    """
    from fedul.installation.doctor import doctor

    result = doctor()
    show.print_result(json, result.to_dict(), result)
    if not result.works:
        raise typer.Exit(1)
