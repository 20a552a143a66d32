"""Accuracy without labels across sites: the coordinator combines one estimate per site."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedul.core import SIGNIFICANCE, Z_95
from fedul.engines.flower.protocol.documents import LocalEvaluation
from fedul.evaluation.assumption import AssumptionTest, Misfit
from fedul.evaluation.document import Evaluation, SiteEvaluation
from fedul.evaluation.intervals import interval_estimate
from fedul.evaluation.label_free import SOFT_ERROR

OVERCONFIDENCE = 1.4
"""Factor on a site's standard error: a site that happens to find few errors in few rows understates it. Chosen on
digits of seeds 300 to 339; docs/results/local-evaluation.md reports on others."""


def is_plausible(evaluation: LocalEvaluation, max_rows: int) -> bool:
    """Return whether an estimate is in range and is based on no more rows than the site has held out."""
    p_value = 0.5 if evaluation.p_value is None else evaluation.p_value
    shares = (evaluation.accuracy, evaluation.standard_error, p_value)
    return 0 < evaluation.rows <= max_rows and all(0 <= share <= 1 for share in shares)


def combine_local_evaluations(evaluations: Mapping[str, LocalEvaluation], classes: Sequence[str]) -> Evaluation | None:
    """Return the accuracy over all sites with its interval; None without an estimate.

    Sites are weighted by their rows, because a site that finds no error at all takes its estimate for too precise. The
    error of trusting the classifier's probabilities is common to all sites and does not average out.
    """
    if not evaluations:
        return None
    rows = sum(each.rows for each in evaluations.values())
    value = sum(each.rows / rows * each.accuracy for each in evaluations.values())
    variance = 0.0
    for each in evaluations.values():
        binomial = value * (1 - value) / each.rows
        variance += (each.rows / rows) ** 2 * max((OVERCONFIDENCE * each.standard_error) ** 2, binomial)
    estimate = interval_estimate(value, variance + (SOFT_ERROR * (1 - value)) ** 2, rows)
    return Evaluation(
        estimated_accuracy=estimate.value,
        interval=(estimate.low, estimate.high),
        rows=rows,
        width_with_labels=2 * Z_95 * math.sqrt(value * (1 - value) / rows),
        classes=tuple(classes),
        assumption=_combine_tests(evaluations),
        sites=tuple(SiteEvaluation(site, **vars(each)) for site, each in evaluations.items()),
    )


def _combine_tests(evaluations: Mapping[str, LocalEvaluation]) -> AssumptionTest:
    """Return the test whether all sites share the classes, from each site's own test (Bonferroni correction)."""
    tested = {site: each.p_value for site, each in evaluations.items() if each.p_value is not None}
    if not tested:
        return AssumptionTest(None, reason="no site could test it.")
    why = "its sets do not look like mixtures of the same classes"
    misfits = tuple(Misfit(site, None, p, why) for site, p in tested.items() if p * len(tested) < SIGNIFICANCE)
    return AssumptionTest(min(1.0, min(tested.values()) * len(tested)), misfits)
