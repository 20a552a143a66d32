"""Which round is delivered: the rule, and how two rounds are compared that not all sites evaluated.

Held-out rows are few, and the lowest held-out loss is often chance. So of all rounds within one standard error of the
best loss the last is selected: it has learned the most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedul.core import RoundMetrics
from fedul.engines.held_out import HeldOutSums, sum_held_out
from fedul.training.state import TrainingState


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


def compare_with_best(state: TrainingState, evaluations: Mapping[str, HeldOutSums]) -> Comparison:
    """Compare a round with the best of `state` over the rows of those sites that evaluated both.

    Not every site evaluates every round, and the rows of one may be harder than those of another. The loss is lower
    than the best by as much as it is lower on the common rows.
    """
    if not state.best_evaluations or not evaluations:  # the first round, or nothing is held out
        return Comparison(sum_held_out(evaluations.values()).loss, state.best_tolerance)
    best_sums = state.best_evaluations
    both = [name for name in evaluations if name in best_sums and best_sums[name].rows == evaluations[name].rows]
    now, best = (sum_held_out(each[name] for name in both) for each in (evaluations, best_sums))
    if now.loss is None or best.loss is None:
        # The two cannot be compared. The later one is selected; otherwise a site that never returns would hold the run
        # to the round that it evaluated.
        return Comparison(state.best_loss, 0.0)
    # This is just now.loss where all sites evaluate every round.
    return Comparison(now.loss + (state.best_loss - best.loss), best.standard_error)


def is_selected(before: TrainingState, metrics: RoundMetrics, comparison: Comparison, rule: str) -> bool:
    """Return whether the round that follows `before` is the one to deliver, as far as is known."""
    if rule == "held-out-loss":
        return comparison.loss is not None and comparison.loss <= before.best_loss + comparison.tolerance
    if rule == "held-out-error" and before.selected_round:
        best = before.history[before.selected_round - 1].held_out_error
        return metrics.held_out_error is not None and best is not None and metrics.held_out_error < best
    return True
