"""Commands on a finished run: `fedul evaluate`, `fedul export` and `fedul report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.cli.completion import complete_choice
from fedul.cli.documents import ExportDocument, ReportDocument
from fedul.cli.options import Json, ModelFactory, MovedData, MovedPriors, RunPath, Site
from fedul.config import EXPORT_FORMATS


def evaluate(
    run: RunPath,
    folds: Annotated[
        int, typer.Option(help="Models to train, so that each row is predicted by one not trained on it.", min=2)
    ] = 5,
    truth_column: Annotated[
        str | None, typer.Option(help="Column of the run's table with true classes, to compare with.")
    ] = None,
    data: MovedData = None,
    priors: MovedPriors = None,
    model: ModelFactory = None,
    json: Json = False,
) -> None:
    """Estimate the accuracy of the classifier in RUN, the folder of a finished run, without labels.

    Also estimates recall, precision and the confusion matrix, and tests the assumption that all of this depends on:
    rows of a class look alike in every set.
    """
    from fedul.evaluation.evaluate import evaluate
    from fedul.training.run_files import EVALUATION

    with show.TrainingProgress() as progress:
        evaluation = evaluate(
            run,
            folds=folds,
            truth_column=truth_column,
            model=model,
            data=data,
            priors=priors,
            callbacks=[progress],
        )
    if json:
        show.print_json(evaluation.to_dict())
        return
    show.out.print(evaluation)
    show.out.print(
        f"all numbers are in [bold]{escape(run)}/{EVALUATION}[/]; for a page: {show.command('report', run)}",
        soft_wrap=True,
    )


def export(
    run: RunPath,
    format: Annotated[
        str,
        typer.Option(
            help="onnx (the classifier) or card (a model card).", autocompletion=complete_choice(EXPORT_FORMATS)
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(help="File to write (default: model.onnx, or model-card.json and model-card.md, in the run)."),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="Class mix of the population that the classifier is for: uniform, 'A=0.1,B=0.9', or a file."),
    ] = None,
    site: Site = None,
    model: ModelFactory = None,
    json: Json = False,
) -> None:
    """Export the classifier in RUN, the folder of a finished run, as an ONNX file, or write its model card.

    The ONNX file takes raw rows and returns probabilities; it needs neither Python nor fedul.
    """
    from fedul.exporting.export import export_files

    result = export_files(run, out, format, prior, model, site=site)
    files = [str(file) for file in result.files]
    for message in result.warnings:
        show.print_note(message)
    card = None if result.card is None else result.card.to_dict()
    document = ExportDocument(run, format, files, result.largest_difference if card is None else None, card)
    written = " and ".join(f"[bold]{escape(file)}[/]" for file in files)
    show.print_result(json, document.to_dict(), f"written to {written}")


def report(
    run: RunPath,
    out: Annotated[str | None, typer.Option(help="HTML file to write (default: report.html in the folder).")] = None,
    data: MovedData = None,
    priors: MovedPriors = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a report that has more than the new one, or another file.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a report on RUN, the folder of a finished run, as one HTML file that needs no network.

    The report includes the results of evaluate and check, if there are any. A report that has more is not replaced.
    """
    from fedul.reporting.report import collect, write_page
    from fedul.training.run_files import REPORT

    with show.TrainingProgress() as progress:
        collected = collect(run, data=data, priors=priors, callbacks=[progress])
    file = write_page(collected, Path(run) / REPORT if out is None else Path(out), force=force)
    document = ReportDocument(run, str(file), collected.missing).to_dict()
    before = "" if collected.evaluation else f"; it has no evaluation, for one: {show.command('evaluate', run)}"
    next_step = f"classify new rows: {show.command('predict', run, 'FILE', '--out', 'predictions.csv')}"
    show.print_result(json, document, f"report written to [bold]{escape(str(file))}[/]{before}", next_step)
