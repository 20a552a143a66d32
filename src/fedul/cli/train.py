"""`fedul check` and `fedul train`: the commands on data.

`check` says whether sets and priors are enough to train on; `train` writes a run folder with a classifier.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedul._utils.display import counted
from fedul._utils.settings import build_config, to_dict
from fedul.cli import show
from fedul.cli.options import ConfigFile, Json, default_folder, merge_settings, select_settings, with_options
from fedul.config import BenchmarkDataConfig, FileDataConfig, RunConfig, TrackingConfig, TrainConfig
from fedul.data.load import resolve_data_config
from fedul.errors import InputError, list_names

if TYPE_CHECKING:
    from fedul.classifier import Classifier

DATA_CONFIGS = (FileDataConfig, BenchmarkDataConfig)
CONFIGS = (RunConfig, *DATA_CONFIGS, TrainConfig, TrackingConfig)
NOT_ENOUGH = 3
"""Exit code of `fedul check --strict` if the data is not enough."""


@with_options(*DATA_CONFIGS)
def check(
    settings: dict[str, Any],
    config: ConfigFile = None,
    json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 3 if the data is not enough.")] = False,
) -> None:
    """Check whether data and class priors are enough to train a classifier.

    Prints how many labelled rows they are worth, which classes are hard to tell apart, what was read, and what would
    help. Nothing is trained. The verdict is enough, weak or not enough (`verdict` with --json).
    """
    options = merge_settings(settings, config, DATA_CONFIGS)
    data = resolve_data_config(select_settings(options, *DATA_CONFIGS))
    # Imported only now, so that a wrong option is refused before torch is loaded.
    from fedul.data.load import load_study
    from fedul.evaluation.check import check

    result = check(load_study(data))
    train_command = show.command("train", *(each for each in sys.argv[2:] if each != "--strict"), "--out", "RUN")
    show.print_result(
        json, result.to_dict(), result, *([f"next: {train_command}"] if result.verdict != "not enough" else [])
    )
    if strict and result.verdict == "not enough":
        raise typer.Exit(NOT_ENOUGH)


@with_options(*CONFIGS)
def train(settings: dict[str, Any], config: ConfigFile = None) -> None:
    """Train one classifier across clients that hold only unlabeled sets.

    The data is a benchmark data set by name, or your own table or images with the class priors of their sets. The
    result is a run folder for the commands evaluate, predict, report and export.
    """
    options = merge_settings(settings, config, CONFIGS)
    command = build_config(RunConfig, select_settings(options, RunConfig))
    if command.resume and command.out is not None:
        stored = _stored_options(command.out)
        if not stored and not select_settings(options, *DATA_CONFIGS):  # else a typo in --out trains on digits
            raise InputError(f"{command.out}: holds no run to continue; correct --out, or give the whole command.")
        options = {**stored, **options}
    training = build_config(TrainConfig, select_settings(options, TrainConfig))
    tracking = build_config(TrackingConfig, select_settings(options, TrackingConfig))
    data = resolve_data_config(select_settings(options, *DATA_CONFIGS))
    # Imported only now, so that a wrong option is reported before torch is loaded.
    from fedul.data.load import load_study
    from fedul.evaluation.check import check
    from fedul.tracking import make_trackers
    from fedul.training.train import train as run_training

    name = Path(data.data).stem
    folder = Path(command.out or default_folder(f"{name}-{training.method}"))
    trackers = make_trackers(tracking)
    study = load_study(data)
    checked = check(study, method=training.method)
    if checked.verdict == "not enough" and (checked.identifiable or command.force):
        show.print_note(f"{checked.summary} 'fedul check' says what would help.")
    with show.TrainingProgress(f"{training.method} on {name}") as progress:
        run = run_training(
            study, training, out=folder, resume=command.resume, force=command.force, callbacks=[progress, *trackers]
        )
    selection = run.recipe.config.selection if run.recipe else training.selection
    how = "the last" if selection == "last" else f"selected by {selection}"
    selected = f"round {run.selected_round} of {len(run.history)}, {how}"
    if run.test_error is None:
        counts = run.result.data
        rows = counts.rows + counts.held_out_rows
        labels = f"labels of {run.labels_used:,} of them" if run.labels_used else "no labels"
        summary = f"trained on {rows:,} rows of {counted(counts.clients, 'client')} with {labels} ({selected})"
    else:
        summary = f"test error [bold]{run.test_error:.2%}[/] ({selected}; labels used: {run.labels_used:,})"
    choice = run.result.choice
    chosen = [f"settings [bold]{choice.chosen}[/]: {choice.reason}"] if choice is not None and choice.sets else []
    if isinstance(data, FileDataConfig):
        chosen.append(f"for the class mix {escape(describe_test_prior(run.classifier, data.test_prior))}")
    chosen += [f"privacy: [bold]{each.headline}[/]" for each in run.result.privacy]
    if run.result.secure_aggregation is not None:
        chosen.append(run.result.secure_aggregation.sentence)
    after = (
        "report" if run.labels_used and run.test_error is not None else "evaluate"
    )  # with labels, its error is known
    next_step = f"run folder [bold]{escape(str(folder))}[/]; next: {show.command(after, str(folder))}"
    show.print_result(command.json, run.to_dict(), summary, *chosen, next_step)


def describe_test_prior(classifier: Classifier, given: str) -> str:
    """Return the class mix that a classifier is for, and where it comes from."""
    shares = zip(classifier.classes, classifier.trained_prior, strict=True)
    mix = list_names((f"{name} {share:.1%}" for name, share in shares), most=6)
    source = "that of all rows" if given == "natural" else f"--test-prior {given}"
    return f"{mix} ({source}); --test-prior changes it"


def _stored_options(out: str) -> dict[str, Any]:
    """Return the options of the run in a folder; empty if there is no run yet."""
    from fedul.training import RunFolder
    from fedul.training.run_data import current_options

    stored = RunFolder(out).stored_config()
    return {} if stored is None else {**current_options(stored, Path(out)), **to_dict(stored.training)}
