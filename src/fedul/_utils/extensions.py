"""Errors of code that is not part of fedul: methods, algorithms and callbacks of a user or of another package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fedul.errors import FedulError

FEDUL = __name__.partition(".")[0]
LONGEST = 200
"""Characters of the message of an error that a sentence quotes."""


class Explanation(str):
    """A note of an exception that says in one sentence which extension raised it. Notes pass to other processes."""

    __slots__ = ()


def describe_part(kind: str, part: object) -> str:
    """Return the class of a method, an algorithm or a callback, with its package if that is not fedul.

    >>> from collections import Counter
    >>> describe_part("method", Counter())
    'method Counter (package collections)'
    """
    package = type(part).__module__.partition(".")[0]
    known = package in (FEDUL, "__main__")
    return f"{kind} {type(part).__name__}" + ("" if known else f" (package {package})")


def is_extension(part: object) -> bool:
    """Return whether the class of an object is not part of fedul."""
    return type(part).__module__.partition(".")[0] != FEDUL


@contextmanager
def explain_extensions(kinds: Mapping[str, type]) -> Iterator[None]:
    """Add an `Explanation` to an exception that an extension raises in the block; the exception stays what it is.

    Parameters
    ----------
    kinds : mapping of str to type
        Base class of each kind of extension, such as "method".
    """
    try:
        yield
    except FedulError:  # has a sentence already
        raise
    except Exception as problem:
        if not explanation(problem) and (found := _raised_by(problem, kinds)):
            problem.add_note(Explanation(found))
        raise


def explanation(problem: BaseException) -> str:
    """Return the sentence on the extension that raised an exception, without a full stop; empty if none did."""
    notes = [note for note in getattr(problem, "__notes__", ()) if isinstance(note, Explanation)]
    return notes[-1] if notes else ""


def name_run(problem: Exception, run: str) -> None:
    """Put the name of a run before the sentence of an exception that ended it, in place."""
    if isinstance(problem, FedulError):
        problem.args = (f"{run}: {problem}", *problem.args[1:])
    elif found := explanation(problem):
        problem.add_note(Explanation(f"{run}: {found}"))
    else:
        problem.add_note(f"The run: {run}")


def _raised_by(problem: Exception, kinds: Mapping[str, type]) -> str:
    """Return which extension raised an exception, and in which function: the first one of the traceback."""
    step = problem.__traceback__
    while step is not None:
        frame, step = step.tb_frame, step.tb_next
        code = frame.f_code
        if frame.f_globals.get("__name__", "").partition(".")[0] == FEDUL or not code.co_argcount:
            continue
        owner = frame.f_locals.get(code.co_varnames[0])
        for kind, base in kinds.items():
            if isinstance(owner, base) and is_extension(owner):
                text = " ".join(f"{type(problem).__name__}: {problem}".split())[:LONGEST].rstrip(" .:")
                return f"{describe_part(kind, owner)} raised {text} in {code.co_name}"
    return ""
