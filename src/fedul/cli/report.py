"""`fedul report`: a run folder in, one page to look at out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.errors import FedulError, InputError

if TYPE_CHECKING:
    from fedul.federation import Federation


def report(
    run: Annotated[str, typer.Argument(help="Folder of a run.")],
    out: Annotated[str | None, typer.Option(help="HTML file to write (default: report.html in the folder).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a page about a run: one HTML file that needs no network."""
    from fedul.files import write_bytes
    from fedul.report.facts import facts_of
    from fedul.report.page import page
    from fedul.runs import PAGE, RunFolder

    folder = RunFolder(run)
    facts_of(folder)  # what is wrong with the folder is told before data is loaded
    facts = facts_of(folder, _federation(folder.stored_config() or {}))
    file = Path(run) / PAGE if out is None else Path(out)
    write_bytes(file, page(facts).encode())
    if json:
        parts = {"priors": facts.clients, "evaluation": facts.evaluation, "check": facts.check}
        missing = [name for name, part in parts.items() if part is None]
        show.print_json({"run": run, "out": str(file), "missing": missing})
    else:
        show.out.print(f"report written to [bold]{escape(str(file))}[/]", soft_wrap=True)


def _federation(config: Mapping[str, Any]) -> Federation | None:
    """The federation that the run was trained on, if its data is still there and the same."""
    from fedul.data.chosen import data_config
    from fedul.data.study import load_config

    try:
        if not config.get("data"):
            raise InputError("the run does not say where its data is from.")
        federation = load_config(data_config(config["data"])).federation
        if federation.fingerprint() != config.get("data_fingerprint"):
            raise InputError("the data is not what the run was trained on.")
    except FedulError as problem:
        reason = f"the page goes without class priors: {problem}"
        show.err.print(f"[yellow]note:[/] {escape(reason)}", soft_wrap=True)
        return None
    return federation
