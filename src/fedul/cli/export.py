"""`fedul export`: a trained classifier as an ONNX file, or its model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.cli.options import OwnModel
from fedul.errors import InputError, unknown

if TYPE_CHECKING:
    from fedul.classifier import Classifier
    from fedul.runs import RunFolder

FORMATS = ("onnx", "card")


def export(
    run: Annotated[str, typer.Argument(help="Folder of a finished run.")],
    format: Annotated[
        str, typer.Option(help="onnx (the classifier, from raw rows to probabilities) or card (a model card).")
    ],
    out: Annotated[
        str | None,
        typer.Option(help="File to write (default: model.onnx, or model-card.json and model-card.md, in the run)."),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="Class mix of the population it is for: uniform, 'A=0.1,B=0.9', or a file."),
    ] = None,
    model: OwnModel = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a trained classifier for use without Python, or its model card."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    from fedul.data.class_mix import parse_prior
    from fedul.runs import RunFolder

    folder = RunFolder(run)
    classifier = folder.load_classifier(model)
    if prior is not None:
        classifier = classifier.with_prior(parse_prior(prior, tuple(classifier.classes), where="prior"))
    written = _onnx(folder, classifier, out) if format == "onnx" else _card(folder, classifier, out)
    if json:
        show.print_json({"run": run, "format": format, **written})
    else:
        files = " and ".join(f"[bold]{escape(file)}[/]" for file in written["files"])
        show.out.print(f"written to {files}", soft_wrap=True)


def _onnx(folder: RunFolder, classifier: Classifier, out: str | None) -> dict[str, Any]:
    from fedul.export.onnx import export_onnx

    path = folder.path / "model.onnx" if out is None else Path(out).expanduser()
    if path.suffix.lower() != ".onnx":
        raise InputError(f"{path}: an ONNX file ends in .onnx; choose another --out.")
    difference = export_onnx(classifier, path)
    if difference is None:
        show.err.print(
            "[yellow]note:[/] the file was not compared with the classifier, since onnxruntime is not installed "
            "(pip install 'fedul\\[onnx]')",
            soft_wrap=True,
        )
    return {"files": [str(path)], "largest_difference": difference}


def _card(folder: RunFolder, classifier: Classifier, out: str | None) -> dict[str, Any]:
    from fedul.export.card import as_markdown, is_card, model_card
    from fedul.files import write_bytes, write_json

    path = folder.path / "model-card" if out is None else Path(out).expanduser()
    if path.suffix.lower() not in ("", ".json", ".md"):
        raise InputError(f"{path}: a model card is a .json and a .md; choose another --out.")
    as_json, as_text = path.with_suffix(".json"), path.with_suffix(".md")
    for file in (as_json, as_text):
        if file.exists() and not is_card(as_json):
            raise InputError(f"{file}: is there already and not of a model card; choose another --out.")
    card = model_card(folder, classifier)
    write_bytes(as_text, as_markdown(card).encode())
    write_json(as_json, card)
    return {"files": [str(as_json), str(as_text)], "card": card}
