"""The one exception family of fedul.

Every message is one sentence for a person: what is wrong, where, and what to do about it. The command line
prints it and leaves with `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedulError(Exception):
    """Base of everything fedul raises on purpose."""

    exit_code = 1


class InputError(FedulError, ValueError):
    """The input is wrong: a value, a file, a combination of options."""

    exit_code = 2


class WorldError(FedulError, RuntimeError):
    """The world did not play along: a full disk, a download that failed."""


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that is not in the list, with the nearest one that is.

    >>> str(unknown("method", "fedull", ["fedul", "supervised"]))
    "unknown method 'fedull': did you mean 'fedul'? Known: fedul, supervised."
    """
    names = sorted(known)
    if not names:
        return InputError(f"unknown {what} '{name}'; there is none.")
    guess = did_you_mean(name, names)
    hint = f"{guess} Known: " if guess else "; known: "
    return InputError(f"unknown {what} '{name}'{hint}{', '.join(names)}.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question after the nearest of the known names; empty where none is near.

    >>> did_you_mean("fedull", ["fedul", "supervised"])
    ": did you mean 'fedul'?"
    """
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f": did you mean '{nearest[0]}'?" if nearest else ""
