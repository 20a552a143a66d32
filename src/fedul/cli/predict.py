"""`fedul predict`: classes and probabilities of new rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedul._utils.display import counted
from fedul._utils.settings import parse_names
from fedul.cli import show
from fedul.cli.documents import PredictDocument
from fedul.cli.options import Json, ModelFactory, RunPath, Site
from fedul.errors import InputError

if TYPE_CHECKING:
    from fedul.classifier import Classifier
    from fedul.reporting.predictions import Predictions

SHOWN_COLUMNS = 5
"""Number of ignored columns that a note names."""


def predict(
    run: RunPath,
    inputs: Annotated[
        str,
        typer.Argument(
            help="Rows to classify: a table with the columns of the run, images, .npy, .npz (array X), idx, or - for "
            "standard input."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            help="CSV or Parquet to write (default: CSV on standard output). Earlier predictions are replaced."
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Columns of INPUTS to copy into the output, separated by commas: --keep id,name."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Add the smallest set of classes that has the true one this often, e.g. --coverage 0.9: set(0.9)."
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="Class mix of the population that the rows are from: uniform, 'A=0.1,B=0.9', or a file."),
    ] = None,
    estimate_prior: Annotated[
        bool, typer.Option("--estimate-prior", help="Estimate this class mix from the rows, and use it.")
    ] = False,
    site: Site = None,
    site_state: Annotated[
        str | None, typer.Option(help="State folder of a Flower site, to use the adjustment that stays there.")
    ] = None,
    model: ModelFactory = None,
    force: Annotated[bool, typer.Option("--force", help="Let --out replace a file that holds no predictions.")] = False,
    json: Json = False,
) -> None:
    """Classify the rows in INPUTS with the classifier in RUN, the folder of a finished run.

    INPUTS is a table with the columns of training, images, .npy, .npz (array X) or idx, or - for standard input. The
    output is a table with the predicted class and the probability of each class. Columns that the classifier does not
    use are ignored, with a note.
    """
    from fedul.data.files.standard_input import STANDARD_INPUT, stored_standard_input
    from fedul.reporting.prediction_file import check_output
    from fedul.reporting.predictions import Predictions
    from fedul.training.run_data import data_files

    source = None if inputs == STANDARD_INPUT else Path(inputs).expanduser()
    if out is not None:
        check_output(Path(out), source, data_files(run), force=force)
    if estimate_prior and prior is not None:
        raise InputError("prior and estimate-prior: give one of the two.")
    if site is not None and site_state is not None:
        raise InputError("site and site-state: give one of the two.")
    classifier = _load_classifier(run, prior, site, site_state, model)
    with ExitStack() as stack:
        if source is None:
            if sys.stdin is None or sys.stdin.isatty():
                raise InputError(
                    "standard input: is empty or a terminal; pipe a table into the command, or name a file."
                )
            source = stack.enter_context(stored_standard_input())
        predictions = Predictions(
            classifier, source, estimate_prior=estimate_prior, keep=parse_names(keep or ""), coverage=coverage
        )
        written: dict[str, Any] = {"rows": 0}
        if out is not None:
            written["rows"] = predictions.write(Path(out))
        elif json:
            written = predictions.to_dict()
            written["class_"] = written.pop("class")
        else:
            for text in predictions.csv_blocks():
                show.write_stdout(text)
    _print_notes(predictions)
    if json:
        document = PredictDocument(
            run=run,
            out=out,
            classes=classifier.classes,
            ignored_columns=predictions.ignored,
            coverage=coverage,
            prior=predictions.estimated_prior or None,
            **written,
        )
        show.print_json(document.to_dict())
        return
    if estimate_prior:
        estimated = predictions.estimated_prior.items()
        shares = [f"{name} {s['share']:.3f} ({s['low']:.3f} to {s['high']:.3f})" for name, s in estimated]
        show.err.print(f"estimated class mix: {escape(', '.join(shares))}", soft_wrap=True)
        show.err.print("(intervals for the sampling of rows only, not for errors of the classifier)", soft_wrap=True)
    if out is not None:
        count_text = counted(written["rows"], "row")
        show.out.print(f"{count_text} classified; written to [bold]{escape(out)}[/]", soft_wrap=True)


def _load_classifier(
    run: str, prior: str | None, site: str | None, site_state: str | None, model: str | None
) -> Classifier:
    """Return the classifier of a run, for a class mix and a site if these are given."""
    from fedul.data.class_mix import parse_class_mix
    from fedul.training import RunFolder

    classifier = RunFolder(run).load_classifier(model, site)
    if site_state is not None:
        from fedul.engines.flower.site.site_adjustment import with_site_state

        classifier = with_site_state(classifier, Path(site_state).expanduser())
    if prior is not None:
        classifier = classifier.with_prior(parse_class_mix(prior, tuple(classifier.classes), where="prior"))
    return classifier


def _print_notes(predictions: Predictions) -> None:
    """Print what a user should know about the rows."""
    from fedul.data.files.new_rows import unknown_sites_message

    if predictions.ignored:
        show.print_note(_ignored_message(predictions.ignored))
    for name, count in predictions.unseen.items():
        have = "1 row has" if count == 1 else f"{count:,} rows have"
        show.print_note(f"column '{name}': {have} a value that did not occur in training")
    if predictions.unknown_sites:
        show.print_note(unknown_sites_message(predictions.unknown_sites))


def _ignored_message(columns: Sequence[str]) -> str:
    """Return the note about columns that are neither features nor copied.

    >>> _ignored_message(["Unnamed: 0", "ward", "name"])
    "ignored columns that the classifier does not use: 'ward', 'name', and the first one, which has no name"
    """
    from fedul.data.files.new_rows import INDEX

    named = [f"'{name}'" for name in columns if name != INDEX]
    listed = [*named[:SHOWN_COLUMNS], *([f"{len(named) - SHOWN_COLUMNS} more"] if len(named) > SHOWN_COLUMNS else [])]
    if INDEX in columns:
        listed.append("and the first one, which has no name" if named else "the first one, which has no name")
    which = "a column" if len(columns) == 1 else "columns"
    return f"ignored {which} that the classifier does not use: {', '.join(listed)}"
