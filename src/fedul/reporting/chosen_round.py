"""Which round of a run is delivered, and why, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedul.config import TrainConfig
from fedul.core import RoundMetrics
from fedul.reporting.wording import number, percent
from fedul.training import RunResult


def explain_round(result: RunResult, training: TrainConfig, history: Sequence[RoundMetrics]) -> str:
    """Return which round is delivered and why, and why training ended.

    Parameters
    ----------
    result : RunResult
        Result of the run.
    training : TrainConfig
        Configuration, with the number of rounds and the patience that were used.
    history : sequence of RoundMetrics
        Metrics of all rounds.
    """
    ended = result.rounds < training.rounds and training.patience > 0
    end = f" Training ended early: none of the last {training.patience:,} rounds was as good."
    reason = _reason(result, training.selection, history)
    return f"Round {result.selected_round:,} of {result.rounds:,} is delivered{reason}.{end if ended else ''}"


def _reason(result: RunResult, rule: str, history: Sequence[RoundMetrics]) -> str:
    if rule == "last":
        return " because it is the last one"
    chosen = next((metrics for metrics in history if metrics.round == result.selected_round), None)
    if chosen is None:
        return ""
    if rule == "held-out-error":
        return f" because it has the fewest errors on held-out rows with labels ({percent(chosen.held_out_error, 1)})"
    if (loss := _comparable(chosen)) is None:
        return ""
    rounds = [(value, -metrics.round) for metrics in history if (value := _comparable(metrics)) is not None]
    lowest, at = min(rounds)
    if loss <= lowest:
        return f" because its loss on held-out rows is the lowest ({number(loss)})"
    return (
        f" because it is the last one whose loss on held-out rows ({number(loss)}) does not differ from the lowest "
        f"({number(lowest)}, round {-at:,}) by more than half a standard error"
    )


def _comparable(metrics: RoundMetrics) -> float | None:
    """Return the held-out loss as rounds are compared by it."""
    loss = metrics.held_out_loss if metrics.comparable_loss is None else metrics.comparable_loss
    return loss if loss is not None and math.isfinite(loss) else None
