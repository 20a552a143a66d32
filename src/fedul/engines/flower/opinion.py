"""Accuracy without labels, across sites: each solves its own part from its priors, and sends one estimate.

Anything finer would tell of the priors: the matrix Pi^T W Pi of a site with one set is that set's priors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from fedul.classifier import Classifier
from fedul.engines.flower.agreement import Agreement
from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.crossfit import held_out_judged
from fedul.evaluation.without_truth import LEVEL, SOFT, Figure, estimate, figure
from fedul.federation import UnlabeledSets

MIN_SETS = 3
MIN_ROWS = 50
"""A site with fewer sets, or fewer held-out rows, says nothing."""


def opinion(client: UnlabeledSets, agreement: Agreement, module: nn.Module, temperature: float) -> dict[str, Any]:
    """What a site tells of the classifier: three rounded figures, or that it has too little to say."""
    if len(client.priors) < MIN_SETS or len(client.held_out) < MIN_ROWS:
        return {"rows": 0}
    classifier = Classifier(
        module,
        "custom",
        agreement.classes,
        agreement.input_shape,
        agreement.test_prior,
        agreement.scaling,
        temperature=temperature,
    )
    judged = held_out_judged(client, agreement, classifier)
    found, test = estimate(judged).accuracy, check_assumption(judged)
    return {
        "rows": len(client.held_out),
        "accuracy": round(found.value, 3),
        "standard_error": round((found.high_alike - found.low_alike) / (2 * LEVEL), 3),
        "p_value": None if test.p_value is None else round(test.p_value, 3),
    }


def together(opinions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The accuracy that all sites' opinions amount to, with its interval; None if no site had one.

    Sites count by their standard errors. What all have in common, that probabilities are trusted to a degree, does not
    grow less with their number.
    """
    told = {site: each for site, each in opinions.items() if each["rows"] > 0}
    if not told:
        return None
    worth = {site: 1 / max(float(each["standard_error"]), 1e-3) ** 2 for site, each in told.items()}
    total = sum(worth.values())
    value = sum(worth[site] * float(each["accuracy"]) for site, each in told.items()) / total
    rows = sum(int(each["rows"]) for each in told.values())
    found: Figure = figure(value, 1 / total + (SOFT * (1 - value)) ** 2, rows)
    return {
        "estimated_accuracy": found.value,
        "interval": [found.low, found.high],
        "accuracy": None,
        "rows": rows,
        "width_with_labels": 2 * LEVEL * math.sqrt(value * (1 - value) / rows),
        "sites": [{"site": site, **each} for site, each in told.items()],
    }
