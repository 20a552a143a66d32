"""Command-line options made from configuration classes, so that every default and help text is written once."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Annotated, Any, get_type_hints

import typer

from fedul._utils.settings import read_toml, with_underscores
from fedul.cli.completion import COMPLETERS, complete_choice
from fedul.config import BenchmarkDataConfig, FileDataConfig
from fedul.errors import unknown_name

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
ConfigFile = Annotated[
    str | None, typer.Option(help="TOML file with options by name; options on the command line take precedence.")
]
RunPath = Annotated[str, typer.Argument(help="Folder of a finished run.", metavar="RUN")]
ModelFactory = Annotated[
    str | None, typer.Option(help="package.module:factory, if the classifier was trained with your own model.")
]
Site = Annotated[
    str | None,
    typer.Option(help="Site that the rows are from, if the run has an adjustment or a classifier for each site."),
]
MovedData = Annotated[
    str | None,
    typer.Option("--data", help="Where the data of the run is now, if it has moved: --data new/patients.csv."),
]
MovedPriors = Annotated[
    str | None, typer.Option("--priors", help="Where its class priors are now, if they have moved.")
]

LIST_HINTS = {"method": "'fedul methods' lists them", "algorithm": "'fedul algorithms' lists them"}
"""Hints in the help of options whose choices installed packages can extend."""

FLAG_PAIRS = {"sets_overlap": "--sets-overlap/--sets-disjoint"}
"""Flags whose two values have different names."""

PANELS = {"FileDataConfig": "Your own data", "BenchmarkDataConfig": "Benchmark data", "TrainConfig": "Training"}
"""Title of the help panel of each configuration class."""

SHARED_DATA_FIELDS = {f.name for f in fields(FileDataConfig)} & {f.name for f in fields(BenchmarkDataConfig)}
"""Options that both kinds of data have."""


def examples(*lines: str) -> str:
    """Return the epilog of a help page: example calls, one per line.

    >>> examples("demo")
    'Example:  fedul demo'
    """
    return "\n\n".join(f"Example:  fedul {line}" for line in lines)


def join_lines(docstring: str | None) -> str:
    """Return a docstring with one line per paragraph, for typer to wrap.

    >>> join_lines("One.\\n\\n    Two,\\n    three.")
    'One.\\n\\nTwo, three.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (docstring or "").split("\n\n"))


def default_folder(name: str) -> str:
    """Return a new folder below runs/, named after the command or data and the time."""
    return f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def with_options(
    *configs: type[Any], leave_out: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command one option per configuration field.

    The command receives the options that were given as the mapping `settings`.

    Parameters
    ----------
    *configs : type
        Configuration dataclasses. If several have a field of the same name, the first one defines its help text.
    leave_out : tuple of str
        Fields that get no option.

    Returns
    -------
    callable
        A decorator for a function with the parameter `settings`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(command, eval_str=True).parameters
        added: dict[str, inspect.Parameter] = {}
        for config in configs:
            hints = get_type_hints(config)
            for f in fields(config):
                if f.name not in leave_out:
                    shared = FileDataConfig in configs and f.name in SHARED_DATA_FIELDS
                    annotation = _annotation(f, hints[f.name], "Data" if shared else _panel(config))
                    parameter = inspect.Parameter(
                        f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                    )
                    added.setdefault(f.name, parameter)

        @functools.wraps(command)
        def run(**given: Any) -> Any:
            settings = {name: given.pop(name) for name in added}
            return command(**given, settings={n: v for n, v in settings.items() if v is not None and v != []})

        written = [p for name, p in parameters.items() if name != "settings"]
        run.__signature__ = inspect.Signature([*written, *added.values()])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*written, *added.values())}
        return run

    return decorate


def _panel(config: type[Any]) -> str:
    return PANELS.get(config.__name__, config.__name__.removesuffix("Config"))


def _annotation(f: Field[Any], hint: Any, panel: str) -> Any:
    meta = f.metadata
    # The default as the help text shows it, where it differs from the stored value.
    default = {"sets": "10", "sets_overlap": "overlap"}.get(f.name, f.default)
    if (f.name, default) == ("test_prior", "natural"):  # this option is for benchmark data too
        default = "natural; uniform for benchmark data"
    details = [LIST_HINTS[f.name]] if f.name in LIST_HINTS else []
    if meta["choices"]:
        details.append(f"one of {', '.join(meta['choices'])}")
    if default not in (None, (), "", False):
        details.append(f"default {default}")
    help = meta["help"] + (f" ({'; '.join(details)})" if details else "")
    flag = FLAG_PAIRS.get(f.name, f"--{f.name.replace('_', '-')}")
    kind: Any = list[str] if f.name.endswith("_option") else bool if hint is bool else str if meta["parse"] else hint
    complete = COMPLETERS.get(f.name) or (complete_choice(meta["choices"]) if meta["choices"] else None)
    option = typer.Option(flag, help=help, show_default=False, rich_help_panel=panel, autocompletion=complete)
    return Annotated[kind | None, option]


def merge_settings(
    settings: Mapping[str, Any],
    config_file: str | None,
    configs: tuple[type[Any], ...],
    leave_out: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the settings of the file and of the command line by name; the command line takes precedence.

    Raises
    ------
    InputError
        If the file cannot be read or has a name that no configuration has.
    """
    known = {f.name for config in configs for f in fields(config)} - set(leave_out)
    from_file = with_underscores({} if config_file is None else read_toml(config_file))
    for name in from_file:
        if name not in known:
            raise unknown_name(f"key in {config_file}", name.replace("_", "-"), {k.replace("_", "-") for k in known})
    return {**from_file, **settings}


def select_settings(settings: Mapping[str, Any], *configs: type[Any]) -> dict[str, Any]:
    """Return the settings that are fields of these configurations."""
    names = {f.name for config in configs for f in fields(config)}
    return {name: value for name, value in settings.items() if name in names}
