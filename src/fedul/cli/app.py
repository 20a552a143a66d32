"""The `fedul` command. Exit code 0: done; 2: the input is wrong; 1: a fault of the world or of ours, in a sentence."""

from __future__ import annotations

import os
import signal
import sys
import traceback

import typer

from fedul import __version__
from fedul.cli import (
    check,
    compare,
    datasets,
    demo,
    evaluate,
    example,
    export,
    federation,
    listing,
    predict,
    report,
    reproduce,
    train,
)
from fedul.errors import FedulError

app = typer.Typer(
    name="fedul",
    help="Classifiers learned across sites that have no labels, only class proportions.",
    epilog="Example:  fedul demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", epilog="Example:  fedul demo")(demo.demo)
app.command("example", epilog="Example:  fedul example hospitals")(example.example)
app.command("check", epilog="Example:  fedul check --data patients.csv --priors prevalence.csv --set-column month")(
    check.check
)
app.command("train", epilog="Example:  fedul train --data digits --clients 5 --sets 10 --rounds 30 --out RUN")(
    train.train
)
app.command(
    "compare", epilog="Example:  fedul compare --data digits --methods fedul,fedllp --seeds 3 --out COMPARISON"
)(compare.compare)
app.command("evaluate", epilog="Example:  fedul evaluate RUN")(evaluate.evaluate)
app.command("predict", epilog="Example:  fedul predict RUN images.npy --out predictions.csv")(predict.predict)
app.command("export", epilog="Example:  fedul export RUN --format onnx --out classifier.onnx")(export.export)
app.command("report", epilog="Example:  fedul report RUN")(report.report)
app.command("reproduce", epilog="Example:  fedul reproduce table1 --only 'data=mnist,split=iid,sets=10'")(
    reproduce.reproduce
)
app.command("methods")(listing.methods)
app.command("algorithms")(listing.algorithms)
app.add_typer(datasets.app, name="datasets")
app.add_typer(federation.app, name="federation")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"fedul {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and leave."
    ),
) -> None:
    pass


# What the parser raises for a wrong call; its home differs between versions of typer.
USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
STOPPED = 130
ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
RESUME, AGAIN = "go on with --resume and --out, the folder it was in.", "the same command goes on where it was."
GO_ON = {"train": RESUME, "compare": RESUME, "evaluate": AGAIN, "reproduce": AGAIN, "predict": "no file was written."}


def main() -> None:
    """Runs the command; every failure ends as one sentence on stderr."""
    # Threads that spin while they wait make a busy machine several times slower; to be set before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for number in ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _terminated)
    try:
        code = app(standalone_mode=False)
        if code == STOPPED:  # typer turns a KeyboardInterrupt into this
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Exit as left:
        sys.exit(left.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail(_stopped(), STOPPED)
    except Terminated as asked:
        _fail(_stopped(), asked.code)
    except FedulError as problem:
        _fail(str(problem), problem.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as problem:
        if isinstance(problem, USAGE_ERROR):
            if type(problem).__name__ == "NoArgsIsHelpError":
                typer.echo(problem.format_message())  # type: ignore[attr-defined]
                sys.exit(2)
            _fail(problem.format_message(), 2)  # type: ignore[attr-defined]
        if os.environ.get("FEDUL_DEBUG"):
            traceback.print_exc()
        if isinstance(problem, OSError):
            _fail(f"{problem.filename or 'the output'}: {problem.strerror or problem}; see to it and try again.", 1)
        what = f"{type(problem).__name__}: {problem}".splitlines()[0]
        _fail(f"an error in fedul itself ({what}); set FEDUL_DEBUG=1 to see where, and please report it.", 1)


class Terminated(BaseException):
    """Somebody asked this process to end, or the terminal is gone."""

    def __init__(self, number: int) -> None:
        self.code = 128 + number


def _terminated(number: int, _: object) -> None:
    for each in ENDS:
        signal.signal(each, signal.SIG_IGN)  # once is enough: what is under way is put in order
    raise Terminated(number)


def _stopped() -> str:
    """What a command says that was stopped, and how to go on where that is possible."""
    return f"stopped; {GO_ON.get(''.join(sys.argv[1:2]), 'it is not done.')}"


def _fail(sentence: str, code: int) -> None:
    print(f"fedul: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)
