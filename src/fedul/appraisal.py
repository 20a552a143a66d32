"""A finished run appraised without a label: every row is judged by a model that did not see it.

The models of the folds are runs of their own below the run's folder, so that an appraisal that was stopped goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedul.classifier import Classifier
from fedul.config import OwnDataConfig, TrainConfig
from fedul.data.chosen import data_config
from fedul.data.study import load_config
from fedul.errors import InputError
from fedul.evaluation.assumption import AssumptionTest, check_assumption
from fedul.evaluation.crossfit import cross_fit
from fedul.evaluation.judged import Judged
from fedul.evaluation.outlook import outlook
from fedul.evaluation.prior_sensitivity import PriorSensitivity, drawn_priors, prior_sensitivity
from fedul.evaluation.without_truth import Estimate, estimate
from fedul.federation import Federation
from fedul.files import write_json
from fedul.models import Model
from fedul.priors import Matrix
from fedul.rounds import Reporter
from fedul.runs import EVALUATION, RunFolder
from fedul.schema import Schema
from fedul.schema.table import TableSchema
from fedul.settings import make, plain
from fedul.training import train
from fedul.truth import Labels, Study


class Watcher(Protocol):
    """Whoever watches the models of the folds being trained."""

    def run(self, number: int, total: int, title: str) -> AbstractContextManager[Reporter]: ...


@dataclass(frozen=True, eq=False)
class Appraisal:
    """What is known of a run's classifier."""

    estimate: Estimate
    assumption: AssumptionTest
    sensitivity: PriorSensitivity | None
    accuracy: float | None  # in truth, where it is known
    labels_used: int

    def plain(self) -> dict[str, Any]:
        return {
            **self.estimate.plain(),
            "accuracy": self.accuracy,
            "labels_used": self.labels_used,
            "assumption": self.assumption.plain(),
            "prior_sensitivity": None if self.sensitivity is None else self.sensitivity.plain(),
        }


def appraise(
    run: str | Path,
    watcher: Watcher,
    *,
    folds: int = 5,
    truth_column: str | None = None,
    model: Model | None = None,
) -> Appraisal:
    """Appraises the classifier of a run, and writes what is found into its folder, for the report."""
    folder = RunFolder(run)
    stored, result = folder.stored_config(), folder.result()
    if stored is None or result is None:
        raise InputError(f"{run}: is not a finished run; train it first, or go on with it (--resume).")
    if result["labels_used"]:
        raise InputError(f"{run}: was trained with labels, and its error is known; evaluate is for what had none.")
    if truth_column is not None:
        _check_not_trained_on(truth_column, folder.load_classifier(model).schema)
    study, config = _study(stored, truth_column, run), make(TrainConfig, stored["training"])
    federation = study.federation
    judged = cross_fit(
        federation, _trainer(folder, config, result, watcher, folds, model), folds=folds, seed=config.seed
    )
    counts = [study.prior_counts.get(c.name, np.full(len(c.priors), np.inf)) for c in federation.clients]
    judged = _with_unsure_priors(judged, federation, counts)
    found = Appraisal(
        estimate(judged, seed=config.seed),
        check_assumption(judged, seed=config.seed),
        _sensitivity(judged, federation, counts, config.seed),
        _true_accuracy(judged, study, result),
        result["labels_used"],
    )
    if folder.result() != result:
        raise InputError(f"{run}: was trained further while it was evaluated; evaluate it again.")
    write_json(folder.path / EVALUATION, found.plain())
    write_json(folder.path / "check.json", outlook(federation).plain())
    return found


def _study(stored: Mapping[str, Any], truth_column: str | None, run: str | Path) -> Study:
    """The data of the run, if it is still what the run was trained on."""
    if not stored["data"]:
        raise InputError(
            f"{run}: its data is not on record; if it was trained from Python, use fedul.evaluation there; "
            f"if at sites, what they think of it is in {EVALUATION}."
        )
    options = dict(stored["data"])
    if truth_column is not None:
        options["truth_column"] = truth_column
    study = load_config(data_config(options))
    if study.federation.fingerprint() != stored["data_fingerprint"]:
        raise InputError(f"{run}: its data has changed since it was trained; train again, or bring the old files back.")
    return study


def _check_not_trained_on(column: str, schema: Schema | None) -> None:
    if isinstance(schema, TableSchema) and column in schema.names:
        raise InputError(
            f"truth-column: '{column}' was trained on as a feature; train again with --truth-column {column}."
        )


def _trainer(
    folder: RunFolder, config: TrainConfig, result: Mapping[str, Any], watcher: Watcher, folds: int, model: Model | None
) -> Callable[[Federation], Classifier]:
    """Trains as the delivered classifier was, for as many rounds."""
    settings = {**plain(config), "rounds": result["selected_round"], "select": "last", "evaluate_every": 0}
    if settings["model"] == "custom" and model is None:
        raise InputError(f"{folder.path}: made with a model of the user's own; name it with --model (model=...).")
    done = 0

    def trained(part: Federation) -> Classifier:
        nonlocal done
        done += 1
        place = folder.path / "evaluation" / f"fold-{done}-of-{folds}"
        with watcher.run(done, folds, f"fold {done}") as reporter:
            chosen = {**settings, "model": model} if model is not None else settings
            return train(part, out=place, resume=True, force=True, reporter=reporter, **chosen).classifier

    return trained


def _with_unsure_priors(judged: Judged, federation: Federation, counts: Sequence[Matrix]) -> Judged:
    if all(np.isinf(own).all() for own in counts):
        return judged
    matrices = [client.priors for client in federation.clients]
    return Judged(
        judged.clients, judged.classes, judged.test_prior, lambda generator: drawn_priors(matrices, counts, generator)
    )


def _sensitivity(
    judged: Judged, federation: Federation, counts: Sequence[Matrix], seed: int
) -> PriorSensitivity | None:
    return prior_sensitivity(federation, counts, np.concatenate([c.probabilities for c in judged.clients]), seed=seed)


def _true_accuracy(judged: Judged, study: Study, result: Mapping[str, Any]) -> float | None:
    """Of research data, on its test rows; else on the rows that were judged, if their classes are known."""
    if study.truth is not None:
        return None if result["test_error"] is None else 1 - float(result["test_error"])
    config = data_config(study.origin)
    if not isinstance(config, OwnDataConfig) or config.truth_column is None:
        return None
    from fedul.data.own import true_labels

    labels = true_labels(config, study.federation)
    right, rows = np.zeros(len(judged.classes)), np.zeros(len(judged.classes))
    for client in judged.clients:
        true: Labels = np.concatenate(labels[client.name])[: len(client.sets)]  # training rows come first
        np.add.at(rows, true, 1)
        np.add.at(right, true, client.probabilities.argmax(axis=1) == true)
    if not rows.all():
        return None
    return float(judged.test_prior @ (right / rows))
