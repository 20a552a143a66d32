"""When an accuracy cannot be estimated without labels, why, and what would help."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedul.evaluation.confusion import LinearEstimate
from fedul.evaluation.intervals import IntervalEstimate
from fedul.evaluation.set_effects import SetEffects

WIDEST = 0.4
"""Widest interval that is given: one that leaves more than 20 points on either side decides nothing."""

BEYOND = 2.5
"""Standard errors by which an estimate may exceed 100 %, or must stay below it if the sets have visible effects."""

OTHER_SETS = "Form sets in another way, e.g. by month or ward instead of by a property of the cases (--set-column)."
ADJUST = "Standardize the features at each site (--site-adjustment auto)."
DROP = "Drop columns that differ between sets for other reasons than the classes."
LABELS = "Label about 100 rows at random, classify them with 'fedul predict', and compare."
MORE = "Give more rows, or sets whose class priors differ more; 'fedul check' says which."


@dataclass(frozen=True)
class Refusal:
    """Why there is no estimate, as a part of a sentence after 'because', and remedies as sentences."""

    reason: str
    remedies: tuple[str, ...]
    too_wide: bool = False  # whether only the width of the interval is the reason


NOT_DETERMINED = Refusal("the class priors of the sets do not tell all classes apart", (MORE, LABELS))
PARALLEL = Refusal(
    "the sets differ in other ways that run parallel to their class priors: between sets, predictions follow the "
    "priors, but rows within sets are not spread as a mixture of these classes would be",
    (OTHER_SETS, DROP, ADJUST, LABELS),
)
IMPOSSIBLE = Refusal(
    "the predictions follow the class priors more closely than even a perfect classifier would, so the sets differ in "
    "other ways that run parallel to their class priors",
    (OTHER_SETS, DROP, ADJUST, LABELS),
)
AT_THE_END = Refusal(
    "the estimate reaches 100 %, and the sets differ by more than their class mix: a part of these differences "
    "probably runs parallel to the class priors",
    (ADJUST, OTHER_SETS, DROP, LABELS),
)


def find_refusal(
    solved: LinearEstimate,
    estimate: IntervalEstimate,
    adjusted: IntervalEstimate,
    effects: SetEffects,
    *,
    contradicted: bool = False,
) -> Refusal | None:
    """Return why an accuracy cannot be given; None if it can.

    Parameters
    ----------
    solved : LinearEstimate
        The accuracy from the shares of predictions alone, which may exceed 1.
    estimate, adjusted : IntervalEstimate
        Without and with the visible effects of sets.
    effects : SetEffects
        Effects of sets on the score.
    contradicted : bool
        Whether the assumption test rejects the assumption.
    """
    if effects.run_parallel:
        return PARALLEL
    if solved.value - 1 > BEYOND * math.sqrt(max(solved.rows, solved.sets, solved.models)):
        return IMPOSSIBLE
    if (effects.visible > 0 or contradicted) and estimate.value + BEYOND * estimate.standard_error >= 1:
        return AT_THE_END
    if estimate.width > WIDEST:
        return too_wide(estimate)
    if adjusted.width > WIDEST:
        return Refusal(
            "the sets differ by more than their class mix: other differences between sets move the score of the "
            f"classifier at least {effects.visible:.0%} as much as the class mix does",
            (ADJUST, OTHER_SETS, DROP, LABELS),
            too_wide=True,
        )
    return None


def too_wide(estimate: IntervalEstimate) -> Refusal:
    """Return the refusal of an interval that says nothing."""
    return Refusal(
        f"the interval would reach from {estimate.low:.0%} to {estimate.high:.0%}: there are too few rows, or the "
        "class priors of the sets differ too little",
        (MORE, LABELS),
        too_wide=True,
    )
