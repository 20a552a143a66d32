"""The `fedul` command: how every failure ends as one sentence on stderr.

Exit codes: 0 done, 2 the input is wrong, 1 the environment or fedul itself failed, 3 the data is not enough (`check
--strict`), 128 + N ended by signal N. This module imports little, so that Ctrl-C is caught while the others are
imported.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

STOPPED = 130
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
RESUME = "repeat the command with --resume to continue."
REPEAT = "the same command continues where it stopped."
AFTER_STOP = {
    "train": RESUME,
    "compare": RESUME,
    "evaluate": REPEAT,
    "reproduce": REPEAT,
    "predict": "no file was written.",
    "watch": "the run is not affected.",
}
"""How to continue a command that was stopped."""


def main() -> None:
    """Run the command and exit."""
    try:
        # Threads that spin while they wait make a busy machine several times slower, and those that sleep between two
        # short operations start late. So they spin for some microseconds; to be set before torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # of GNU's library, which torch has on Linux
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, _raise_terminated)
        _open_missing_streams()
        code = _run_command()
    except KeyboardInterrupt:
        code = _fail(_stop_message(), STOPPED)
    except Terminated as stop:
        code = _fail(_stop_message(), stop.code)
    except BrokenPipeError:
        code = 1
    _flush(sys.stdout)
    _flush(sys.stderr)
    sys.exit(code)


def _run_command() -> int:
    """Run the command and return its exit code."""
    try:
        import typer

        from fedul.cli.commands import app

        code = app(prog_name="fedul", standalone_mode=False)
        if code == STOPPED:  # typer turns a KeyboardInterrupt into this
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, Terminated, BrokenPipeError):
        raise
    except SystemExit as exit:  # rich exits if its output is closed
        return exit.code if isinstance(exit.code, int) else 1
    except Exception as problem:
        if _is_interruption(problem) or isinstance(problem, typer.Abort):
            raise KeyboardInterrupt from None
        if isinstance(problem, typer.Exit):
            return int(problem.exit_code)
        return _explain(problem)


def _explain(problem: Exception) -> int:
    """Print a failure as one sentence and return the exit code."""
    from fedul._utils.extensions import explanation
    from fedul.cli.usage import is_usage_error, usage_sentence
    from fedul.errors import FedulError

    if isinstance(problem, FedulError):
        return _fail(str(problem), problem.exit_code)
    if is_usage_error(problem):
        if type(problem).__name__ == "NoArgsIsHelpError":
            print(problem.format_message())  # type: ignore[attr-defined]
            return 2
        return _fail(usage_sentence(problem), 2)
    if os.environ.get("FEDUL_DEBUG"):
        import traceback

        traceback.print_exception(problem)
    if found := explanation(problem):
        return _fail(f"{found}; set FEDUL_DEBUG=1 for a traceback, and report it to the author of that class.", 1)
    if isinstance(problem, OSError):
        return _fail(f"{problem.filename or 'the output'}: {problem.strerror or problem}; mend this and try again.", 1)
    first_line = f"{type(problem).__name__}: {problem}".splitlines()[0]
    return _fail(f"internal error ({first_line}); set FEDUL_DEBUG=1 for a traceback, and please report it.", 1)


class Terminated(BaseException):
    """A signal asked this process to end, or its terminal was closed."""

    def __init__(self, number: int) -> None:
        self.code = 128 + number


def _raise_terminated(number: int, _: object) -> None:
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise Terminated(number)


def _is_interruption(problem: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: an extension that is being imported may report another one."""
    while problem is not None:
        if isinstance(problem, KeyboardInterrupt):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def _open_missing_streams() -> None:
    """Open streams that the shell closed (fedul ... >&-), so that writing to them is no error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (for the rest of the process)


def _flush(stream: object) -> None:
    """Write what is left to a stream; if its reader is gone, discard it, or Python complains at exit."""
    try:
        stream.flush()  # type: ignore[attr-defined]
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[attr-defined]


def _stop_message() -> str:
    return f"stopped; {AFTER_STOP.get(''.join(sys.argv[1:2]), 'the command did not finish.')}"


def _fail(sentence: str, code: int) -> int:
    """Print a sentence on stderr and return the exit code."""
    with suppress(OSError):  # nobody reads it
        print(f"fedul: {' '.join(sentence.split())}", file=sys.stderr)
    return code
