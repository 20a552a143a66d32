"""`fedul watch`: a page that follows a run."""

from __future__ import annotations

from typing import Annotated

import typer

from fedul.cli import show
from fedul.cli.documents import WatchDocument
from fedul.cli.options import Json


def watch(
    run: Annotated[
        str,
        typer.Argument(
            help="Folder of a run, finished or not, or of a federation, whose latest run is followed.", metavar="RUN"
        ),
    ],
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535, show_default=True)
    ] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for RUN if it begins later.")] = False,
    open: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: Json = False,
) -> None:
    """Serve one page on this machine that follows RUN while it goes on, until Ctrl-C.

    The page updates itself: progress and time left, learning curves, sites, warnings, and the report when it is there.
    It is read-only. Its address contains a secret, and is for browsers on this machine.
    """
    from fedul.reporting.live.watch import watch

    with watch(run, port=port, wait=wait, open=open) as page:
        if json:
            show.print_json(WatchDocument(page.run, page.url).to_dict())
        else:
            show.write_stdout(f"{page.url}\n")  # flushed, for programs that read it
        show.print_note("the page follows the run until Ctrl-C; the address is a secret.")
        page.wait()
