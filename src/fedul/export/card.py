"""The model card of a run: what the classifier is for, what it was made from, how good it is, and where its limits are.

After Mitchell et al., Model Cards for Model Reporting, FAT* 2019. It holds no row of data and no class priors of sets;
names of sites and files, and the words of categories, stay out of it too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedul.classifier import Classifier
from fedul.data import SOURCES
from fedul.errors import InputError
from fedul.export.card_text import as_markdown
from fedul.files import read_json, tensors_digest
from fedul.models.weights import weights_of
from fedul.priors import Matrix
from fedul.runs import EVALUATION, RunFolder
from fedul.schema.images import ImageSchema
from fedul.schema.table import Category, Column, TableSchema

__all__ = ["as_markdown", "is_card", "model_card"]

FORMAT = "fedul-model-card"
VERSION = 1
TOLD = ("model", "method", "method_option", "algorithm", "algorithm_option", "loss", "epochs", "batch_size", "seed")
"""The settings of the training that a reader of the card may want."""
COUNTS = ("clients", "sets", "rows", "held_out_rows")
ESTIMATES = ("estimated_accuracy", "interval")
UNLIKELY = 0.01
"""A p-value of the assumption under which the card warns of it."""


def model_card(run: RunFolder, classifier: Classifier | None = None) -> dict[str, Any]:
    """The card of a finished run, as JSON has it; `classifier` is the run's own, at another class mix if need be."""
    config, result = _of_run(run)
    classifier = classifier or run.load_classifier()
    training, data = config.get("training", {}), config.get("data", {})
    evaluation, check = _optional(run, EVALUATION), _optional(run, "check.json")
    figures = None if evaluation is None else _figures(evaluation)
    diagnosis = None if check is None else _diagnosis(check)
    last_round = result.get("weights_sha256")
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": {
            "classes": list(classifier.classes),
            "settings": {name: training[name] for name in TOLD if training.get(name) not in (None, {})},
            "rounds": result.get("rounds"),
            "selected_round": result.get("selected_round"),
            "labels_used": result.get("labels_used"),
            "temperature": classifier.temperature,
            "software": config.get("software", {}),
            "date": _date(run),
            "weights_sha256": tensors_digest(weights_of(classifier.module)),
            "last_round_weights_sha256": last_round,
        },
        "intended_use": {
            "purpose": f"Gives a row of the form below a probability for each of {len(classifier.classes)} classes.",
            "class_mix": _by_class(classifier, classifier.prior),
            "trained_class_mix": _by_class(classifier, classifier.trained_prior),
        },
        "training_data": {
            "source": data["data"] if data.get("data") in SOURCES else "data of the sites' own",
            **{name: _number(result.get("data", {}).get(name)) for name in COUNTS},
            **_form(classifier),
        },
        "diagnosis": diagnosis,
        "figures_without_labels": figures,
        "figures_with_labels": _with_labels(result, evaluation or {}),
        "limits": _limits(classifier, figures, diagnosis, labels=result.get("labels_used") or 0),
    }


def is_card(file: Path) -> bool:
    """Whether a file is a model card, which a newer one may take the place of."""
    try:
        found = read_json(file)
    except InputError:
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def _of_run(run: RunFolder) -> tuple[dict[str, Any], dict[str, Any]]:
    if not (run.path / "config.json").exists():
        raise InputError(
            f"{run.path}: holds no run; a model card needs the folder of a finished run ('fedul train --out')."
        )
    result = run.result()
    if result is None:
        raise InputError(f"{run.path}: the run is not finished; end it with 'fedul train --resume' first.")
    return run.stored_config() or {}, result


def _optional(run: RunFolder, name: str) -> dict[str, Any] | None:
    file = run.path / name
    if not file.exists():
        return None
    found = read_json(file)
    if not isinstance(found, dict):
        raise InputError(f"{file}: damaged; delete it or make it again.")
    return found


def _date(run: RunFolder) -> str | None:
    """The day on which the weights were written."""
    for folder in (run.path / "model", run.path):
        file = folder / "weights.safetensors"
        if file.exists():
            return datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat()
    return None


def _by_class(classifier: Classifier, shares: Matrix) -> dict[str, float]:
    return dict(zip(classifier.classes, shares.tolist(), strict=True))


def _form(classifier: Classifier) -> dict[str, Any]:
    """What a row is."""
    schema = classifier.schema
    if isinstance(schema, TableSchema):
        return {"rows_are": "rows of a table", "columns": [_column(column) for column in schema.columns]}
    kind = "images" if isinstance(schema, ImageSchema) or len(classifier.input_shape) == 3 else "arrays"
    return {"rows_are": f"{kind} of shape {' x '.join(map(str, classifier.input_shape))}", "columns": []}


def _column(column: Column) -> dict[str, str]:
    kind = type(column).__name__.lower()
    if isinstance(column, Category):
        known = f"one of {len(column.words)} known words; "
        others = "others are one group" if column.others else "others count as none of them"
        missing = "told to the network" if column.missing else "counts as none of them"
        return {"name": column.name, "kind": kind, "values": known + others, "missing": missing}
    values = "standardised" if kind == "number" else "yes or no"
    missing = "taken for the mean" + (", and told to the network" if column.missing else "; there was none in training")
    return {"name": column.name, "kind": kind, "values": values, "missing": missing}


def _figures(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """What `fedul evaluate` found; misfits and calibration are counted, since they name sites and sets."""
    found = {name: _kept(evaluation[name]) for name in ESTIMATES if name in evaluation}
    for name in ("recall", "precision"):
        found[name] = {
            str(line["class"]): {end: _number(line.get(end)) for end in ("value", "low", "high")}
            for line in _lines(evaluation.get(name))
            if "class" in line
        }
    apart = [_standard_errors(line) for line in _lines(evaluation.get("calibration"))]
    found["calibration"] = {"shares": len(apart), "more_than_two_standard_errors_off": sum(e > 2 for e in apart)}
    assumption = evaluation.get("assumption")
    if isinstance(assumption, Mapping):
        misfits = len(_lines(assumption.get("misfits")))
        found["assumption"] = {"p_value": _number(assumption.get("p_value")), "misfits": misfits}
    return found


def _lines(value: Any) -> list[Mapping[str, Any]]:
    return [line for line in value if isinstance(line, Mapping)] if isinstance(value, list) else []


def _standard_errors(line: Mapping[str, Any]) -> float:
    stated, predicted, error = (_number(line.get(name)) or 0.0 for name in ("stated", "predicted", "standard_error"))
    return abs(predicted - stated) / error if error else 0.0


def _diagnosis(check: Mapping[str, Any]) -> dict[str, Any]:
    """What `fedul check` found, but for its advice, which names sites and sets."""
    return {
        "identifiable": check.get("identifiable"),
        "summary": _kept(check.get("summary")),
        "clients": len(_lines(check.get("clients"))),
        "forecast": _kept(check.get("forecast")),
    }


def _with_labels(result: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, float] | None:
    named = {name: result.get(name) for name in ("test_error", "calibration_error")}
    named["accuracy"] = evaluation.get("accuracy")
    return {name: number for name, value in named.items() if (number := _number(value)) is not None} or None


def _kept(value: Any) -> Any:
    """Figures, words and intervals; longer lists could be rows or priors of sets, and stay out."""
    if isinstance(value, Mapping):
        return {str(name): _kept(each) for name, each in value.items() if not isinstance(each, list) or len(each) <= 2}
    if isinstance(value, list):
        return [_number(each) for each in value[:2]]
    return value if isinstance(value, str | bool) else _number(value)


def _number(value: Any) -> float | int | None:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if fine else None


def _limits(
    classifier: Classifier, figures: Mapping[str, Any] | None, diagnosis: Mapping[str, Any] | None, labels: int
) -> list[str]:
    basis = "Training knew the class of no row: it rests on the class proportions of the sets, and errs where these do."
    if labels:
        basis = f"Training knew the class of {labels:,} rows; what it knew of others are the class proportions of sets."
    found = [
        "It assumes that the cases of a class look alike in every set, at every site, and in use; only how common the "
        "classes are may differ.",
        basis,
        "Its probabilities are for the class mix above; for another population, move it to that class mix (--prior).",
        "It was not tested on groups within a class; test it on labelled cases before decisions depend on it.",
        "How much its weights reveal of single training rows was not measured.",
    ]
    if figures is None:
        found.append("No accuracy was estimated without labels.")
    else:
        found.append("The figures without labels rest on the same assumption, and are for the class mix in training.")
        p_value = figures.get("assumption", {}).get("p_value")
        if p_value is not None and p_value < UNLIKELY:
            found.append(f"The training data speak against that assumption (p = {p_value:.2g}).")
    if diagnosis is not None and diagnosis["identifiable"] is False:
        found.append("The class proportions of the sets do not determine the classifier; do not rely on it.")
    if isinstance(classifier.schema, TableSchema):
        found.append(
            "The model itself holds the names of the columns, mean and spread of numbers, and the common words of "
            "categories; see to it that none of them is secret before it is passed on."
        )
    return found
