"""Accuracy without labels across sites: the coordinator combines one estimate per site."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedul._utils.display import counted
from fedul.core import SIGNIFICANCE, Z_95
from fedul.engines.flower.protocol.documents import LocalEvaluation
from fedul.evaluation.assumption import TESTED_AT, AssumptionTest, Misfit
from fedul.evaluation.document import Evaluation, SiteEvaluation
from fedul.evaluation.intervals import share_estimate
from fedul.evaluation.refusal import WIDEST, too_wide


def is_plausible(evaluation: LocalEvaluation, max_rows: int) -> bool:
    """Return whether an estimate is in range and is based on no more rows than the site has held out."""
    p_value = 0.5 if evaluation.p_value is None else evaluation.p_value
    shares = (evaluation.accuracy, evaluation.standard_error, p_value)
    return 0 < evaluation.rows <= max_rows and all(0 <= share <= 1 for share in shares)


def combine_local_evaluations(evaluations: Mapping[str, LocalEvaluation], classes: Sequence[str]) -> Evaluation | None:
    """Return the accuracy over all sites with its interval; None without an estimate.

    Sites are weighted by their rows, because a site that finds no error at all takes its estimate for too precise.
    Their errors are taken as fully dependent: most of the error comes from trusting the probabilities of one
    classifier.
    """
    if not evaluations:
        return None
    rows = sum(each.rows for each in evaluations.values())
    value = sum(each.rows / rows * each.accuracy for each in evaluations.values())
    error = sum(
        each.rows / rows * max(each.standard_error, math.sqrt(value * (1 - value) / each.rows))
        for each in evaluations.values()
    )
    known: dict[str, Any] = {
        "assumption": _combine_tests(evaluations),
        "sites": tuple(SiteEvaluation(site, **vars(each)) for site, each in evaluations.items()),
    }
    return _as_evaluation(value, error, rows, classes, known)


def combine_totals(totals: Mapping[str, float], classes: Sequence[str]) -> Evaluation | None:
    """Return the accuracy over all sites from totals over them (`secure.contributions`); None without an estimate."""
    rows = round(totals["rows"])
    if rows <= 0 or not 0 <= totals["correct"] <= totals["rows"] or not 0 <= totals["errors"] <= totals["rows"]:
        return None
    tested, misfits = round(totals["tested"]), round(totals["misfits"])
    reason = "no site could test it."
    if tested:
        found = f"{misfits} found" if misfits else "none found"
        reason = (
            f"{TESTED_AT} {counted(tested, 'site')}, each with its own p-value, and {found} sets that do not look like "
            "mixtures of the same classes."
        )
        if misfits:
            reason = f"{reason[:-1]}; which sites these are stays at the sites."
    known = {"assumption": AssumptionTest(None, reason=reason)}
    return _as_evaluation(totals["correct"] / rows, totals["errors"] / rows, rows, classes, known)


def _as_evaluation(
    value: float, error: float, rows: int, classes: Sequence[str], known: Mapping[str, Any]
) -> Evaluation:
    """Return the evaluation with this accuracy and standard error."""
    estimate = share_estimate(value, error**2, rows)
    known = {"rows": rows, "classes": tuple(classes), **known}
    if estimate.width > WIDEST:
        refusal = too_wide(estimate)
        return Evaluation(None, None, reason=refusal.reason, remedies=refusal.remedies, **known)
    return Evaluation(
        estimate.value,
        (estimate.low, estimate.high),
        width_with_labels=2 * Z_95 * math.sqrt(value * (1 - value) / rows),
        **known,
    )


def _combine_tests(evaluations: Mapping[str, LocalEvaluation]) -> AssumptionTest:
    """Return the test whether all sites share the classes, from each site's own test (Bonferroni correction)."""
    tested = {site: each.p_value for site, each in evaluations.items() if each.p_value is not None}
    if not tested:
        return AssumptionTest(None, reason="no site could test it.")
    why = "its sets do not look like mixtures of the same classes"
    misfits = tuple(Misfit(site, None, p, why) for site, p in tested.items() if p * len(tested) < SIGNIFICANCE)
    return AssumptionTest(min(1.0, min(tested.values()) * len(tested)), misfits)
