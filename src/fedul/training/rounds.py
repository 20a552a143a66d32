"""The rounds of a run: clients train, the algorithm aggregates, held-out rows evaluate, a checkpoint is written.

The result does not depend on where a run was stopped and resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from fedul._utils.randomness import torch_generator
from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import RoundMetrics, RoundSums, Study, TaskSpec, Update, Weights
from fedul.engines.base import Broadcast, Engine, EngineMetrics
from fedul.engines.client_store import ClientStore
from fedul.engines.held_out import Reference, sum_held_out
from fedul.engines.simulation.client_state import split_client_state
from fedul.methods.base import Method
from fedul.models.weights import load_weights, weights_of
from fedul.training.callbacks import Callback, RunInfo
from fedul.training.divergence import diverged
from fedul.training.early_stopping import is_finished
from fedul.training.run_folder import RunFolder
from fedul.training.selection import compare_with_best, is_best, is_selected
from fedul.training.state import TrainingState, running_mean
from fedul.training.steps import RunSteps, TrainRequest
from fedul.training.truth_metrics import held_out_error, test_error

CHECKPOINT_SECONDS = 2.0
"""Time between two checkpoints, without --checkpoint-every."""


@dataclass(frozen=True, eq=False)
class RunContext:
    """Everything that takes part in a run.

    Parameters
    ----------
    spec : TaskSpec
        What all clients share.
    study : Study or None
        Research data, whose labels measure every round; None where there are none.
    module : nn.Module
        The network.
    model_name : str
        Its name in the registry, or "custom".
    method, algorithm, engine
        What clients minimise, how updates are aggregated, and where clients run.
    store : ClientStore
        State of the clients between rounds.
    precision : str
        Precision in which clients train; "auto" if every site chooses its own.
    """

    spec: TaskSpec
    study: Study | None
    module: nn.Module
    model_name: str
    method: Method
    algorithm: Algorithm
    engine: Engine
    store: ClientStore
    precision: str = "auto"


def iterate_rounds(
    context: RunContext,
    config: TrainConfig,
    state: TrainingState | None,
    folder: RunFolder | None,
    callback: Callback,
    info: RunInfo,
) -> RunSteps[TrainingState]:
    """Run the remaining rounds, step by step.

    Parameters
    ----------
    context : RunContext
        The parts of the run.
    config : TrainConfig
        Its configuration, as `resolve_rounds` returns it.
    state : TrainingState or None
        The state to resume from; None starts a new run.
    folder : RunFolder or None
        Folder for checkpoints; None writes none.
    callback : Callback
        Its `on_round_end` is called after every round.
    info : RunInfo
        The run, for the callback.

    Returns
    -------
    TrainingState
        The state after the last round.
    """
    if state is None:
        state = TrainingState.initial(weights_of(context.module))
    else:
        state = state.to(next(context.module.parameters()).device)
    context.store.rewind(state.round, state.client_state_rounds)
    checkpoint_time = time.monotonic()
    ahead: _TrainedRound | None = None  # a round that is trained and not evaluated yet
    while not is_finished(state, config, context.method):
        ahead = ahead or (yield from _train_round(context, config, state))
        following = None
        if (
            context.engine.piggybacks_evaluation
            and not context.method.needs_evaluation
            and ahead.state.round < config.rounds
        ):
            following = yield from _train_round(context, config, ahead.state, evaluate=True)
        state = _evaluate_round(context, config, state, ahead)
        ahead = None if following is None else following.after(state)
        callback.on_round_end(info, state.history[-1])
        if state.history[-1].clipped_values and not any(each.clipped_values for each in state.history[:-1]):
            callback.on_warning(_clipped_warning(state.history[-1], config))
        every, last = config.checkpoint_every, is_finished(state, config, context.method)
        due = state.round % every == 0 if every else time.monotonic() - checkpoint_time > CHECKPOINT_SECONDS
        if folder is not None and (due or last):
            folder.save_state(replace(state, client_state_rounds=context.store.versions(state.round)))
            context.store.checkpointed(state.round)
            checkpoint_time = time.monotonic()
    return state


@dataclass(frozen=True, eq=False)
class _TrainedRound:
    """A round that is trained and not evaluated: the state after it, whose last metrics are incomplete."""

    state: TrainingState
    engine_metrics: EngineMetrics

    def after(self, before: TrainingState) -> _TrainedRound:
        """Return this round on top of the state before it, which has been evaluated in the meantime."""
        trained = self.state
        state = replace(
            before,
            round=trained.round,
            weights=trained.weights,
            server_state=trained.server_state,
            averaged=trained.averaged,
            history=[*before.history, trained.history[-1]],
        )
        return replace(self, state=state)


def _train_round(
    context: RunContext, config: TrainConfig, state: TrainingState, *, evaluate: bool = False
) -> RunSteps[_TrainedRound]:
    """Train the next round; with `evaluate`, clients also evaluate the current one."""
    number, names = state.round + 1, context.engine.names
    started = time.monotonic()
    algorithm, server_state = context.algorithm, dict(state.server_state)
    directive = context.method.directive(state.history)
    broadcast = Broadcast(
        number,
        dict(state.weights),
        algorithm.broadcast(server_state),
        directive,
        dict(state.averaged) if evaluate else {},
        state.best if evaluate else None,
    )
    answer = yield TrainRequest(context.engine, broadcast, _participants(names, number, config))
    loss: float | None
    clipped: int | None
    if isinstance(answer, RoundSums):
        loss, count, clipped = answer.loss, answer.clients, answer.clipped
        weights, server_state = algorithm.advance(dict(state.weights), server_state, answer.mean, len(names))
    else:
        updates = _CountedUpdates(answer)
        weights, server_state = algorithm.aggregate(dict(state.weights), server_state, updates, len(names))
        loss, count, clipped = updates.mean_loss(), updates.clients, None
    averaged = running_mean(dict(state.averaged), weights, number, config.averaging)
    engine_metrics = context.engine.collect_metrics()
    metrics = RoundMetrics(
        round=number,
        loss=loss,
        clients=count,
        clipped_values=clipped,
        seconds=round(time.monotonic() - started, 4),
        directive=dict(directive),
    )
    trained = replace(
        state,
        round=number,
        weights=weights,
        server_state=server_state,
        averaged=averaged,
        history=[*state.history, metrics],
    )
    return _TrainedRound(trained, engine_metrics)


def _evaluate_round(
    context: RunContext, config: TrainConfig, before: TrainingState, ahead: _TrainedRound
) -> TrainingState:
    """Evaluate the round that was trained after `before`, and decide whether it is the one to deliver."""
    trained = ahead.state
    number, averaged, metrics = trained.round, dict(trained.averaged), trained.history[-1]
    started = time.monotonic()
    total = sum_held_out(context.engine.evaluate_held_out(averaged, before.best).values())
    engine_metrics = ahead.engine_metrics + context.engine.collect_metrics()
    # The training loss precedes the last step; without held-out rows, only the weights show whether it diverged.
    finite = all(bool(trained.weights[name].isfinite().all()) for name, _ in context.module.named_parameters())
    if not finite or not math.isfinite(metrics.loss or 0.0) or not math.isfinite(total.loss or 0.0):
        raise diverged(f"the loss is no longer finite in round {number}", config)
    comparison = compare_with_best(before.best, total)
    load_weights(context.module, averaged)
    metrics = replace(
        metrics,
        held_out_loss=total.loss,
        temperature=total.temperature,
        comparable_loss=comparison.loss if comparison.loss != total.loss else None,
        site_errors=engine_metrics.site_errors,
        evaluated_by=engine_metrics.evaluated_by,
        bytes_sent=engine_metrics.bytes_sent,
        bytes_received=engine_metrics.bytes_received,
        **_truth_metrics(context, config, number),
    )
    metrics = replace(metrics, seconds=round(metrics.seconds + time.monotonic() - started, 4))
    state = replace(ahead.after(before).state, history=[*before.history, metrics])
    if comparison.loss is not None and is_best(before.best, comparison):
        state = replace(state, best=Reference(number, comparison.loss, total.grid_temperature, state.averaged))
    if is_selected(before, metrics, comparison, config.selection):
        sites = _local_weights(context)
        state = replace(state, selected=state.averaged, selected_round=state.round, selected_sites=sites)
    return state


def _local_weights(context: RunContext) -> dict[str, Weights]:
    """Return by client the weights that it does not share; empty if it shares all, or is at a site of its own."""
    if not context.algorithm.personalizes:
        return {}
    states = {name: split_client_state(context.store.read(name))[1] for name in context.engine.names}
    return {name: {key: t.detach().cpu() for key, t in own.items()} for name, own in states.items() if own}


def _truth_metrics(context: RunContext, config: TrainConfig, number: int) -> dict[str, Any]:
    """Return the errors with respect to true labels, if these exist and the configuration requires them."""
    study, errors = context.study, dict[str, Any]()
    if study is None or study.truth is None:
        return errors
    if config.selection == "held-out-error":
        errors["held_out_error"] = held_out_error(context.module, study.federation, study.truth)
    if config.evaluate_every and number % config.evaluate_every == 0:
        errors["test_error"], _ = test_error(context.module, study.truth, context.spec.scaling)
    return errors


def _clipped_warning(metrics: RoundMetrics, config: TrainConfig) -> str:
    return (
        f"in round {metrics.round}, {metrics.clipped_values} values of updates were larger than the range of secure "
        f"aggregation, {config.aggregation_range:g}, and were clipped; a larger --aggregation-range changes less."
    )


class _CountedUpdates:
    """Iterates over updates, and counts their clients and losses on the way."""

    def __init__(self, updates: Iterator[Update]) -> None:
        self._updates = updates
        self._loss: float | None = 0.0
        self._rows = 0
        self.clients = 0

    def __iter__(self) -> Iterator[Update]:
        for update in self._updates:
            if self._loss is not None:
                self._loss = None if update.loss is None else self._loss + update.loss * update.rows
            self._rows += update.rows
            self.clients += 1
            yield update

    def mean_loss(self) -> float | None:
        return None if self._loss is None else self._loss / max(self._rows, 1)


def _participants(names: Sequence[str], number: int, config: TrainConfig) -> list[str]:
    count = config.participants(len(names))
    if count == len(names):
        return list(names)
    chosen = torch.randperm(len(names), generator=torch_generator(config.seed, number, "participation"))[:count]
    return [names[i] for i in sorted(chosen.tolist())]
