"""The attack `canaries`: a lower bound on epsilon from one training run, beside the epsilon that the run states."""

from __future__ import annotations

import math

from fedul.auditing.canaries import add_canaries
from fedul.auditing.canary_attack import CanaryAttack, count_right
from fedul.auditing.document import CanaryResult
from fedul.auditing.observed_run import observe_run, prepare
from fedul.auditing.one_run_bound import best_bound
from fedul.auditing.protections import Condition
from fedul.core import Federation
from fedul.errors import InputError
from fedul.training import Callback, RunInfo

GUESSED = (0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed; the bound holds for the best of them."""
FEWEST_CANARIES = 20
"""Of fewer, no bound above 1.5 could follow."""


def check_canaries(canaries: int) -> None:
    """Raise InputError if canaries are too few for a bound."""
    if canaries < FEWEST_CANARIES:
        raise InputError(f"canaries: {canaries} are too few for a bound; use at least {FEWEST_CANARIES}.")


def bound_epsilon(
    federation: Federation, condition: Condition, canaries: int, seed: int, callback: Callback, info: RunInfo
) -> CanaryResult:
    """Train one run with canaries, guess which ones it was trained on, and return the bound that follows.

    Parameters
    ----------
    federation : Federation
        The clients.
    condition : Condition
        How they train.
    canaries : int
        Number of canaries over all clients.
    seed : int
        Seed of the canaries.
    callback : Callback
        Called during training.
    info : RunInfo
        The run, for the callback.
    """
    config = condition.config
    added = add_canaries(federation, canaries, seed, leaves_gaps=config.protects_rows)
    run = prepare(added.federation, condition.recipe)
    attack = CanaryAttack(run, added)
    observe_run(run, attack.observe, callback, info)
    outcomes = count_right(attack.scores(), added.included, GUESSED)
    bound, guesses, correct = best_bound(canaries, outcomes, config.dp_delta)
    highest, _, _ = best_bound(canaries, [(count, count) for count, _ in outcomes], config.dp_delta)
    stated = max(run.context.engine.epsilon.values(), default=math.inf)
    return CanaryResult(
        protection=condition.protection.name,
        bound=bound,
        stated=stated if math.isfinite(stated) else None,
        delta=config.dp_delta,
        canaries=canaries,
        guesses=guesses,
        correct=correct,
        highest=highest,
    )
