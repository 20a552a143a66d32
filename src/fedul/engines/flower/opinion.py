"""Accuracy without labels, across sites: each solves its own part from its priors, and sends one estimate.

Anything finer would tell of the priors: the matrix Pi^T W Pi of a site with one set is that set's priors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from fedul.classifier import Classifier
from fedul.engines.flower.agreement import Agreement
from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.crossfit import held_out_judged
from fedul.evaluation.without_truth import LEVEL, SOFT, Figure, estimate, figure
from fedul.federation import UnlabeledSets

SAID = ("rows", "accuracy", "standard_error", "p_value")
UNLIKELY = 0.05
TOO_SURE = 1.4
"""How many times its own standard error a site's estimate is off: one that happens to find few mistakes in its few rows
takes itself for sure. Chosen on digits of seeds 300 to 339; docs/results/opinions.md reports on others."""
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
        "standard_error": round(found.standard_error, 3),
        "p_value": None if test.p_value is None else round(test.p_value, 3),
    }


def together(
    opinions: Mapping[str, Mapping[str, Any]], classes: Sequence[str], most_rows: Mapping[str, int]
) -> dict[str, Any] | None:
    """The accuracy that all sites' opinions amount to, with its interval; None if no site had one.

    Sites count by their rows: a site that finds no mistake at all believes itself to be surer than others. What all
    have in common, that probabilities are trusted to a degree, does not grow less with their number.
    """
    told = {site: each for site, each in opinions.items() if _makes_sense(each, most_rows[site])}
    if not told:
        return None
    rows = sum(int(each["rows"]) for each in told.values())
    worth = {site: int(each["rows"]) / rows for site, each in told.items()}
    value = sum(worth[site] * float(each["accuracy"]) for site, each in told.items())
    variance = 0.0
    for site, each in told.items():
        least = value * (1 - value) / int(each["rows"])
        variance += worth[site] ** 2 * max((TOO_SURE * float(each["standard_error"])) ** 2, least)
    found: Figure = figure(value, variance + (SOFT * (1 - value)) ** 2, rows)
    return {
        "estimated_accuracy": found.value,
        "interval": [found.low, found.high],
        "accuracy": None,
        "classes": list(classes),
        "assumption": _assumption(told),
        "rows": rows,
        "width_with_labels": 2 * LEVEL * math.sqrt(value * (1 - value) / rows),
        "sites": [{"site": site, **{key: each.get(key) for key in SAID}} for site, each in told.items()],
    }


def _makes_sense(each: Mapping[str, Any], most_rows: int) -> bool:
    """Whether an opinion is one, from no more rows than the site has; it may send anything."""
    rows, figures = each.get("rows"), [each.get(name) for name in ("accuracy", "standard_error")]
    p_value = each.get("p_value")
    numbers = [*figures, 0.5 if p_value is None else p_value]
    sound = all(isinstance(n, int | float) and not isinstance(n, bool) and 0 <= n <= 1 for n in numbers)
    return sound and isinstance(rows, int) and not isinstance(rows, bool) and 0 < rows <= most_rows


def _assumption(told: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Whether sites fit the classes that all share, each having tested its own sets (Bonferroni for their number)."""
    tested = {site: float(each["p_value"]) for site, each in told.items() if each.get("p_value") is not None}
    if not tested:
        return {"p_value": None, "misfits": [], "reason": "no site could test it."}
    strange = {site: p for site, p in tested.items() if p * len(tested) < UNLIKELY}
    why = "its sets do not look like mixtures of the classes as the classifier knows them"
    misfits = [{"client": site, "set": "all", "p_value": p, "why": why} for site, p in strange.items()]
    return {"p_value": min(1.0, min(tested.values()) * len(tested)), "misfits": misfits}
