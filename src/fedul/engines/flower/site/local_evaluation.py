"""Accuracy of the delivered classifier, estimated at one site from its own priors without labels.

A site sends one estimate. Anything finer would disclose priors: the matrix Pi^T W Pi of a site with one set holds the
priors of that set.
"""

from __future__ import annotations

from torch import nn

from fedul.classifier import Classifier
from fedul.core import TaskSpec, UnlabeledSets
from fedul.engines.flower.protocol.documents import LocalEvaluation
from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.cross_fit import held_out_predictions
from fedul.evaluation.label_free import estimate_accuracy

LOCAL_REPORT = "local_evaluation.json"
"""The estimate of this site, in its state folder; with secure aggregation the coordinator does not receive it."""
MIN_SETS = 3
MIN_ROWS = 50
"""A site with fewer sets, or fewer held-out rows, sends no estimate."""


def evaluate_locally(client: UnlabeledSets, spec: TaskSpec, module: nn.Module, temperature: float) -> LocalEvaluation:
    """Return the accuracy estimate of a site, rounded; 0 rows if it has too little data for one.

    The same if its sets contradict an estimate. How wide its interval is does not matter: sites are combined.
    """
    if len(client.priors) < MIN_SETS or len(client.held_out) < MIN_ROWS:
        return LocalEvaluation(0)
    classifier = Classifier(
        module,
        "custom",
        spec.classes,
        spec.input_shape,
        spec.test_prior,
        spec.scaling,
        temperature=temperature,
    )
    predictions = held_out_predictions(client, spec, classifier)
    estimate, p_value = estimate_accuracy(predictions), check_assumption(predictions).p_value
    if estimate.refusal is not None and not estimate.refusal.too_wide:
        return LocalEvaluation(0)
    accuracy = estimate.accuracy
    return LocalEvaluation(
        rows=len(client.held_out),
        accuracy=round(accuracy.value, 3),
        standard_error=round(accuracy.standard_error, 3),
        p_value=None if p_value is None else round(p_value, 3),
    )
