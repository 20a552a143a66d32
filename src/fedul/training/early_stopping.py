"""When a run ends: after a fixed number of rounds, or when no later round is as good as the one to deliver.

A run without --rounds follows the data. It ends when `fedul.training.selection` has selected no round for `PATIENCE`
rounds, or after `MAX_ROUNDS`. A round that ties with the best one is selected too, so a slow method is not stopped on
a plateau.
"""

from __future__ import annotations

from dataclasses import replace

from fedul.config import TrainConfig
from fedul.methods.base import Method
from fedul.training.state import TrainingState

MAX_ROUNDS = 80
"""Most rounds of a run whose number of rounds follows the data."""
PATIENCE = 15
"""Rounds without a selected one after which such a run ends."""
FIXED_ROUNDS = 60
"""Rounds without --rounds, where the last one is delivered or the learning rate has a schedule."""


def resolve_rounds(config: TrainConfig) -> TrainConfig:
    """Return the configuration with the number of rounds and the patience that it stands for.

    >>> resolved = resolve_rounds(TrainConfig())
    >>> resolved.rounds, resolved.patience
    (80, 15)
    >>> resolve_rounds(TrainConfig(rounds=40)).patience
    0
    """
    if config.rounds:
        return config
    if config.selection == "last" or config.schedule != "constant":  # the rate has to know when it ends
        return replace(config, rounds=FIXED_ROUNDS)
    return replace(config, rounds=MAX_ROUNDS, patience=config.patience or PATIENCE)


def fix_rounds(config: TrainConfig) -> TrainConfig:
    """Return the configuration with a fixed number of rounds, for runs that are compared with each other."""
    return config if config.rounds else replace(config, rounds=FIXED_ROUNDS)


def is_finished(state: TrainingState, config: TrainConfig, method: Method) -> bool:
    """Return whether a run has had its last round.

    Parameters
    ----------
    state : TrainingState
        The run so far.
    config : TrainConfig
        Its configuration, as `resolve_rounds` returns it.
    method : Method
        Its method, which says from which round on patience counts.
    """
    return state.round >= config.rounds or bool(stop_reason(state, config, method))


def stop_reason(state: TrainingState, config: TrainConfig, method: Method) -> str:
    """Return why a run ends before its last round, as a sentence; empty if it does not. Parameters as above."""
    if state.round >= config.rounds or not config.patience:
        return ""
    since = max(state.selected_round, method.patience_start(state.history))
    if state.round - since < config.patience:
        return ""
    return f"No round was selected for {config.patience} rounds (patience)."
