"""`fedul.export`: a trained classifier as an ONNX file, or its model card."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from fedul._utils.files import as_path, write_bytes, write_json
from fedul.classifier import Classifier
from fedul.config import EXPORT_FORMATS
from fedul.data.class_mix import parse_class_mix
from fedul.errors import InputError, unknown_name
from fedul.evaluation.document import Evaluation
from fedul.evaluation.run_target import as_run_folder
from fedul.exporting.card import ModelCard, is_card, model_card
from fedul.models import Model
from fedul.training import Run, RunFolder
from fedul.training.run_files import MODEL_CARD, ONNX_MODEL

NOT_COMPARED = (
    "the file was not compared with the classifier, because onnxruntime is not installed (pip install 'fedul[onnx]')"
)

MEAN_ADJUSTMENT = "rows are adjusted by the mean of all sites; for rows of one site, name it with --site (site=...)"


@dataclass(frozen=True)
class ExportResult:
    """Files that were written; the largest difference of probabilities for ONNX, or the card; and warnings."""

    files: tuple[Path, ...]
    largest_difference: float | None = None
    card: ModelCard | None = None
    warnings: tuple[str, ...] = ()


def export(
    run: Run | RunFolder | str | Path,
    out: str | Path | None = None,
    format: str | None = None,
    prior: str | ArrayLike | None = None,
    model: Model | None = None,
    *,
    site: str | None = None,
    evaluation: Evaluation | None = None,
) -> Path:
    """Write a trained classifier for use without Python, or its model card.

    Parameters
    ----------
    run : Run, RunFolder or path
        What `fedul.train` returned, or the folder of a finished run.
    out : str or Path, optional
        The file to write; without it, a file in the run folder.
    format : {"onnx", "card"}, optional
        Without it, the ending of `out` decides: ``.onnx``, else a card, which is written as ``.json`` and ``.md``.
    prior : str or array-like, optional
        Class mix of the population that the classifier is for: shares of the classes, ``"uniform"``, ``"A=0.1,B=0.9"``
        or a file. Without it, the test prior of the training.
    model : str, nn.Module or callable, optional
        The custom model, if `run` is a folder that was trained with one.
    site : str, optional
        Site that the classifier is for, if the run has an adjustment or a classifier for each site. Without it, an ONNX
        file has the mean adjustment.
    evaluation : Evaluation, optional
        What `fedul.evaluate` returned, for the card of a run without a folder.

    Returns
    -------
    Path
        The file; of a card, the JSON file.

    Examples
    --------
    >>> import fedul, tempfile
    >>> run = fedul.train(fedul.load("digits", clients=2, rows=400), rounds=1, seed=0)
    >>> fedul.export(run, f"{tempfile.mkdtemp()}/card.md").name
    'card.json'
    """
    if format is None:
        format = "onnx" if out is not None and as_path(out, "out").suffix.lower() == ".onnx" else "card"
        if out is None:
            raise InputError("format: give one (onnx or card), or a file to write.")
    result = export_files(run, out, format, prior, model, site=site, evaluation=evaluation)
    for message in result.warnings:
        warnings.warn(message, stacklevel=2)
    return result.files[0]


def export_files(
    run: Run | RunFolder | str | Path,
    out: str | Path | None,
    format: str,
    prior: str | ArrayLike | None = None,
    model: Model | None = None,
    *,
    site: str | None = None,
    evaluation: Evaluation | None = None,
) -> ExportResult:
    """Export as `export` does, and return all that is known of the files."""
    if format not in EXPORT_FORMATS:
        raise unknown_name("format", str(format), EXPORT_FORMATS)
    classifier = _classifier_of(run, model, site)
    if prior is not None:
        if isinstance(prior, str):
            prior = parse_class_mix(prior, tuple(classifier.classes), where="prior")
        classifier = classifier.with_prior(prior)
    default = ONNX_MODEL if format == "onnx" else MODEL_CARD
    file = as_run_folder(run).path / default if out is None else as_path(out, "out").expanduser()
    if format == "card":
        return _write_card(file, model_card(run, classifier, evaluation))
    return _write_onnx(file, classifier)


def _classifier_of(run: Run | RunFolder | str | Path, model: Model | None, site: str | None) -> Classifier:
    """Return the classifier of a run, or the one of a single site."""
    if not isinstance(run, Run):
        return as_run_folder(run).load_classifier(model, site)
    if site is None:
        return run.classifier
    return run.site_classifiers[site] if site in run.site_classifiers else run.classifier.for_site(site)


def _write_onnx(file: Path, classifier: Classifier) -> ExportResult:
    from fedul.exporting.onnx import export_onnx

    if file.suffix.lower() != ".onnx":
        raise InputError(f"{file}: an ONNX file ends in .onnx; choose another --out.")
    messages = []
    if classifier.site_adjustments is not None and len(classifier.site_adjustments.sites) > 1:
        classifier = classifier.for_site(None)
        messages.append(MEAN_ADJUSTMENT)
    difference = export_onnx(classifier, file)
    messages += [NOT_COMPARED] if difference is None else []
    return ExportResult((file,), largest_difference=difference, warnings=tuple(messages))


def _write_card(file: Path, card: ModelCard) -> ExportResult:
    if file.suffix.lower() not in ("", ".json", ".md"):
        raise InputError(f"{file}: a model card is a .json and a .md file; choose another --out.")
    as_json, as_text = file.with_suffix(".json"), file.with_suffix(".md")
    for existing in (as_json, as_text):
        if existing.exists() and not is_card(as_json):
            raise InputError(f"{existing}: exists already and is not a model card; choose another --out.")
    write_bytes(as_text, card.to_markdown().encode())
    write_json(as_json, card.to_dict())
    return ExportResult((as_json, as_text), card=card)
