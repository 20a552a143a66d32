"""Runs whose updates an attacker sees: those of every round, as the coordinator receives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from fedul._utils.hardware import torch_threads
from fedul.core import Federation, RoundSums, Update
from fedul.engines.base import Broadcast
from fedul.training import Callback, Recipe, RunInfo, train_parts
from fedul.training.prepare import PreparedRun, prepare_run
from fedul.training.rounds import iterate_rounds

Answer = Sequence[Update] | RoundSums
"""What the coordinator receives in a round: single updates, or sums under secure aggregation."""

Observe = Callable[[PreparedRun, Broadcast, Answer], None]
"""Called with the run, what was sent in a round, and what came back."""


def prepare(federation: Federation, recipe: Recipe) -> PreparedRun:
    """Return a run before its first round; its warnings are about training, and are left out."""
    return prepare_run(federation, recipe, train_parts, folder=None, resume=False, force=True, callback=Callback())


def observe_run(run: PreparedRun, observe: Observe, callback: Callback, info: RunInfo) -> None:
    """Train a prepared run to its end, and show what the coordinator sends and receives in every round.

    Parameters
    ----------
    run : PreparedRun
        The run; nothing is written.
    observe : callable
        Called in every round, before the updates are aggregated.
    callback : Callback
        Called as in training, without a result.
    info : RunInfo
        The run, for the callback.
    """
    context, config = run.context, run.recipe.config
    info = replace(info, rounds=config.rounds)
    callback.on_run_start(info)
    steps = iterate_rounds(context, config, None, None, callback, info)
    with torch_threads(run.threads), closing(steps):
        try:
            request = next(steps)
            while True:
                answer = request.engine.train(request.broadcast, request.clients)
                if isinstance(answer, RoundSums):
                    observe(run, request.broadcast, answer)
                    request = steps.send(answer)
                else:
                    updates = [_copied(update) for update in answer]  # an update is valid until the next one
                    observe(run, request.broadcast, updates)
                    request = steps.send(iter(updates))
        except StopIteration:
            return
        finally:
            callback.on_run_end(info, None)


def _copied(update: Update) -> Update:
    delta, buffers, message = (
        {name: t.clone() for name, t in tensors.items()} for tensors in (update.delta, update.buffers, update.message)
    )
    return replace(update, delta=delta, buffers=buffers, message=message)
