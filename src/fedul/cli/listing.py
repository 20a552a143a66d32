"""`fedul methods` and `fedul algorithms`: what there is, and the settings of each."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedul.algorithms import ALGORITHMS
from fedul.cli import show
from fedul.methods import METHODS

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def methods(json: Json = False) -> None:
    """List the methods and their settings (--method-option NAME=VALUE)."""
    _list("method", METHODS, json)


def algorithms(json: Json = False) -> None:
    """List the algorithms and their settings (--algorithm-option NAME=VALUE)."""
    _list("algorithm", ALGORITHMS, json)


def _list(what: str, registry: Mapping[str, str], json: bool) -> None:
    found = {name: _described(place) for name, place in registry.items()}
    if json:
        show.print_json({f"{what}s": found})
        return
    for name, entry in found.items():
        show.out.print(f"[bold]{name}[/]  {escape(entry['summary'])}")
        settings = Table.grid(padding=(0, 2))
        settings.add_column(no_wrap=True)
        for setting, facts in entry["settings"].items():
            choices = f" (one of {', '.join(facts['choices'])})" if facts["choices"] else ""
            settings.add_row(f"    {setting}={facts['default']}", escape(facts["help"]) + choices)
        show.out.print(settings)
    show.out.print(f"Use: fedul train --{what} NAME --{what}-option SETTING=VALUE")


def _described(place: str) -> dict[str, Any]:
    module_name, _, kind = place.partition(":")
    module = import_module(module_name)
    settings = {
        f.name: {"default": f.default, "help": f.metadata["help"], "choices": list(f.metadata["choices"])}
        for f in fields(getattr(module, kind))
        if "help" in f.metadata
    }
    summary = (inspect.getdoc(module) or "").partition("\n\n")[0].replace("\n", " ")
    return {"summary": summary.partition(": ")[2] or summary, "settings": settings}
