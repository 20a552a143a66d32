"""Exceptions of fedul.

Every message is one sentence: what is wrong, where, and what to do. The command line prints it and exits with
`exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedulError(Exception):
    """Base class of the exceptions of fedul.

    Examples
    --------
    >>> import fedul
    >>> try:
    ...     fedul.load("patients.csv")
    ... except fedul.FedulError as error:
    ...     print(error.exit_code)
    2
    """

    exit_code = 1


class InputError(FedulError, ValueError):
    """Wrong input: a value, a file, or a combination of options.

    Examples
    --------
    >>> import fedul
    >>> fedul.load("digits", clients=0)
    Traceback (most recent call last):
    fedul.errors.InputError: clients: must be at least 1, got 0; change it, or leave it out.
    """

    exit_code = 2


class EnvironmentFailure(FedulError, RuntimeError):
    """Environment failure: a full disk, a failed download.

    Examples
    --------
    >>> EnvironmentFailure.exit_code
    1
    """


def first_line(problem: BaseException) -> str:
    """Return the first line of an error, for use in a sentence; its type if it has no message.

    >>> first_line(ValueError("no such key.\\nDetails follow.")), first_line(KeyboardInterrupt())
    ('no such key', 'KeyboardInterrupt')
    """
    return next(iter(str(problem).strip().splitlines()), "")[:150].rstrip(" .:") or type(problem).__name__


def wrong_type(what: str, expected: str, value: object) -> InputError:
    """Return an error for an argument of a type that it cannot have.

    >>> str(wrong_type("method", "a name or an object", int))
    'method: expected a name or an object, got the class int.'
    """
    got = f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
    return InputError(f"{what}: expected {expected}, got {got}.")


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """Return an error for an unknown name that suggests the most similar known one.

    >>> str(unknown_name("method", "fedull", ["fedul", "supervised"]))
    "unknown method 'fedull': did you mean 'fedul'? Known: fedul, supervised."
    """
    names = sorted(known)
    if not names:
        return InputError(f"unknown {what} '{name}'; there is none.")
    guess = did_you_mean(name, names)
    hint = f"{guess} Known: " if guess else "; known: "
    return InputError(f"unknown {what} '{name}'{hint}{', '.join(names)}.")


def list_names(names: Iterable[str], most: int = 12) -> str:
    """Return names as a list for a sentence; those that are left out are counted.

    >>> list_names(["a", "b", "c"]), list_names(["a", "b", "c"], most=1), list_names([])
    ('a, b, c', 'a and 2 more', 'none')
    """
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) or "none") + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar known name; empty if none is similar.

    >>> did_you_mean("FedULL", ["fedul", "supervised"])
    ": did you mean 'fedul'?"
    """
    names = {each.casefold(): each for each in known}
    nearest = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.52)
    return f": did you mean '{names[nearest[0]]}'?" if nearest else ""
