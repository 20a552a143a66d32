"""The `fedul` command: its subcommands, and how every failure ends as one sentence on stderr.

Exit codes: 0 done, 2 the input is wrong, 1 the environment or fedul itself failed, 128 + N ended by signal N.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback

import typer

from fedul import __version__
from fedul.cli import compare, datasets, demo, federation, listing, predict, reproduce, run_commands, train
from fedul.cli.options import examples, join_lines
from fedul.errors import FedulError

app = typer.Typer(
    name="fedul",
    help="Train one classifier across sites that have no labels, only class proportions.",
    epilog=examples("demo", "example hospitals", "train --help"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command, *lines in (
    (demo.demo, "demo", "demo --rounds 10 --seed 1"),
    (demo.example, "example hospitals"),
    (
        train.check,
        "check --data patients.csv --priors prevalence.csv --set-column month",
        "check --data digits --clients 5 --sets 10",
    ),
    (
        train.train,
        "train --data digits --method fedul --rounds 30 --out RUN",
        "train --data patients.csv --priors prevalence.csv --set-column month",
        "train --out RUN --resume --rounds 60",
    ),
    (
        compare.compare,
        "compare --data digits --methods fedul,fedllp --seeds 3 --jobs 2",
        "compare --algorithms fedavg,scaffold --methods fedul --out COMPARISON",
        "compare --data patients.csv --priors prevalence.csv --set-column month --truth-column diagnosis",
    ),
    (run_commands.evaluate, "evaluate RUN", "evaluate RUN --truth-column diagnosis --json"),
    (
        predict.predict,
        "predict RUN new.csv --out predictions.csv --keep patient",
        "predict RUN - --coverage 0.9 < new.csv",
        "predict RUN new.csv --prior flu=0.02,cold=0.98",
        "predict RUN new.csv --estimate-prior",
    ),
    (run_commands.export, "export RUN --format onnx --out classifier.onnx", "export RUN --format card"),
    (run_commands.report, "report RUN", "report RUN --out page.html"),
    (
        reproduce.reproduce,
        "reproduce",
        "reproduce table1 --scale smoke",
        "reproduce table1 --only 'data=mnist,split=iid,sets=10'",
    ),
    (listing.methods, "methods", "methods --json"),
    (listing.algorithms, "algorithms", "algorithms --json"),
):
    app.command(command.__name__, help=join_lines(command.__doc__), epilog=examples(*lines))(command)
app.add_typer(datasets.app, name="datasets")
app.add_typer(federation.app, name="federation")


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"fedul {__version__}")
        raise typer.Exit


@app.callback()
def _fedul(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    pass


# What the parser raises for a wrong call; its home differs between versions of typer.
USAGE_ERROR: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
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
}
"""How to continue a command that was stopped."""


def main() -> None:
    """Run the command and exit."""
    # Threads that spin while they wait make a busy machine several times slower; to be set before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _raise_terminated)
    try:
        code = app(standalone_mode=False)
        if code == STOPPED:  # typer turns a KeyboardInterrupt into this
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Exit as exit:
        sys.exit(exit.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail(_stop_message(), STOPPED)
    except Terminated as stop:
        _fail(_stop_message(), stop.code)
    except FedulError as problem:
        _fail(str(problem), problem.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except USAGE_ERROR as problem:
        message = re.sub(r"( Did you mean .*\?)\1$", r"\1", problem.format_message())  # type: ignore[attr-defined]
        if type(problem).__name__ == "NoArgsIsHelpError":
            typer.echo(message)
            sys.exit(2)
        _fail(message, 2)
    except Exception as problem:
        if os.environ.get("FEDUL_DEBUG"):
            traceback.print_exc()
        if isinstance(problem, OSError):
            _fail(f"{problem.filename or 'the output'}: {problem.strerror or problem}; mend this and try again.", 1)
        first_line = f"{type(problem).__name__}: {problem}".splitlines()[0]
        _fail(f"internal error ({first_line}); set FEDUL_DEBUG=1 for a traceback, and please report it.", 1)


class Terminated(BaseException):
    """A signal asked this process to end, or its terminal was closed."""

    def __init__(self, number: int) -> None:
        self.code = 128 + number


def _raise_terminated(number: int, _: object) -> None:
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise Terminated(number)


def _stop_message() -> str:
    return f"stopped; {AFTER_STOP.get(''.join(sys.argv[1:2]), 'the command did not finish.')}"


def _fail(sentence: str, code: int) -> None:
    print(f"fedul: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)
