"""Sentences about an evaluation, written once for the command line, the report and the model card."""

from __future__ import annotations

from fedul.core import SIGNIFICANCE
from fedul.evaluation.assumption import MIXES_DIFFER, ONE_SET, AssumptionTest, ColumnDifference
from fedul.evaluation.check_result import CheckResult
from fedul.evaluation.document import Evaluation

ASSUMPTION = (
    "Training and estimates rest on one assumption: cases of a class look alike in every set, and sets differ only in "
    "how common the classes are."
)
DIFFER_IN_GENERAL = "Clients or sets differ in general: no few of them explain it."
CHECK_PRIORS = "Check the class priors of the clients and sets that are named."
REMEDIES = (
    "Remedies: --site-adjustment auto if clients measure on different scales, another split into sets, or the sets of "
    "all clients pooled at one."
)
NOT_IDENTIFIABLE = "The class priors cannot tell the classes apart, so the classifier is one of many that fit them."


def p_value_text(p_value: float) -> str:
    """Return a p-value as text.

    Examples
    --------
    >>> p_value_text(0.4), p_value_text(0.00001)
    ('p = 0.40', 'p < 0.001')
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}" if p_value < 0.1 else f"p = {p_value:.2f}"


def is_contradicted(test: AssumptionTest) -> bool:
    """Return whether the data contradict the assumption significantly."""
    return test.p_value is not None and test.p_value < SIGNIFICANCE


def assumption_verdict(test: AssumptionTest) -> str:
    """Return the outcome of the assumption test in one sentence.

    Examples
    --------
    >>> assumption_verdict(AssumptionTest(0.57))
    'The sets do not contradict the assumption that cases of a class look alike in every set (p = 0.57).'
    """
    assumption = "the assumption that cases of a class look alike in every set"
    if test.p_value is None:
        return f"T{assumption[1:]} could not be tested: {(test.reason or 'no reason is given').rstrip('.')}."
    p_value = p_value_text(test.p_value)
    if is_contradicted(test):
        return f"The sets contradict {assumption} ({p_value}); do not rely on the estimates."
    return f"The sets do not contradict {assumption} ({p_value})."


def column_advice(difference: ColumnDifference) -> str:
    """Return what to do about a column that differs, in one sentence.

    Examples
    --------
    >>> column_advice(ColumnDifference("age", "north", None, 0.83, 0.001)).partition("beyond")[0]
    'Drop or transform `age`: it differs between clients '
    """
    size = abs(difference.difference)
    amount = f"{size:.1f}" if size >= 0.095 else f"{size:.2g}"
    kind, where = "clients", f"at '{difference.client}'"
    if difference.set is not None:
        kind, where = "sets", f"in set '{difference.set}' of client '{difference.client}'"
    return (
        f"Drop or transform `{difference.column}`: it differs between {kind} beyond what the class mix explains "
        f"(by {amount} standard deviations {where})."
    )


def assumption_advice(test: AssumptionTest) -> list[str]:
    """Return what to do if the data contradict the assumption; nothing if they do not.

    Examples
    --------
    >>> assumption_advice(AssumptionTest(0.57))
    []
    """
    if not is_contradicted(test):
        return []
    advice = [column_advice(each) for each in test.columns]
    if not test.misfits:
        advice.insert(0, DIFFER_IN_GENERAL)
    if any(misfit.why in (MIXES_DIFFER, ONE_SET) for misfit in test.misfits):
        advice.append(CHECK_PRIORS)
    return [*advice, REMEDIES]


def cautions(evaluation: Evaluation | None, check: CheckResult | None) -> list[str]:
    """Return what a reader must know before relying on a classifier."""
    sentences = [] if check is None or check.identifiable else [NOT_IDENTIFIABLE]
    if evaluation is not None and is_contradicted(evaluation.assumption):
        sentences.append(assumption_verdict(evaluation.assumption))
    if evaluation is not None and evaluation.accuracy is not None:
        low, high = evaluation.interval
        if not low <= evaluation.accuracy <= high:
            sentences.append(f"Measured with labels, the accuracy is {evaluation.accuracy:.1%}: outside the interval.")
    return sentences
