"""Which round is delivered: the last one that cannot be told from the round with the lowest held-out loss.

Rounds are compared by the differences of their losses on the same held-out rows. A later round replaces the best one if
its mean loss is higher by at most `TOLERANCE` standard errors of this difference. On few rows the lowest loss is partly
chance, and of two rounds that tie the later one has learned more; a whole standard error lets a run overfit, since the
loss rises slowly. A round that was not evaluated, because sites were missing under secure aggregation, counts as a tie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedul.core import RoundMetrics
from fedul.engines.held_out import HeldOutSums, Reference
from fedul.training.state import TrainingState

TOLERANCE = 0.5
"""Standard errors of the paired difference by which a later round may be worse than the best one."""


@dataclass(frozen=True)
class Comparison:
    """A round compared with the best so far.

    Parameters
    ----------
    loss : float or None
        Held-out loss of the round, comparable with the best one; None if no rows are held out.
    tolerance : float
        How far above the best loss it may be and still tie with the best round.
    """

    loss: float | None
    tolerance: float


def compare_with_best(best: Reference | None, total: HeldOutSums) -> Comparison:
    """Compare a round with the best one so far, over the rows of the sites that evaluated the round.

    Not every site evaluates every round, and the rows of one may be harder than those of another. These sites evaluated
    the best round too, as the reference of `total`. So the loss is lower than the best by as much as it is lower on
    their rows.
    """
    if best is None or total.loss is None:  # the first round, or nothing is held out
        return Comparison(total.loss, 0.0)
    same_rows = math.isclose(total.reference_loss / total.rows, best.loss, rel_tol=1e-6)
    loss = total.loss if same_rows else best.loss + total.difference
    return Comparison(loss, TOLERANCE * total.standard_error)


def is_best(best: Reference | None, comparison: Comparison) -> bool:
    """Return whether a round has the lowest loss so far."""
    return comparison.loss is not None and (best is None or comparison.loss <= best.loss)


def is_selected(before: TrainingState, metrics: RoundMetrics, comparison: Comparison, rule: str) -> bool:
    """Return whether the round that follows `before` is the one to deliver, as far as is known."""
    if rule == "held-out-loss":
        if comparison.loss is None:
            return True
        lowest = math.inf if before.best is None else before.best.loss
        return comparison.loss <= lowest + comparison.tolerance
    if rule == "held-out-error" and before.selected_round:
        best = before.history[before.selected_round - 1].held_out_error
        return metrics.held_out_error is not None and best is not None and metrics.held_out_error < best
    return True
