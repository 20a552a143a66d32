"""The rounds of a run: clients train, the algorithm aggregates, held-out rows evaluate, a checkpoint is written.

The result does not depend on where a run was stopped and resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import nn

from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import RoundMetrics, Study, TaskSpec, Weights
from fedul.engines.base import Broadcast, Engine, EngineMetrics, participants
from fedul.engines.client_store import ClientStore
from fedul.engines.held_out import HeldOutSums, Reference, sum_held_out
from fedul.engines.simulation.client_state import split_client_state
from fedul.methods.base import Method
from fedul.models.weights import load_weights, weights_of
from fedul.privacy.client_privacy import algorithm_state
from fedul.privacy.ledger import BudgetSpent
from fedul.privacy.statement import finite
from fedul.training.callbacks import Callback, RunInfo
from fedul.training.client_protection import ClientProtection
from fedul.training.combine import combine
from fedul.training.divergence import not_finite
from fedul.training.early_stopping import is_finished, stop_reason
from fedul.training.round_messages import clipped_warning, nothing_left
from fedul.training.run_folder import RunFolder
from fedul.training.selection import compare_with_best, is_best, is_selected
from fedul.training.site_metrics import complete_sites, trained_sites
from fedul.training.state import TrainingState, running_mean
from fedul.training.steps import RunSteps, TrainRequest
from fedul.training.truth_metrics import round_errors

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
    protection : ClientProtection or None
        How whole clients are protected; None if they are not.
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
    protection: ClientProtection | None = None


def iterate_rounds(
    context: RunContext,
    config: TrainConfig,
    state: TrainingState | None,
    folder: RunFolder | None,
    callback: Callback,
    info: RunInfo,
    stop: str = "",
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
        Its `on_round_end` is called after every round, and may stop the run.
    info : RunInfo
        The run, for the callback.
    stop : str
        Why no round is to be trained; empty to train. A new run always has a round.

    Returns
    -------
    TrainingState
        The state after the last round.
    """
    if state is None:
        state, stop = TrainingState.initial(weights_of(context.module)), ""
    else:
        state = state.to(next(context.module.parameters()).device)
    context.store.rewind(state.round, state.client_state_rounds)
    checkpoint_time = time.monotonic()
    ahead: _TrainedRound | None = None  # a round that is trained and not evaluated yet
    begun = state.round
    while not stop and not is_finished(state, config, context.method):
        try:
            ahead = ahead or (yield from _train_round(context, config, state))
        except BudgetSpent as spent:
            if state.round == begun:
                raise nothing_left(spent, state.round) from None
            callback.on_warning(f"{spent} The run ends after round {state.round} of {config.rounds}.")
            stop = str(spent)
            _save(context, folder, state, callback, info)
            break
        following = None
        if (
            context.engine.piggybacks_evaluation
            and not config.is_private
            and not context.method.needs_evaluation
            and ahead.state.round < config.rounds
        ):
            following = yield from _train_round(context, config, ahead.state, evaluate=True)
        state = _evaluate_round(context, config, state, ahead)
        ahead = None if following is None else following.after(state)
        request = callback.on_round_end(info, state.history[-1])
        stop = "" if request is None or state.round >= config.rounds else request.reason
        if state.history[-1].clipped_values and not any(each.clipped_values for each in state.history[:-1]):
            callback.on_warning(clipped_warning(state.history[-1], config))
        every, last = config.checkpoint_every, bool(stop) or is_finished(state, config, context.method)
        due = state.round % every == 0 if every else time.monotonic() - checkpoint_time > CHECKPOINT_SECONDS
        if due or last:
            _save(context, folder, state, callback, info)
            checkpoint_time = time.monotonic()
    return replace(state, stopped=stop or stop_reason(state, config, context.method))


def _save(
    context: RunContext, folder: RunFolder | None, state: TrainingState, callback: Callback, info: RunInfo
) -> None:
    """Write a checkpoint, if the run has a folder."""
    if folder is not None:
        folder.save_state(replace(state, client_state_rounds=context.store.versions(state.round)))
        context.store.checkpointed(state.round)
        callback.on_checkpoint(info, state.history[-1])


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
    protection, clips = context.protection, dict[str, float]()
    algorithm, server_state = context.algorithm, dict(state.server_state)
    if protection is None:
        chosen = participants(names, number, config)
    else:
        chosen, clips = protection.begin_round(number, names), protection.mean.clips(server_state)
    context.engine.begin_round(number, chosen)
    directive = context.method.directive(state.history)
    broadcast = Broadcast(
        number,
        dict(state.weights),
        algorithm.broadcast(algorithm_state(server_state)),
        directive,
        dict(state.averaged) if evaluate else {},
        state.best if evaluate else None,
        clips,
    )
    answer = (yield TrainRequest(context.engine, broadcast, chosen)) if chosen else iter(())
    combined = combine(answer, algorithm, protection, dict(state.weights), server_state, names, number)
    weights = combined.weights
    averaged = running_mean(dict(state.averaged), weights, number, config.averaging)
    engine_metrics = _collect_metrics(context)
    metrics = RoundMetrics(
        round=number,
        loss=combined.loss,
        clients=combined.clients,
        clipped_values=combined.clipped,
        seconds=round(time.monotonic() - started, 4),
        directive=dict(directive),
        sites=trained_sites(names, chosen, combined.sites, engine_metrics.site_errors, protection),
    )
    trained = replace(
        state,
        round=number,
        weights=weights,
        server_state=combined.server_state,
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
    total = HeldOutSums()
    if not config.is_private:  # the sums would tell about rows
        total = sum_held_out(context.engine.evaluate_held_out(averaged, before.best).values())
    engine_metrics = ahead.engine_metrics + _collect_metrics(context)
    # The training loss precedes the last step; without held-out rows, only the weights show whether it diverged.
    is_finite = all(bool(trained.weights[name].isfinite().all()) for name, _ in context.module.named_parameters())
    if not is_finite or not math.isfinite(metrics.loss or 0.0) or not math.isfinite(total.loss or 0.0):
        raise not_finite(number, context.method, config)
    comparison, epsilon = compare_with_best(before.best, total), context.engine.epsilon
    load_weights(context.module, averaged)
    # A round that sites could not evaluate has the temperature of the one before.
    temperature = total.temperature if total.rows or not before.history else before.history[-1].temperature
    metrics = replace(
        metrics,
        held_out_loss=total.loss,
        temperature=temperature,
        comparable_loss=comparison.loss if comparison.loss != total.loss else None,
        site_errors=engine_metrics.site_errors,
        evaluated_by=engine_metrics.evaluated_by,
        epsilon=_largest(epsilon),
        epsilon_by_client={name: finite(value) for name, value in epsilon.items()},
        client_epsilon=None if context.protection is None else context.protection.epsilon,
        bytes_sent=engine_metrics.bytes_sent,
        bytes_received=engine_metrics.bytes_received,
        sites=complete_sites(metrics.sites, engine_metrics, context.engine.epsilon),
        **round_errors(context.module, context.study, config, number),
    )
    metrics = replace(metrics, seconds=round(metrics.seconds + time.monotonic() - started, 4))
    state = replace(ahead.after(before).state, history=[*before.history, metrics])
    if comparison.loss is not None and is_best(before.best, comparison):
        state = replace(state, best=Reference(number, comparison.loss, total.grid_temperature, state.averaged))
    if is_selected(before, metrics, comparison, config.selection):
        sites = _local_weights(context)
        state = replace(state, selected=state.averaged, selected_round=state.round, selected_sites=sites)
    return state


def _largest(epsilon: Mapping[str, float]) -> float | None:
    """Return the largest epsilon of a client; None if there is none, or no finite one."""
    largest = max(epsilon.values(), default=math.inf)
    return largest if math.isfinite(largest) else None


def _collect_metrics(context: RunContext) -> EngineMetrics:
    metrics = context.engine.collect_metrics()
    return metrics if context.protection is None else context.protection.publishable(metrics)


def _local_weights(context: RunContext) -> dict[str, Weights]:
    """Return by client the weights that it does not share; empty if it shares all, or is at a site of its own."""
    if not context.algorithm.personalizes:
        return {}
    states = {name: split_client_state(context.store.read(name))[1] for name in context.engine.names}
    return {name: {key: t.detach().cpu() for key, t in own.items()} for name, own in states.items() if own}
