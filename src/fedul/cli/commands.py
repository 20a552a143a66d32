"""The subcommands of `fedul`, with their examples."""

from __future__ import annotations

import typer

from fedul import __version__
from fedul.cli import (
    compare,
    datasets,
    demo,
    doctor,
    federation,
    listing,
    predict,
    reproduce,
    run_commands,
    train,
    watch,
)
from fedul.cli.options import examples, join_lines

app = typer.Typer(
    name="fedul",
    help="Train one classifier across sites that have no labels, only class proportions.",
    epilog=examples("demo", "example hospitals", "train --help"),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command, *lines in (
    (demo.demo, "demo", "demo --rounds 10 --seed 1", "demo --plot demo.svg"),
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
    (
        run_commands.evaluate,
        "evaluate RUN",
        "evaluate RUN --truth-column diagnosis --json",
        "evaluate RUN --data new/patients.csv --priors new/prevalence.csv",
    ),
    (
        predict.predict,
        "predict RUN new.csv --out predictions.csv --keep patient",
        "predict RUN - --coverage 0.9 < new.csv",
        "predict RUN new.csv --prior flu=0.02,cold=0.98",
        "predict RUN new.csv --estimate-prior",
    ),
    (run_commands.export, "export RUN --format onnx --out classifier.onnx", "export RUN --format card"),
    (run_commands.report, "report RUN", "report RUN --out page.html"),
    (watch.watch, "watch RUN", "watch RUN --wait --port 8765"),
    (
        reproduce.reproduce,
        "reproduce",
        "reproduce table1 --scale smoke",
        "reproduce table1 --only 'data=mnist,split=iid,sets=10'",
    ),
    (listing.methods, "methods", "methods --json"),
    (listing.algorithms, "algorithms", "algorithms --json"),
    (doctor.doctor, "doctor", "doctor --json"),
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
