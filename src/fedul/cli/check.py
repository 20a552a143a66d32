"""`fedul check`: before training, are these sets and priors enough, and what would help?"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.cli.options import merged, part, with_options
from fedul.config import DataConfig, OwnDataConfig
from fedul.data.chosen import data_config

KINDS = (OwnDataConfig, DataConfig)


@with_options(*KINDS)
def check(
    settings: dict[str, Any],
    config: Annotated[str | None, typer.Option(help="TOML file with options by name; flags win.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Tell whether data and class priors are enough, how many labels they are worth, and what would help."""
    options = merged(settings, config, KINDS)
    data = data_config({**part(OwnDataConfig, options), **part(DataConfig, options)})
    # Only now, so that a wrong option is told before torch is loaded.
    from fedul.data.study import load_config
    from fedul.evaluation.outlook import outlook

    study = load_config(data)
    found = outlook(study.federation)
    if json:
        show.print_json({**found.plain(), "remarks": list(study.remarks)})
        return
    for sentence in study.remarks:
        show.err.print(f"[yellow]note:[/] {escape(sentence)}", soft_wrap=True)
    from fedul.cli.check_view import show_outlook

    show_outlook(found)
