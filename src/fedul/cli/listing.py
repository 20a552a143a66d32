"""`fedul methods` and `fedul algorithms`: the registered components, with their settings and where they come from."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from fedul._utils.registry import Registry
from fedul.algorithms import ALGORITHMS
from fedul.cli import show
from fedul.cli.options import Json
from fedul.errors import InputError
from fedul.methods import METHODS


def methods(json: Json = False) -> None:
    """List the methods and their settings.

    A method is what a client minimises. Methods of other installed packages are listed with the name of the package.
    """
    _list(METHODS, json)


def algorithms(json: Json = False) -> None:
    """List the algorithms and their settings.

    An algorithm turns client updates into the next global model. Algorithms of other installed packages are listed
    with the name of the package.
    """
    _list(ALGORITHMS, json)


def _list(registry: Registry[Any], json: bool) -> None:
    components = {}
    for name in registry:
        try:
            components[name] = _describe(registry.load(name), registry.package(name))
        except InputError as problem:
            show.print_note(str(problem))
    if json:
        show.print_json({f"{registry.kind}s": components})
        return
    for name, component in components.items():
        package = f" (package {component['package']})" if component["package"] != "fedul" else ""
        show.out.print(f"[bold]{escape(name)}[/]{escape(package)}  {escape(component['summary'])}")
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        for setting, details in component["settings"].items():
            choices = f" (one of {', '.join(details['choices'])})" if details["choices"] else ""
            table.add_row(escape(f"    {setting}={details['default']}"), escape(details["help"] + choices))
        if table.rows:
            show.out.print(table)
    show.out.print(f"\nUse: fedul train --{registry.kind} NAME --{registry.kind}-option SETTING=VALUE")


def _describe(component: type[Any], package: str) -> dict[str, Any]:
    """Return the summary line of a class and its settings."""
    settings = {
        f.name: {"default": f.default, "help": f.metadata["help"], "choices": list(f.metadata.get("choices", ()))}
        for f in (fields(component) if is_dataclass(component) else ())
        if "help" in f.metadata
    }
    summary = (inspect.getdoc(component) or "").partition("\n\n")[0].replace("\n", " ")
    return {"package": package, "summary": summary, "settings": settings}
