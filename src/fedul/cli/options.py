"""Turns configuration classes into command-line options, so that every default and help text is written once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Annotated, Any, get_type_hints

import typer

from fedul.algorithms import ALGORITHMS
from fedul.errors import unknown
from fedul.methods import METHODS
from fedul.settings import read_toml, underscored

OwnModel = Annotated[str | None, typer.Option(help="package.module:factory, if the classifier was trained with one.")]
"""An option of every command that loads a classifier."""

REGISTRIES = {"method": METHODS, "algorithm": ALGORITHMS}
# Settings that a flag states twice as yes and no, under names that say what each means.
YES_NO = {"sets_overlap": "--sets-overlap/--sets-disjoint"}


def with_options(
    *configs: type[Any], leave_out: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command one option for each configuration field; it gets those that were given as `settings`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command, eval_str=True).parameters
        added: dict[str, inspect.Parameter] = {}
        for config in configs:
            hints = get_type_hints(config)
            for f in fields(config):
                if f.name not in leave_out:
                    annotation = _annotation(f, hints[f.name], panel=_panel(config))
                    added[f.name] = inspect.Parameter(
                        f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                    )

        @functools.wraps(command)
        def run(**given: Any) -> Any:
            settings = {name: given.pop(name) for name in added}
            return command(**given, settings={n: v for n, v in settings.items() if v is not None and v != []})

        positional = [p for name, p in own.items() if name != "settings"]
        run.__signature__ = inspect.Signature([*positional, *added.values()])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*positional, *added.values())}
        return run

    return decorate


def _panel(config: type[Any]) -> str:
    """OwnDataConfig as 'Own data'."""
    name = config.__name__.removesuffix("Config")
    return "".join(f" {c.lower()}" if i and c.isupper() else c for i, c in enumerate(name))


def _annotation(f: Field[Any], hint: Any, panel: str) -> Any:
    meta = f.metadata
    several = f.name.endswith("_option")
    default = {"sets": "10", "batch_size": str(f.default)}.get(f.name, f.default)
    shown = None if default in (None, (), False) else default
    choices = meta["choices"] or REGISTRIES.get(f.name, ())
    words = [f"one of {', '.join(choices)}"] if choices else []
    if f.name in YES_NO:
        shown = "overlap"
    if shown is not None:
        words.append(f"default {shown}")
    help = meta["help"] + (f" ({'; '.join(words)})" if words else "")
    flag = YES_NO.get(f.name, f"--{f.name.replace('_', '-')}")
    kind: Any = list[str] if several else bool if hint is bool else str if meta["parse"] else hint
    option = typer.Option(flag, help=help, show_default=False, rich_help_panel=panel)
    return Annotated[kind | None, option]


def merged(
    settings: Mapping[str, Any],
    config_file: str | None,
    configs: tuple[type[Any], ...],
    leave_out: tuple[str, ...] = (),
) -> dict[str, Any]:
    """All settings by name: flags win over the file; unknown names in the file are refused."""
    known = {f.name for config in configs for f in fields(config)} - set(leave_out)
    from_file = underscored({} if config_file is None else read_toml(config_file))
    for name in from_file:
        if name not in known:
            raise unknown(f"key in {config_file}", name.replace("_", "-"), {k.replace("_", "-") for k in known})
    return {**from_file, **settings}


def part(config: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings that belong to a configuration class."""
    names = {f.name for f in fields(config)}
    return {name: value for name, value in settings.items() if name in names}
