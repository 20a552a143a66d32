"""Divergence of a run: a loss that is not finite or far above that before training, or weights that exploded.

Before training a built-in network predicts the test prior for every row. A classifier whose held-out loss is higher, at
its best temperature, is worse than one that knows nothing about the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from fedul._utils.extensions import describe_part, is_extension
from fedul.config import TrainConfig
from fedul.engines.held_out import HeldOutSums, Reference, sum_held_out
from fedul.errors import FedulError
from fedul.methods.base import Method
from fedul.models.weights import weights_of
from fedul.training.callbacks import Callback
from fedul.training.state import TrainingState

if TYPE_CHECKING:
    from fedul.training.rounds import RunContext

DIVERGED = 2.0
"""A run whose held-out loss is this many times that before training has diverged."""
EXPLODED = 100.0
"""Weights that are this many times larger than the first ones have exploded."""
EXPLODED_LOSS = 20.0
"""A training loss that is this many times the held-out loss before training is a sign of steps that are too long. Terms
of a method add to the loss, but not as much."""
STANDARD_ERRORS = 3.0
SHARE = 0.02
"""A loss is worse if it is higher by these standard errors and this share of the loss before; less may be chance."""


def first_weights(context: RunContext) -> Reference | None:
    """Return the weights before training with their held-out loss; None if no rows are held out."""
    weights = {name: tensor.clone() for name, tensor in weights_of(context.module).items()}
    total = _evaluate(context, weights)
    return None if total.loss is None else Reference(0, total.loss, total.grid_temperature, weights)


def check_diverged(
    start: Reference | None, state: TrainingState, context: RunContext, config: TrainConfig, callback: Callback
) -> None:
    """Raise a FedulError if a run has diverged, and warn if its classifier is worse than before training.

    Parameters
    ----------
    start : Reference or None
        What `first_weights` returned; None checks nothing.
    state : TrainingState
        The state after the last round.
    context : RunContext
        The parts of the run.
    config : TrainConfig
        Its configuration.
    callback : Callback
        Its `on_warning` is called.
    """
    chosen = state.history[state.selected_round - 1]
    loss = chosen.held_out_loss
    if start is None or loss is None:
        return
    if loss > start.loss:
        total = _evaluate(context, state.selected, start)  # paired: the same rows
        found = verdict(
            start.loss, total.difference, total.standard_error, largest(state.selected) / largest(start.weights)
        )
        rounds = f"in round {state.selected_round} and was {start.loss:.3g} before training"
        losses = f"the held-out loss is {loss:.3g} {rounds}"
        if found == "diverged":
            raise diverged(f"the training diverged ({losses}), so no classifier is delivered", config)
        if found == "worse":
            callback.on_warning(f"the classifier is worse than one that says nothing: {losses}; {_remedy(config)}")
    if chosen.loss is not None and chosen.loss > EXPLODED_LOSS * max(start.loss, 1.0):
        callback.on_warning(
            f"training is unstable: the training loss is {chosen.loss:.3g} in round {state.selected_round}, and the "
            f"held-out loss was {start.loss:.3g} before training; {_remedy(config)}"
        )


def verdict(start: float, difference: float, standard_error: float, growth: float) -> Literal["", "worse", "diverged"]:
    """Return whether a classifier is worse than before training, or its training diverged.

    Parameters
    ----------
    start : float
        Held-out loss before training.
    difference : float
        How much higher the loss is now.
    standard_error : float
        Standard error of the difference.
    growth : float
        Largest weight now, as a multiple of the largest one before training.

    Examples
    --------
    >>> verdict(1.8, 0.02, 0.01, 1.0), verdict(1.8, 0.06, 0.01, 1.0), verdict(1.8, 5.0, 0.1, 1.0)
    ('', 'worse', 'diverged')
    """
    if start + difference > DIVERGED * start:
        return "diverged"
    if difference <= max(STANDARD_ERRORS * standard_error, SHARE * start):
        return ""
    return "diverged" if growth > EXPLODED else "worse"


def _evaluate(context: RunContext, weights: Mapping[str, Tensor], reference: Reference | None = None) -> HeldOutSums:
    total = sum_held_out(context.engine.evaluate_held_out(dict(weights), reference).values())
    context.engine.collect_metrics()  # those of this evaluation belong to no round
    return total


def diverged(what: str, config: TrainConfig) -> FedulError:
    """Return an error for a run that diverged, with what to do."""
    return FedulError(f"{what}; {_remedy(config)}.")


def not_finite(number: int, method: Method, config: TrainConfig) -> FedulError:
    """Return an error for a run whose loss is no number any more after this round."""
    own = is_extension(method)
    name = describe_part("method", method) if own else f"method {config.method}"
    advice = f"correct its loss, {_remedy(config)}" if own else _remedy(config)
    return FedulError(f"the loss is no longer finite in round {number} of {name}; {advice}.")


def _remedy(config: TrainConfig) -> str:
    return (
        f"use a smaller learning rate than {config.rate:g} (--learning-rate), or look for very large values in the data"
    )


def largest(weights: Mapping[str, Tensor]) -> float:
    """Return the largest absolute weight."""
    return max(
        (float(each.abs().max()) for each in weights.values() if each.is_floating_point() and each.numel()), default=1.0
    )
