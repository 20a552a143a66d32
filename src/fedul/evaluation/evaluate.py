"""`fedul.evaluate`: accuracy of a finished run without labels, from out-of-fold predictions.

The models of the folds are runs in a folder below the run's own, so that an interrupted evaluation can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedul._utils.files import write_json
from fedul._utils.hardware import device_or_auto
from fedul.algorithms.base import Algorithm
from fedul.classifier import Classifier
from fedul.core import Federation, Labels, Matrix, Study
from fedul.errors import InputError
from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.baselines import evaluate_baselines
from fedul.evaluation.check import check
from fedul.evaluation.cross_fit import cross_fit_parts
from fedul.evaluation.document import Evaluation
from fedul.evaluation.label_free import estimate_accuracy
from fedul.evaluation.out_of_fold import OutOfFoldPredictions
from fedul.evaluation.prior_sensitivity import draw_priors, prior_sensitivity
from fedul.evaluation.run_target import RunTarget
from fedul.methods.base import Method
from fedul.models import Model
from fedul.training import (
    Callback,
    CallbackList,
    Run,
    RunFolder,
    RunInfo,
    RunResult,
    train_parts,
)
from fedul.training.run_files import CHECK, EVALUATION, FOLDS
from fedul.training.truth_metrics import error_at_prior


def evaluate(
    run: Run | RunFolder | str | Path,
    *,
    folds: int = 5,
    truth_column: str | None = None,
    method: Method | None = None,
    algorithm: Algorithm | None = None,
    model: Model | None = None,
    study: Study | None = None,
    data: Any = None,
    priors: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Evaluation:
    """Estimate the accuracy of a run's classifier without labels, and test what the estimate rests on.

    Every row is predicted by a model that was trained without it, as the classifier was and for as many rounds.

    Parameters
    ----------
    run : Run, RunFolder or path
        What `fedul.train` returned, or the folder of a finished run. If there is a folder, `evaluation.json` and
        `check.json` are written into it, for `fedul.report` and `fedul.export`.
    folds : int, default=5
        Number of models to train.
    truth_column : str, optional
        Column of the run's table with true classes, to compare with.
    method, algorithm, model : object, optional
        What the run was trained with, if these were objects and `run` is a folder. A `Run` remembers them.
    study : Study, optional
        The data of the run, if `run` is a folder that does not record where its data is from.
    data, priors : str, Path or DataFrame, optional
        Where the data and class priors of the run are now, if they have moved.
    callbacks : sequence of Callback
        Called during the training of the folds.

    Returns
    -------
    Evaluation
        ``print(evaluation)`` shows what ``fedul evaluate`` prints.

    Raises
    ------
    InputError
        If the run is not finished, was trained with labels, or its data is missing or has changed.

    Examples
    --------
    >>> import fedul
    >>> run = fedul.train(fedul.load("digits", clients=2, rows=600), rounds=2, seed=0)
    >>> evaluation = fedul.evaluate(run, folds=2)
    >>> low, high = evaluation.interval
    >>> low < evaluation.estimated_accuracy < high
    True
    """
    target = RunTarget.of(
        run, None if study is None else Study.of(study), {"method": method, "algorithm": algorithm, "model": model}
    )
    loaded, seed = target.load_study(truth_column, data, priors), target.recipe.config.seed
    federation = loaded.federation
    if target.result.labels_used > sum(client.labelled_rows for client in federation.clients):
        raise InputError(
            f"{target.name}: was trained with labels, and its error is known; evaluate is for runs without labels."
        )
    train = _trainer(target, CallbackList(callbacks), folds)
    predictions = cross_fit_parts(federation, train, folds=folds, seed=seed)
    counts = [loaded.prior_counts.get(c.name, np.full(len(c.priors), np.inf)) for c in federation.clients]
    predictions = _with_uncertain_priors(predictions, federation, counts)
    evaluation = estimate_accuracy(predictions, seed=seed).to_evaluation(
        check_assumption(predictions, seed=seed),
        labels_used=target.result.labels_used,
        accuracy=_true_accuracy(predictions, loaded, target.result),
        baselines=evaluate_baselines(federation, folds=folds, seed=seed),
        prior_sensitivity=prior_sensitivity(
            federation, counts, np.concatenate([c.probabilities for c in predictions.clients]), seed=seed
        ),
    )
    if target.folder is not None:
        if target.folder.result() != target.result:
            raise InputError(f"{target.name}: was trained further during its evaluation; evaluate it again.")
        write_json(target.folder.path / EVALUATION, evaluation.to_dict())
        write_json(target.folder.path / CHECK, check(loaded, method=target.recipe.make_method(None)).to_dict())
    return evaluation


def _trainer(
    target: RunTarget, callback: Callback, folds: int
) -> Callable[[Iterable[Federation]], Iterator[Classifier]]:
    """Return a function that trains as the delivered classifier was trained, for as many rounds."""
    rounds = target.result.selected_round
    device = device_or_auto(target.recipe.config.device)
    config = replace(target.recipe.config, rounds=rounds, patience=0, select="last", evaluate_every=0, device=device)
    recipe = replace(target.recipe, config=config)

    def train(parts: Iterable[Federation]) -> Iterator[Classifier]:
        infos = (_fold_info(target, config.rounds, fold, folds) for fold in range(1, folds + 1))
        return (run.classifier for run in train_parts(parts, recipe, infos, callback, resume=True))

    return train


def _fold_info(target: RunTarget, rounds: int, fold: int, folds: int) -> RunInfo:
    folder = None if target.folder is None else target.folder.path / FOLDS / f"fold-{fold}-of-{folds}"
    return RunInfo(rounds, f"fold {fold}", fold, folds, folder=folder, role="fold")


def _with_uncertain_priors(
    predictions: OutOfFoldPredictions, federation: Federation, counts: Sequence[Matrix]
) -> OutOfFoldPredictions:
    if all(np.isinf(each).all() for each in counts):
        return predictions
    matrices = [client.priors for client in federation.clients]
    return replace(predictions, draw_priors=lambda generator: draw_priors(matrices, counts, generator))


def _true_accuracy(predictions: OutOfFoldPredictions, study: Study, result: RunResult) -> float | None:
    """Accuracy on the test rows of research data, else on the evaluated rows if their classes are known."""
    if study.truth is not None:
        return None if result.test_error is None else 1 - result.test_error
    labels = study.true_labels
    if labels is None:
        return None
    true: Labels = np.concatenate(
        [np.concatenate(labels[c.name])[: len(c.sets)] for c in predictions.clients]  # training rows come first
    )
    if len(np.unique(true)) < len(predictions.classes):
        return None
    predicted = np.concatenate([client.probabilities.argmax(axis=1) for client in predictions.clients])
    return 1 - error_at_prior(predicted, true, predictions.test_prior)
