"""`fedul predict`: new rows in, a table of classes and probabilities out."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.errors import InputError


def predict(
    run: Annotated[str, typer.Argument(help="Folder of a finished run.")],
    inputs: Annotated[
        str, typer.Argument(help="Rows to classify: .npy, .npz (array X), idx images, or a .csv of numbers.")
    ],
    out: Annotated[str | None, typer.Option(help="CSV to write (default: standard output).")] = None,
    prior: Annotated[
        str | None, typer.Option(help="Class mix of the population the rows are from: uniform, or 'A=0.1,B=0.9'.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="package.module:factory, if the classifier was trained with one.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Classify new rows with a trained classifier."""
    from fedul.data.partition import parse_prior
    from fedul.data.rows import read_rows
    from fedul.files import write_bytes
    from fedul.runs import RunFolder

    if out is not None and Path(out).exists() and Path(inputs).exists() and Path(out).samefile(inputs):
        raise InputError(f"{out}: is the file with the rows; choose another --out.")
    classifier = RunFolder(run).load_classifier(model)
    classes = tuple(classifier.classes)
    if prior is not None:
        classifier = classifier.with_prior(parse_prior(prior, classes, where="prior"))
    probabilities = classifier.predict_proba(read_rows(Path(inputs)))
    names = [classes[k] for k in probabilities.argmax(axis=1)]
    header = ["class", *(f"p({name})" for name in classes)]
    if out is not None or not json:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([name, *(f"{p:.6g}" for p in row)] for name, row in zip(names, probabilities, strict=True))
        if out is None:
            show.write_stdout(text.getvalue())
        else:
            write_bytes(Path(out), text.getvalue().encode())
    if json:
        document = {"run": run, "rows": len(names), "classes": list(classes), "out": out}
        if out is None:
            document |= {"class": names, "probabilities": probabilities.tolist()}
        show.print_json(document)
    elif out is not None:
        show.out.print(f"{len(names):,} rows classified; written to [bold]{escape(out)}[/]", soft_wrap=True)
