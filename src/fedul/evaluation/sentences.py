"""Sentences about an evaluation, written once for the command line, the report and the model card."""

from __future__ import annotations

from fedul._utils.display import counted
from fedul.evaluation.assumption import MIXES_DIFFER, ONE_SET, TESTED_AT, AssumptionTest, ColumnDifference
from fedul.evaluation.check_result import CheckResult
from fedul.evaluation.document import TOP_CLASS, Baseline, Evaluation
from fedul.evaluation.refusal import NOT_DETERMINED

ASSUMPTION = (
    "Training and estimates rest on one assumption: cases of a class look alike in every set, and sets differ only in "
    "how common the classes are."
)
CANNOT_SEE = (
    "No estimate without labels can see a difference between sets that runs parallel to their class priors; if there "
    "is one, the accuracy is lower."
)
LABELS_USED = (
    "Labels used are the rows whose class training was given (--label-column); classes that only measure the accuracy "
    "(--truth-column) are not counted."
)
DIFFER_IN_GENERAL = "Clients or sets differ in general: no few of them explain it."
CHECK_PRIORS = "Check the class priors of the clients and sets that are named."
REMEDIES = (
    "Remedies: --site-adjustment auto if clients measure on different scales, another split into sets, or the sets of "
    "all clients pooled at one."
)
NOT_BETTER = "Not clearly better than"
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
    return test.contradicted


def assumption_verdict(test: AssumptionTest) -> str:
    """Return the outcome of the assumption test in one sentence.

    Examples
    --------
    >>> assumption_verdict(AssumptionTest(0.57))
    'The sets do not contradict the assumption that cases of a class look alike in every set (p = 0.57).'
    """
    assumption = "the assumption that cases of a class look alike in every set"
    if test.p_value is None:
        reason = (test.reason or "no reason is given").rstrip(".")
        if reason.startswith(TESTED_AT):
            return f"T{assumption[1:]} {reason}."
        return f"T{assumption[1:]} could not be tested: {reason}."
    p_value = p_value_text(test.p_value)
    if is_contradicted(test):
        return f"The sets contradict {assumption} ({p_value})."
    return f"The sets do not contradict {assumption} ({p_value})."


def is_clearly_better(evaluation: Evaluation) -> bool | None:
    """Return whether the classifier is clearly better than the naive ones; None if that cannot be said."""
    if evaluation.interval is None or not evaluation.baselines or is_contradicted(evaluation.assumption):
        return None
    return not _not_exceeded(evaluation)


def _not_exceeded(evaluation: Evaluation) -> list[Baseline]:
    """Return the naive classifiers that the classifier does not clearly exceed.

    The accuracy of a naive classifier that follows from the priors must lie below the interval; that of the logistic
    regression has an error of its own, mostly the same one, and must be lower than the estimate.
    """
    assert evaluation.interval is not None
    assert evaluation.estimated_accuracy is not None
    low, value = evaluation.interval[0], evaluation.estimated_accuracy
    return [
        each
        for each in evaluation.baselines
        if each.estimated_accuracy is not None
        and each.estimated_accuracy >= (low if each.interval is None else value)
        and each.name != TOP_CLASS  # needs the set of a row
    ]


def headline(evaluation: Evaluation) -> list[str]:
    """Return what must be said first about an accuracy: warnings, then the estimate or why there is none."""
    if evaluation.estimated_accuracy is None or evaluation.interval is None:
        return [f"The accuracy cannot be estimated without labels, because {evaluation.reason}."]
    low, high = evaluation.interval
    sentences = []
    if evaluation.accuracy is not None and not low <= evaluation.accuracy <= high:
        sentences.append(
            f"Measured with labels, the accuracy is {evaluation.accuracy:.1%}: outside the interval below."
        )
    if exceeded := _not_exceeded(evaluation):
        names = " or ".join(f"the {each.name} ({each.estimated_accuracy:.1%})" for each in exceeded)
        sentences.append(f"{NOT_BETTER} {names}.")
    effects = evaluation.set_effects
    if is_contradicted(evaluation.assumption) or (effects is not None and effects.visible > 0):
        differ = "the sets differ" if is_contradicted(evaluation.assumption) else "the score differs between sets"
        sentences.append(
            f"Caution: {differ} by more than the class mix explains, so the accuracy may be lower than estimated."
        )
    sentences.append(
        f"Estimated accuracy {evaluation.estimated_accuracy:.1%} (95 % interval {low:.1%} to {high:.1%}), from "
        f"{counted(evaluation.rows, 'row')} and {labels_text(evaluation.labels_used)}."
    )
    return sentences


def labels_text(labels: int) -> str:
    """Return a number of labels as text.

    Examples
    --------
    >>> labels_text(0), labels_text(1), labels_text(1200)
    ('no label', '1 label', '1,200 labels')
    """
    return counted(labels, "label") if labels else "no label"


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
    """Return what a reader must know before relying on a classifier, beyond what `headline` says."""
    sentences = []
    stated = evaluation is not None and evaluation.reason == NOT_DETERMINED.reason
    if check is not None and not check.identifiable and not stated:
        sentences.append(NOT_IDENTIFIABLE)
    return sentences
