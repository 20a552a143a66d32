"""Markdown about the program itself: its commands, options, methods and algorithms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from itertools import groupby
from typing import Any

import click
import typer

from fedul.algorithms import ALGORITHMS
from fedul.cli.commands import app
from fedul.methods import METHODS

EXAMPLE = re.compile(r"Example:\s+(.*)")


def commands() -> str:
    """Return a section for every command, with its options in the groups of `--help`."""
    return "\n".join(_sections(typer.main.get_command(app), "fedul"))


def _sections(command: Any, name: str) -> Iterator[str]:
    subcommands = getattr(command, "commands", {})
    if not subcommands or command.invoke_without_command:
        yield f"## {name}\n"
        with click.Context(command, info_name=name) as context:
            yield f"```text\n{' '.join([name, *command.collect_usage_pieces(context)])}\n```\n"
            yield _prose(command.help)
            yield from _parameters(command, context)
        yield _examples(command)
    for below, subcommand in subcommands.items():
        yield from _sections(subcommand, f"{name} {below}")


def _prose(text: str | None) -> str:
    return "\n\n".join(_escape(" ".join(paragraph.split())) for paragraph in (text or "").split("\n\n")) + "\n"


def _examples(command: Any) -> str:
    lines = EXAMPLE.findall(command.epilog or "")
    return "Examples:\n\n```sh\n" + "\n".join(lines) + "\n```\n" if lines else ""


def _parameters(command: Any, context: click.Context) -> Iterator[str]:
    shown = [each for each in command.params if each.name != "help" and not getattr(each, "hidden", False)]
    for panel, group in groupby(shown, key=_panel):
        yield f"**{panel}**\n"
        yield from (f"{_names(each, context)}\n:   {_help(each)}\n" for each in group)


def _panel(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    return getattr(parameter, "rich_help_panel", None) or "Options"


def _names(parameter: Any, context: click.Context) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_metavar(parameter, context)}`"
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" {_metavar(parameter, context)}"
    return f"`{names}{value}`"


def _metavar(parameter: Any, context: click.Context) -> str:
    metavar: str = parameter.make_metavar(context)
    return metavar.removesuffix(" RANGE")


def _help(parameter: Any) -> str:
    words = _escape(" ".join((parameter.help or "").split()))
    default = parameter.default
    if parameter.param_type_name == "option" and default not in (None, False, "", (), []) and "default" not in words:
        words += f" (default {default() if callable(default) else default})"
    if parameter.required and parameter.param_type_name == "option":
        words += " Required."
    return words


def options(name: str) -> str:
    """Return the options of a configuration class, one definition each; a name without a module is one of `fedul`."""
    module, _, kind = name.rpartition(".")
    config = getattr(import_module(module or "fedul"), kind)
    return "\n".join(_definition(f) for f in fields(config) if "help" in f.metadata)


def methods() -> str:
    """Return a section for every method."""
    return _components(METHODS)


def algorithms() -> str:
    """Return a section for every algorithm."""
    return _components(ALGORITHMS)


def _components(registry: Any) -> str:
    return "\n".join(part for name in registry for part in _component(name, registry.load(name)))


def _component(name: str, component: type[Any]) -> Iterator[str]:
    yield f"### {name}\n"
    yield _escape((inspect.getdoc(component) or "").partition("\n\n")[0].replace("\n", " ")) + "\n"
    for f in fields(component) if is_dataclass(component) else ():
        if "help" in f.metadata:
            yield _definition(f)


def _definition(f: Field[Any]) -> str:
    choices = f" One of {', '.join(f'`{each}`' for each in f.metadata['choices'])}." if f.metadata["choices"] else ""
    default = "" if f.default is MISSING else f"`{f.name} = {f.default!r}`"
    return f"{default}\n:   {_escape(f.metadata['help'])}{choices}\n"


def _escape(text: str) -> str:
    """Return a help text as Markdown: names in quotation marks become code, and nothing else is markup."""
    return re.sub(r"([*_<\[|])", r"\\\1", text)
