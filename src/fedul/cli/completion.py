"""Values that a shell completes when Tab is pressed: names of components, models, data sets and experiments.

Nothing heavy is imported: the shell waits for every answer. Without a match the shell completes file names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Completer = Callable[[str], list[str]]
"""Function from the beginning of a value to the values that begin so."""


def matching(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin with what was typed.

    >>> matching("fed", ["fedul", "fedpl", "supervised"])
    ['fedul', 'fedpl']
    """
    return [name for name in names if name.startswith(incomplete)]


def complete_method(incomplete: str) -> list[str]:
    """Complete the name of a method, also of another package."""
    from fedul.methods import METHODS

    return matching(incomplete, METHODS)


def complete_algorithm(incomplete: str) -> list[str]:
    """Complete the name of an algorithm, also of another package."""
    from fedul.algorithms import ALGORITHMS

    return matching(incomplete, ALGORITHMS)


def complete_methods(incomplete: str) -> list[str]:
    """Complete the last of several methods, separated by commas."""
    return _complete_last(incomplete, complete_method)


def complete_algorithms(incomplete: str) -> list[str]:
    """Complete the last of several algorithms, separated by commas."""
    return _complete_last(incomplete, complete_algorithm)


def complete_model(incomplete: str) -> list[str]:
    """Complete the name of a network."""
    from fedul.models import MODELS

    return matching(incomplete, ("auto", *MODELS))


def complete_data(incomplete: str) -> list[str]:
    """Complete the name of a benchmark data set."""
    from fedul.data import SOURCES

    return matching(incomplete, SOURCES)


def complete_experiment(incomplete: str) -> list[str]:
    """Complete the name of a table or figure."""
    from importlib.resources import files

    # Not `experiment_names`, whose module imports NumPy.
    tables = files("fedul").joinpath("experiments", "tables").iterdir()
    return matching(incomplete, sorted(file.name.removesuffix(".toml") for file in tables))


def complete_choice(choices: Sequence[str]) -> Completer:
    """Return the function that completes one of these values.

    >>> complete_choice(("adam", "sgd"))("s")
    ['sgd']
    """
    return lambda incomplete: matching(incomplete, choices)


COMPLETERS: dict[str, Completer] = {
    "method": complete_method,
    "methods": complete_methods,
    "algorithm": complete_algorithm,
    "algorithms": complete_algorithms,
    "model": complete_model,
    "data": complete_data,
}
"""Completion of options that are made from configuration classes, by field."""


def _complete_last(incomplete: str, complete: Completer) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete(last)]
