"""Sentences about wrong calls: the parser's, with better suggestions."""

from __future__ import annotations

import difflib
import re
from typing import Any

import typer

# What the parser raises for a wrong call; its home differs between versions of typer.
USAGE_ERROR: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
SIMILAR = 0.65
"""Similarity above which a name is suggested."""


def is_usage_error(problem: Exception) -> bool:
    """Return whether the parser raised an error about a wrong call."""
    return isinstance(problem, USAGE_ERROR)


def usage_sentence(problem: Any) -> str:
    """Return an error of the parser as one sentence with what to do."""
    message = re.sub(r"\s*\(?Did you mean [^?]*\?\)?", "", problem.format_message()).rstrip(" .")
    context = getattr(problem, "ctx", None)
    command = "fedul" if context is None else str(context.command_path)
    name, known = _unknown_name(problem, context)
    if name is None:
        return f"{message}; see '{command} --help'."
    return f"{message}{suggestion(name, known) or ';'} '{command} --help' lists all."


def _unknown_name(problem: Any, context: Any) -> tuple[str | None, list[str]]:
    """Return the option or command that does not exist, and those that exist."""
    if context is None:
        return None, []
    if (option := getattr(problem, "option_name", None)) and type(problem).__name__ == "NoSuchOption":
        return option, [name for each in context.command.params for name in (*each.opts, *each.secondary_opts)]
    if found := re.match(r"No such command '(.+?)'", problem.format_message()):
        return found[1], list(getattr(context.command, "commands", {}))
    return None, []


def suggestion(name: str, known: list[str]) -> str:
    """Return a suggestion of the most similar known name; empty if none is similar enough.

    >>> suggestion("--rouns", ["--rounds", "--rows"]), suggestion("--bogus", ["--out", "--rounds"])
    (": did you mean '--rounds'?", '')
    """
    names = {each.strip("-"): each for each in known}
    nearest = difflib.get_close_matches(name.strip("-"), names, n=1, cutoff=SIMILAR)
    return f": did you mean '{names[nearest[0]]}'?" if nearest else ""
