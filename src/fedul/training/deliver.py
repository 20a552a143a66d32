"""The result of a run after its last round: the classifier of the selected round, and what is known of it."""

from __future__ import annotations

import copy
from dataclasses import replace

from fedul._utils.files import tensors_digest
from fedul.algorithms.base import Algorithm
from fedul.classifier import Classifier
from fedul.config import TrainConfig
from fedul.core import Study
from fedul.models.weights import load_weights
from fedul.privacy.statement import finite
from fedul.training.choice import Choice
from fedul.training.result import AggregationResult, DataCounts, Run, RunResult
from fedul.training.rounds import RunContext
from fedul.training.run_folder import RunFolder
from fedul.training.run_privacy import privacy_statements
from fedul.training.set_levels import held_out_levels
from fedul.training.state import TrainingState
from fedul.training.truth_metrics import calibration_error, test_error


def deliver(
    context: RunContext,
    state: TrainingState,
    folder: RunFolder | None,
    counts: DataCounts,
    labels_used: int,
    study: Study | None,
    choice: Choice | None,
    config: TrainConfig,
) -> Run:
    """Build the result of a run after its last round, and write it into its folder if it has one."""
    spec, truth = context.spec, context.study.truth if context.study else None
    selected = state.history[state.selected_round - 1]
    load_weights(context.module, state.selected)
    pooled, by_client = None, list[float]()
    if truth is not None:
        pooled, by_client = test_error(context.module, truth, spec.scaling)
    classifier = Classifier(
        context.module.cpu(),
        context.model_name,
        tuple(spec.classes),
        spec.input_shape,
        spec.test_prior,
        spec.scaling,
        temperature=selected.temperature,
        schema=spec.schema,
        site_adjustments=None if study is None else study.federation.site_adjustments,
    )
    if study is not None and not config.is_private:
        classifier = replace(classifier, set_levels=held_out_levels(study.federation, classifier))
    calibration = None
    if truth is not None:
        probabilities = classifier.without_adjustments().predict_proba(truth.test_inputs)
        calibration = calibration_error(probabilities, truth.test_labels)
    result = RunResult(
        rounds=len(state.history),
        selected_round=state.selected_round,
        held_out_loss=selected.held_out_loss,
        labels_used=labels_used,
        weights_sha256=tensors_digest(state.weights),
        data=counts,
        seconds=round(sum(metrics.seconds for metrics in state.history), 3),
        test_error=pooled,
        test_error_clients=sum(by_client) / len(by_client) if by_client else None,
        test_errors=tuple(by_client),
        calibration_error=calibration,
        choice=choice,
        epsilon={name: finite(value) for name, value in context.engine.epsilon.items()},
        privacy=privacy_statements(spec, study, context.engine, config, selected.client_epsilon),
        secure_aggregation=AggregationResult.of(state.history) if config.secure_aggregation else None,
        stopped=state.stopped or None,
    )
    sites = _site_classifiers(context.algorithm, classifier, state)
    if folder is not None:
        folder.save_classifiers(classifier, sites)
        folder.save_result(result)
    return Run(
        classifier, state.history, result, None if folder is None else folder.path, study, site_classifiers=sites
    )


def _site_classifiers(algorithm: Algorithm, classifier: Classifier, state: TrainingState) -> dict[str, Classifier]:
    """Return the classifiers of clients that keep a part of the model."""
    classifiers = {}
    for name, own in state.selected_sites.items():
        module = copy.deepcopy(classifier.module)
        load_weights(module, algorithm.start(dict(state.selected), dict(own)))
        pooled = classifier if classifier.site_adjustments is None else classifier.for_site(name)
        classifiers[name] = replace(pooled, module=module)
    return classifiers
