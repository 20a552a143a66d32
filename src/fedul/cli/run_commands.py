"""Commands on a finished run: `fedul evaluate`, `fedul predict`, `fedul export` and `fedul report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedul._utils.display import counted
from fedul.cli import show
from fedul.cli.options import Json, ModelFactory, RunPath, Site
from fedul.errors import InputError


def evaluate(
    run: RunPath,
    folds: Annotated[
        int, typer.Option(help="Models to train, so that each row is predicted by one not trained on it.", min=2)
    ] = 5,
    truth_column: Annotated[
        str | None, typer.Option(help="Column of the run's table with true classes, to compare with.")
    ] = None,
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
        evaluation = evaluate(run, callbacks=[progress], folds=folds, truth_column=truth_column, model=model)
    if json:
        show.print_json(evaluation.to_dict())
        return
    show.out.print(evaluation, soft_wrap=True)
    show.out.print(
        f"all numbers are in [bold]{escape(run)}/{EVALUATION}[/]; for a page, run: fedul report {escape(run)}",
        soft_wrap=True,
    )


def predict(
    run: RunPath,
    inputs: Annotated[
        str,
        typer.Argument(
            help="Rows to classify: a table with the columns of the run, images, .npy, .npz (array X) or idx."
        ),
    ],
    out: Annotated[str | None, typer.Option(help="CSV or Parquet to write (default: CSV on standard output).")] = None,
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
    json: Json = False,
) -> None:
    """Classify the rows in INPUTS with the classifier in RUN, the folder of a finished run.

    INPUTS is a table with the columns of training, images, .npy, .npz (array X) or idx. The output is a table with the
    predicted class and the probability of each class.
    """
    from fedul.data.class_mix import parse_class_mix
    from fedul.data.files.new_rows import unknown_sites_message
    from fedul.reporting.predictions import Predictions, check_output
    from fedul.training import RunFolder

    if out is not None:
        check_output(Path(out), Path(inputs))
    if estimate_prior and prior is not None:
        raise InputError("prior and estimate-prior: give one of the two.")
    if site is not None and site_state is not None:
        raise InputError("site and site-state: give one of the two.")
    classifier = RunFolder(run).load_classifier(model, site)
    if site_state is not None:
        from fedul.engines.flower.site.site_adjustment import with_site_state

        classifier = with_site_state(classifier, Path(site_state).expanduser())
    classes = tuple(classifier.classes)
    if prior is not None:
        classifier = classifier.with_prior(parse_class_mix(prior, classes, where="prior"))
    predictions = Predictions(classifier, Path(inputs).expanduser(), estimate_prior=estimate_prior)
    document: dict[str, Any] = {"run": run, "classes": list(classes), "out": out}
    if estimate_prior:
        document["prior"] = predictions.estimated_prior
    if out is not None:
        document["rows"] = predictions.write(Path(out))
    elif json:
        document |= predictions.to_dict()
    else:
        for text in predictions.csv_blocks():
            show.write_stdout(text)
    for name, count in predictions.unseen.items():
        have = "1 row has" if count == 1 else f"{count:,} rows have"
        show.print_note(f"column '{name}': {have} a value that did not occur in training")
    if predictions.unknown_sites:
        show.print_note(unknown_sites_message(predictions.unknown_sites))
    if json:
        show.print_json(document)
        return
    if estimate_prior:
        shares = [
            f"{name} {s['share']:.3f} ({s['low']:.3f} to {s['high']:.3f})" for name, s in document["prior"].items()
        ]
        show.err.print(f"estimated class mix: {escape(', '.join(shares))}", soft_wrap=True)
        show.err.print("(intervals for the sampling of rows only, not for errors of the classifier)", soft_wrap=True)
    if out is not None:
        count_text = counted(document["rows"], "row")
        show.out.print(f"{count_text} classified; written to [bold]{escape(out)}[/]", soft_wrap=True)


def export(
    run: RunPath,
    format: Annotated[str, typer.Option(help="onnx (the classifier) or card (a model card).")],
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
    known = (
        {"largest_difference": result.largest_difference} if result.card is None else {"card": result.card.to_dict()}
    )
    written = " and ".join(f"[bold]{escape(file)}[/]" for file in files)
    show.print_result(json, {"run": run, "format": format, "files": files, **known}, f"written to {written}")


def report(
    run: RunPath,
    out: Annotated[str | None, typer.Option(help="HTML file to write (default: report.html in the folder).")] = None,
    json: Json = False,
) -> None:
    """Write a report on RUN, the folder of a finished run, as one HTML file that needs no network.

    The report includes the results of evaluate and check, if there are any.
    """
    from fedul.reporting.report import collect, write_page
    from fedul.training.run_files import REPORT

    with show.TrainingProgress() as progress:
        data = collect(run, callbacks=[progress])
    file = write_page(data, Path(run) / REPORT if out is None else Path(out))
    document = {"run": run, "out": str(file), "missing": data.missing}
    show.print_result(json, document, f"report written to [bold]{escape(str(file))}[/]")
