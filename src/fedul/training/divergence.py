"""Divergence of a run: a loss that is not finite or far above that before training, or weights that exploded.

Before training a built-in network predicts the test prior for every row. A classifier whose held-out loss is higher, at
its best temperature, is worse than one that knows nothing about the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from fedul.config import TrainConfig
from fedul.engines.held_out import sum_held_out
from fedul.errors import FedulError
from fedul.models.weights import weights_of
from fedul.training.callbacks import Callback
from fedul.training.state import TrainingState

if TYPE_CHECKING:
    from fedul.training.rounds import RunContext

REFUSED = 2.0
"""A run whose held-out loss is this many times that before training has diverged."""
WARNED = 1.02
"""Above this many times the loss before training a classifier has learned nothing; less may be chance."""
EXPLODED = 100.0
"""Weights that are this many times larger than the first ones have exploded."""


@dataclass(frozen=True)
class Start:
    """Held-out loss and largest absolute weight before training; the loss is None if no rows are held out."""

    loss: float | None
    largest_weight: float

    @classmethod
    def of(cls, context: RunContext) -> Start:
        """Evaluate the first weights of a run."""
        weights = {name: tensor.clone() for name, tensor in weights_of(context.module).items()}
        loss = sum_held_out(context.engine.evaluate_held_out(weights).values()).loss
        context.engine.collect_metrics()  # those of this evaluation belong to no round
        return cls(loss, _largest(weights))


def check_diverged(start: Start | None, state: TrainingState, config: TrainConfig, callback: Callback) -> None:
    """Raise a FedulError if a run has diverged, and warn if its classifier is worse than before training.

    Parameters
    ----------
    start : Start or None
        The run before training; None checks nothing.
    state : TrainingState
        The state after the last round.
    config : TrainConfig
        Configuration of the run.
    callback : Callback
        Its `on_warning` is called.
    """
    loss = state.history[state.selected_round - 1].held_out_loss
    if start is None or start.loss is None or loss is None or loss <= WARNED * start.loss:
        return
    losses = f"the held-out loss is {loss:.3g} in round {state.selected_round} and was {start.loss:.3g} before training"
    if loss > REFUSED * start.loss or _largest(state.selected) > EXPLODED * start.largest_weight:
        raise diverged(f"the training diverged ({losses}), so no classifier is delivered", config)
    callback.on_warning(f"the classifier is worse than one that says nothing: {losses}; {_remedy(config)}")


def diverged(what: str, config: TrainConfig) -> FedulError:
    """Return an error for a run that diverged, with what to do."""
    return FedulError(f"{what}; {_remedy(config)}.")


def _remedy(config: TrainConfig) -> str:
    return (
        f"use a smaller learning rate than {config.rate:g} (--learning-rate), or look for very large values in the data"
    )


def _largest(weights: Mapping[str, Tensor]) -> float:
    return max(
        (float(each.abs().max()) for each in weights.values() if each.is_floating_point() and each.numel()), default=0.0
    )
