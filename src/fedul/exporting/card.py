"""Model card of a run: purpose, training data, quality and limits of its classifier.

After Mitchell et al., Model Cards for Model Reporting, FAT* 2019. A card contains no rows, no class priors of sets, no
names of sites or files, and no values of categorical columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedul._utils.display import counted
from fedul._utils.documents import Document, read_document_file
from fedul._utils.files import read_json, tensors_digest
from fedul._utils.settings import to_dict
from fedul.classifier import Classifier
from fedul.core import Matrix
from fedul.data import SOURCES
from fedul.data.files.schema import ImageSchema
from fedul.data.files.schema.table import Category, Column, TableSchema
from fedul.errors import InputError
from fedul.evaluation.check import check
from fedul.evaluation.check_result import CheckResult
from fedul.evaluation.document import ClassEstimate, Evaluation
from fedul.evaluation.run_target import as_run_folder
from fedul.evaluation.sentences import ASSUMPTION, CANNOT_SEE, LABELS_USED, assumption_verdict, cautions, headline
from fedul.exporting.card_text import escape, value_text
from fedul.models.weights import weights_of
from fedul.privacy.statement import PrivacyStatement, finite
from fedul.training import Run, RunFolder, RunRecord, RunResult
from fedul.training.run_files import CHECK, CONFIG, EVALUATION, MODEL

FORMAT = "fedul-model-card"
VERSION = 2
SETTINGS = ("model", "method", "method_option", "algorithm", "algorithm_option", "loss", "epochs", "batch_size", "seed")
"""Training settings that are shown on the card."""

Section = Mapping[str, Any]


@dataclass(frozen=True)
class ModelCard(Document):
    """A model card.

    Parameters
    ----------
    summary : tuple of str
        What must be said first: warnings, then the accuracy or why it cannot be estimated.
    model : mapping
        Classes, settings, versions and digests.
    intended_use : mapping
        Purpose, and the class mix of the population that the classifier is for.
    training_data : mapping
        Source, counts and columns.
    diagnosis : mapping or None
        Diagnostics of the class priors (`fedul.check`).
    figures_without_labels : mapping or None
        Estimates of `fedul.evaluate`; `estimated_accuracy` and `interval` are None where there is a `reason`. Misfits
        and calibration are counted, since they name sites and sets.
    figures_with_labels : mapping or None
        Measurements with labels, where these exist.
    privacy : tuple of mapping
        What the run guarantees about rows, clients and class priors, and what not; the epsilons of clients from the
        lowest to the highest, without their names. Empty if nothing is protected.
    limits : tuple of str
        What a user must know before relying on the classifier.
    """

    summary: tuple[str, ...]
    model: Section
    intended_use: Section
    training_data: Section
    diagnosis: Section | None
    figures_without_labels: Section | None
    figures_with_labels: Section | None
    privacy: tuple[Section, ...]
    limits: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values."""
        return {"format": FORMAT, "version": VERSION, **super().to_dict()}

    def to_markdown(self) -> str:
        """Return the card as Markdown, with the same contents."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        environment = Environment(
            loader=PackageLoader("fedul.exporting"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.filters |= {"text": escape, "value": value_text}
        return environment.get_template("card.md.j2").render(card=self.to_dict()).rstrip() + "\n"


def model_card(
    run: Run | RunFolder | str | Path, classifier: Classifier, evaluation: Evaluation | None = None
) -> ModelCard:
    """Return the card of a finished run.

    Parameters
    ----------
    run : Run, RunFolder or path
        The run. The evaluation and diagnostics that its folder holds are used.
    classifier : Classifier
        The classifier of the run, possibly adapted to another class mix.
    evaluation : Evaluation, optional
        The evaluation, for a run without a folder.
    """
    if isinstance(run, Run) and run.record is not None and run.folder is None:
        method = None if run.recipe is None else run.recipe.make_method(None)
        checked = None if run.study is None else check(run.study, method=method)
        return _build_card(run.record, run.result, classifier, evaluation, checked, datetime.now(UTC))
    folder = as_run_folder(run)
    if not (folder.path / CONFIG).exists() or (record := folder.stored_config()) is None:
        raise InputError(
            f"{folder.path}: holds no run; a model card needs the folder of a finished run ('fedul train --out')."
        )
    if (result := folder.result()) is None:
        raise InputError(f"{folder.path}: the run is not finished; finish it with 'fedul train --resume' first.")
    evaluation = evaluation or read_document_file(Evaluation, folder.path / EVALUATION, "'fedul evaluate'")
    checked = read_document_file(CheckResult, folder.path / CHECK, "'fedul evaluate'")
    written = (folder.path / MODEL / "weights.safetensors").stat().st_mtime
    return _build_card(record, result, classifier, evaluation, checked, datetime.fromtimestamp(written, UTC))


def is_card(file: Path) -> bool:
    """Return whether a file is a model card, which a newer one may replace."""
    try:
        stored = read_json(file)
    except InputError:
        return False
    return isinstance(stored, dict) and stored.get("format") == FORMAT


def _build_card(
    record: RunRecord,
    result: RunResult,
    classifier: Classifier,
    evaluation: Evaluation | None,
    checked: CheckResult | None,
    written: datetime,
) -> ModelCard:
    training = to_dict(record.training)
    measured = {"test_error": result.test_error, "calibration_error": result.calibration_error}
    measured["accuracy"] = None if evaluation is None else evaluation.accuracy
    return ModelCard(
        summary=tuple(_summary(result, evaluation)),
        model={
            "classes": list(classifier.classes),
            "settings": {name: training[name] for name in SETTINGS if training[name] not in (None, {})},
            **({} if result.choice is None else {"settings_chosen": f"{result.choice.chosen}: {result.choice.reason}"}),
            **({} if result.secure_aggregation is None else {"updates": result.secure_aggregation.sentence}),
            "rounds": result.rounds,
            "selected_round": result.selected_round,
            "labels_used": result.labels_used,
            "temperature": classifier.temperature,
            "software": record.software,
            "date": written.date().isoformat(),
            "weights_sha256": tensors_digest(weights_of(classifier.module)),
            "last_round_weights_sha256": result.weights_sha256,
        },
        intended_use={
            "purpose": f"Gives a row of the form below a probability for each of {len(classifier.classes)} classes.",
            "class_mix": _by_class(classifier, classifier.prior),
            "trained_class_mix": _by_class(classifier, classifier.trained_prior),
        },
        training_data={
            "source": record.data["data"] if record.data.get("data") in SOURCES else "data of the sites",
            **asdict(result.data),
            **_describe_rows(classifier),
        },
        diagnosis=None if checked is None else _diagnosis(checked),
        figures_without_labels=None if evaluation is None else _estimates(evaluation),
        figures_with_labels={name: value for name, value in measured.items() if value is not None} or None,
        privacy=tuple(_protection(each, result) for each in result.privacy),
        limits=tuple(_limits(classifier, result, evaluation, checked)),
    )


def _protection(statement: PrivacyStatement, result: RunResult) -> Section:
    """Return a statement on privacy, with the range of the epsilons of clients where these have their own."""
    paid = sorted(math.inf if each is None else each for each in result.epsilon.values())
    ends = [finite(paid[0]), finite(paid[-1])] if paid and statement.unit == "row" else None
    return {"headline": statement.headline, **statement.to_dict(), **({"epsilon_of_clients": ends} if ends else {})}


def _summary(result: RunResult, evaluation: Evaluation | None) -> list[str]:
    if evaluation is None and result.test_error is None:
        return ["The accuracy of this classifier is not known."]
    sentences = [] if evaluation is None else headline(evaluation)
    if evaluation is not None and evaluation.interval is not None:
        sentences.append(CANNOT_SEE)
    if evaluation is not None and evaluation.accuracy is not None:
        sentences.append(f"Measured with labels: {evaluation.accuracy:.1%}.")
    elif result.test_error is not None:
        sentences.append(f"Accuracy on labelled test rows: {1 - result.test_error:.1%}.")
    return sentences


def _by_class(classifier: Classifier, shares: Matrix) -> dict[str, float]:
    return dict(zip(classifier.classes, shares.tolist(), strict=True))


def _describe_rows(classifier: Classifier) -> Section:
    schema = classifier.schema
    if isinstance(schema, TableSchema):
        return {"rows_are": "rows of a table", "columns": [_describe_column(column) for column in schema.columns]}
    kind = "images" if isinstance(schema, ImageSchema) or len(classifier.input_shape) == 3 else "arrays"
    return {"rows_are": f"{kind} of shape {' x '.join(map(str, classifier.input_shape))}", "columns": []}


def _describe_column(column: Column) -> dict[str, str]:
    kind = type(column).__name__.lower()
    if isinstance(column, Category):
        others = "others are one group" if column.others else "others count as none of them"
        values = f"one of {len(column.words)} known words; {others}"
        missing = "flagged to the network" if column.missing else "counts as none of them"
    else:
        values = "standardised" if kind == "number" else "yes or no"
        missing = "replaced by the mean" + (", and flagged to the network" if column.missing else "; none in training")
    return {"name": column.name, "kind": kind, "values": values, "missing": missing}


def _diagnosis(checked: CheckResult) -> Section:
    """Return the diagnostics without the advice, which names sites and sets."""
    return {
        "identifiable": checked.identifiable,
        "summary": checked.summary,
        "clients": len(checked.clients),
        "forecast": asdict(checked.forecast),
    }


def _estimates(evaluation: Evaluation) -> Section:
    far = sum(line.distance > 2 for line in evaluation.calibration)
    return {
        "estimated_accuracy": evaluation.estimated_accuracy,
        "interval": evaluation.interval,
        "reason": evaluation.reason,
        "remedies": evaluation.remedies,
        "baselines": [asdict(each) for each in evaluation.baselines],
        "recall": _estimates_by_class(evaluation.recall),
        "precision": _estimates_by_class(evaluation.precision),
        "calibration": {"shares": len(evaluation.calibration), "more_than_two_standard_errors_off": far},
        "assumption": {
            "verdict": assumption_verdict(evaluation.assumption),
            "p_value": evaluation.assumption.p_value,
            "misfits": len(evaluation.assumption.misfits),
        },
    }


def _estimates_by_class(estimates: tuple[ClassEstimate, ...]) -> dict[str, dict[str, float]]:
    return {each.class_: {"value": each.value, "low": each.low, "high": each.high} for each in estimates}


def _limits(
    classifier: Classifier, result: RunResult, evaluation: Evaluation | None, checked: CheckResult | None
) -> list[str]:
    labels = result.labels_used
    basis = "Training used no labels: it rests on the class priors of the sets, and is wrong where these are."
    if labels:
        basis = f"Training used the labels of {counted(labels, 'row')}; of other rows it used the class priors of sets."
    limits = [
        f"{ASSUMPTION} The same must hold in use.",
        f"{basis} {LABELS_USED}",
        "Its probabilities are for the class mix above; for another population, adapt it to that class mix (--prior).",
        "It was not tested on groups within a class; test it on labelled cases before decisions depend on it.",
        *(
            ()
            if any(each.unit == "row" and each.guarantee for each in result.privacy)
            else ("How much its weights reveal of single training rows was not measured.",)
        ),
        "No accuracy was estimated without labels."
        if evaluation is None or evaluation.interval is None
        else "The estimates without labels are for the class mix in training.",
        *cautions(evaluation, checked),
    ]
    if evaluation is not None and evaluation.interval is None and any(each.interval for each in evaluation.baselines):
        limits.append(CANNOT_SEE)  # of the naive classifiers
    if isinstance(classifier.schema, TableSchema):
        limits.append(
            "The model itself contains the names of the columns, mean and spread of numbers, and the common values of "
            "categories; make sure that none of them is secret before you pass it on."
        )
    return limits
