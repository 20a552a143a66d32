"""`fedul predict`: new rows in, a table of classes and probabilities out."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.cli.options import OwnModel
from fedul.errors import InputError

if TYPE_CHECKING:
    from fedul.classifier import Classifier
    from fedul.evaluation.class_mix import ClassMix
    from fedul.priors import Matrix


def predict(
    run: Annotated[str, typer.Argument(help="Folder of a finished run.")],
    inputs: Annotated[
        str,
        typer.Argument(
            help="Rows to classify: a table with the columns of the run, images, .npy, .npz (array X) or idx."
        ),
    ],
    out: Annotated[str | None, typer.Option(help="CSV or Parquet to write (default: CSV on standard output).")] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="Class mix of the population the rows are from: uniform, 'A=0.1,B=0.9', or a file."),
    ] = None,
    estimate_prior: Annotated[
        bool, typer.Option("--estimate-prior", help="Estimate that class mix from the rows themselves, and use it.")
    ] = False,
    model: OwnModel = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Classify new rows with a trained classifier."""
    from fedul.data.class_mix import parse_prior
    from fedul.data.new_rows import NewRows
    from fedul.runs import RunFolder

    if out is not None:
        _check_place(Path(out), Path(inputs))
    if estimate_prior and prior is not None:
        raise InputError("prior and estimate-prior: give one of the two.")
    classifier = RunFolder(run).load_classifier(model)
    classes = tuple(classifier.classes)
    if prior is not None:
        classifier = classifier.with_prior(parse_prior(prior, classes, where="prior"))
    rows = NewRows(Path(inputs).expanduser(), classifier.schema)
    blocks: Iterator[Matrix] = _predicted(classifier, rows)
    mix = None
    if estimate_prior:
        blocks, mix = _at_estimated_prior(classifier, blocks)
    document: dict[str, Any] = {"run": run, "classes": list(classes), "out": out}
    if mix is not None:
        document["prior"] = _told(mix, classes)
    if out is not None:
        document["rows"] = _written(Path(out), classes, blocks, rows.names)
    elif json:
        every = [row for block in blocks for row in block.tolist()]
        document |= {"rows": len(every), "class": [classes[row.index(max(row))] for row in every]}
        document["probabilities"] = every
        document |= {"file": rows.names} if rows.names else {}
    else:
        _printed(classes, blocks, rows.names)
    for name, count in rows.unseen.items():
        have = "1 row has" if count == 1 else f"{count:,} rows have"
        show.err.print(
            f"[yellow]note:[/] column '{escape(name)}': {have} a value that was not there in training", soft_wrap=True
        )
    if mix is not None and not json:
        told = _told(mix, classes).items()
        shares = ", ".join(f"{name} {s['share']:.3f} ({s['low']:.3f} to {s['high']:.3f})" for name, s in told)
        show.err.print(f"estimated class mix: {escape(shares)}", soft_wrap=True)
        show.err.print(
            "(intervals for the sampling of rows; the classifier's own mistakes come on top)", soft_wrap=True
        )
    if json:
        show.print_json(document)
    elif out is not None:
        what = "1 row" if document["rows"] == 1 else f"{document['rows']:,} rows"
        show.out.print(f"{what} classified; written to [bold]{escape(out)}[/]", soft_wrap=True)


def _check_place(out: Path, inputs: Path) -> None:
    """Refuses a place for predictions that would spoil the rows, or whose name says that it is something else."""
    from fedul.report.predictions import ENDINGS

    if out.exists() and inputs.exists() and out.samefile(inputs):
        raise InputError(f"{out}: is the file with the rows; choose another --out.")
    if out.suffix.lower() not in ENDINGS:
        raise InputError(
            f"{out}: predictions are CSV or Parquet; name a file that ends in .csv or .parquet with --out."
        )


def _predicted(classifier: Classifier, rows: Any) -> Iterator[Matrix]:
    done = 0
    for block in rows:
        try:
            yield classifier.predict_proba(block)
        except InputError as problem:
            raise _at(problem, done) from None
        done += len(block)


def _at(problem: InputError, done: int) -> InputError:
    """A complaint about a row of a block, with the number that the row has among all."""
    words = str(problem).split(" ", 2)
    if done and words[0] == "row" and words[1].isdigit():
        return InputError(f"row {int(words[1]) + done} {words[2]}")
    return problem


def _at_estimated_prior(classifier: Classifier, blocks: Iterator[Matrix]) -> tuple[Iterator[Matrix], ClassMix]:
    """The same predictions at the class mix that makes them most likely."""
    import numpy as np

    from fedul.evaluation.class_mix import estimated_mix

    every = np.concatenate(list(blocks))
    mix = estimated_mix(every, classifier.prior)
    shifted = every * (mix.shares / classifier.prior)
    return iter([shifted / shifted.sum(axis=1, keepdims=True)]), mix


def _told(mix: ClassMix, classes: tuple[str, ...]) -> dict[str, dict[str, float]]:
    return {
        name: {"share": float(mix.shares[k]), "low": float(mix.low[k]), "high": float(mix.high[k])}
        for k, name in enumerate(classes)
    }


def _written(path: Path, classes: tuple[str, ...], blocks: Iterator[Matrix], names: Sequence[str]) -> int:
    from fedul.files import remove_old_leftovers
    from fedul.report.predictions import predictions_table

    remove_old_leftovers(path.parent)
    with predictions_table(path, classes, names) as table:
        for block in blocks:
            table.add(block)
        return table.rows


def _printed(classes: tuple[str, ...], blocks: Iterator[Matrix], names: Sequence[str]) -> None:
    from fedul.report.predictions import PredictionsTable

    memory = io.BytesIO()
    table = PredictionsTable(memory, classes, names, parquet=False)
    for block in blocks:
        table.add(block)
        show.write_stdout(memory.getvalue().decode())
        memory.seek(0)
        memory.truncate()
    table.close()
    show.write_stdout(memory.getvalue().decode())
