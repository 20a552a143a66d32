"""The rounds of a run: clients train, the algorithm combines, held-out rows judge, and a checkpoint is written.

The result does not depend on where a run was stopped and taken up again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import nn

from fedul.algorithms.base import Algorithm, Update, Weights
from fedul.config import TrainConfig
from fedul.engines.inprocess import Engine
from fedul.engines.local import Broadcast
from fedul.engines.store import ClientStore
from fedul.errors import FedulError
from fedul.evaluation.with_truth import test_error, validation_error
from fedul.federation import Agreed
from fedul.methods.base import Method
from fedul.methods.fedul import HeldOut, together
from fedul.models.weights import load_weights, weights_of
from fedul.randomness import torch_generator
from fedul.runs import RunFolder, State
from fedul.truth import Study

CHECKPOINT_SECONDS = 2.0
"""Without --checkpoint-every, the time that passes between two checkpoints."""


class Reporter(Protocol):
    """Whoever watches a run."""

    def warn(self, sentence: str) -> None: ...

    def round(self, figures: Mapping[str, Any], rounds: int) -> None: ...


@dataclass(frozen=True, eq=False)
class Parts:
    """What a run is made of."""

    agreed: Agreed
    study: Study | None  # research data, whose labels measure every round
    module: nn.Module
    model_name: str
    method: Method
    algorithm: Algorithm
    engine: Engine
    store: ClientStore


def run_rounds(
    parts: Parts, config: TrainConfig, state: State | None, folder: RunFolder | None, reporter: Reporter
) -> State:
    """All rounds from the state on; the result does not depend on where it was taken up."""
    if state is None:
        weights = {name: tensor.clone() for name, tensor in weights_of(parts.module).items()}
        state = State(0, weights, {}, weights, weights, 0, math.inf, 0.0, [])
    else:  # it was read from a file, and so is on the CPU
        device = next(parts.module.parameters()).device
        weights, server, averaged, selected = (
            {name: tensor.to(device) for name, tensor in group.items()}
            for group in (state.weights, state.server, state.averaged, state.selected)
        )
        state = replace(state, weights=weights, server=server, averaged=averaged, selected=selected)
    parts.store.rewind(state.round, state.kept)
    for line in state.history:
        reporter.round(line, config.rounds)
    written = time.monotonic()
    ahead: State | None = None  # a round that is trained, and not judged yet
    while state.round < config.rounds:
        ahead = ahead or _trained(parts, config, state)
        further = None
        if parts.engine.judges_along and not parts.method.coordinates and ahead.round < config.rounds:
            further = _trained(parts, config, ahead, judge=True)
        state = _judged(parts, config, state, ahead)
        ahead = None if further is None else _after(state, further)
        reporter.round(state.history[-1], config.rounds)
        every, last = config.checkpoint_every, state.round == config.rounds
        due = state.round % every == 0 if every else time.monotonic() - written > CHECKPOINT_SECONDS
        if folder is not None and (due or last):
            folder.save_state(replace(state, kept=parts.store.versions(state.round)))
            parts.store.checkpointed(state.round)
            written = time.monotonic()
    return state


def _trained(parts: Parts, config: TrainConfig, state: State, *, judge: bool = False) -> State:
    """The next round, of which nobody knows yet how good it is; along the way clients may judge the one before."""
    number, names = state.round + 1, parts.engine.names
    started = time.monotonic()
    algorithm, server = parts.algorithm, dict(state.server)
    directive = parts.method.coordinate(state.history)
    judged = dict(state.averaged) if judge else {}
    broadcast = Broadcast(number, dict(state.weights), algorithm.sent(server), directive, judged)
    updates = _Watched(parts.engine.train(broadcast, _participants(names, number, config)))
    weights, server = algorithm.aggregate(dict(state.weights), server, updates, len(names))
    averaged = running_mean(dict(state.averaged), weights, number, config.averaging)
    line: dict[str, Any] = {"round": number, "loss": updates.mean_loss(), "clients": updates.clients, **directive}
    _note(line, parts.engine.noted())
    line["seconds"] = round(time.monotonic() - started, 4)
    return replace(
        state, round=number, weights=weights, server=server, averaged=averaged, history=[*state.history, line]
    )


def _after(state: State, further: State) -> State:
    """The further round, now that the one before it is judged."""
    return replace(
        state,
        round=further.round,
        weights=further.weights,
        server=further.server,
        averaged=further.averaged,
        history=[*state.history, further.history[-1]],
    )


def _judged(parts: Parts, config: TrainConfig, before: State, trained: State) -> State:
    """The round that was trained after `before`, with how good it is and whether it is the one to deliver."""
    number, averaged = trained.round, dict(trained.averaged)
    started = time.monotonic()
    line = dict(trained.history[-1])
    judged = parts.engine.held_out(averaged)
    held_out = together(judged.values())
    _note(line, parts.engine.noted())
    line["held_out_loss"] = held_out.loss
    line["temperature"] = held_out.temperature
    # Without held-out rows nothing but the weights themselves tells what the last step did.
    finite = all(bool(trained.weights[name].isfinite().all()) for name, _ in parts.module.named_parameters())
    if not finite or not math.isfinite(line["loss"]) or not math.isfinite(held_out.loss or 0.0):
        raise FedulError(
            f"the loss is no longer finite in round {number}; use a smaller learning rate, "
            "or look for very large values in the data."
        )
    loss, margin = _compared(before, judged)
    if loss != held_out.loss:
        line["comparable_loss"] = loss
    load_weights(parts.module, averaged)
    if (study := parts.study) is not None and study.truth is not None:
        if config.select == "validation-error":
            line["validation_error"] = validation_error(parts.module, study.federation, study.truth)
        if config.evaluate_every and number % config.evaluate_every == 0:
            line["test_error"], _ = test_error(parts.module, study.truth, parts.agreed.scaling)
    line["seconds"] = round(line["seconds"] + time.monotonic() - started, 4)
    state = replace(_after(before, trained), history=[*before.history, line])
    if loss is not None and loss <= before.best_score:
        state = replace(state, best_score=loss, best_margin=held_out.standard_error, judged=judged)
    if _taken(before, line, loss, margin, config.select):
        state = replace(state, selected=state.averaged, selected_round=state.round)
    return state


def _note(line: dict[str, Any], noted: Mapping[str, Any]) -> None:
    """Adds what an engine noted to a line that may have some of it already: counts are summed, troubles joined."""
    for name, value in noted.items():
        if isinstance(value, int):
            value += line.get(name, 0)
        elif isinstance(value, Mapping):
            value = {**line.get(name, {}), **value}
        line[name] = value


def _compared(state: State, judged: Mapping[str, HeldOut]) -> tuple[float | None, float]:
    """A round's held-out loss beside the best so far, and how far above that it may be and still be taken for as good.

    Not every site judges every round, and the rows of one may be harder than those of another. So two rounds are
    compared over the rows of those that judged both: as much as it is lower there, the loss is lower than the best.
    """
    if not state.judged or not judged:  # the first round, nothing held out, or a checkpoint that does not have the sums
        return together(judged.values()).loss, state.best_margin
    both = [name for name in judged if name in state.judged and state.judged[name].rows == judged[name].rows]
    now, best = (together(each[name] for name in both) for each in (judged, state.judged))
    if now.loss is None or best.loss is None:
        # Nobody can tell the two apart. Then the later one is taken, as always; were the earlier one kept, a site that
        # never comes back would hold the run to the round that it judged.
        return state.best_score, 0.0
    return now.loss + (state.best_score - best.loss), best.standard_error  # just now.loss, where all judge always


def _taken(before: State, line: Mapping[str, Any], loss: float | None, margin: float, rule: str) -> bool:
    """Whether the rule says that this round is the one to deliver, as far as is known.

    Held-out rows are few, and the lowest loss is often one round's luck. So of all rounds that they cannot tell from
    the best (within one standard error of its loss) the last is taken: it has learned the most.
    """
    if rule == "held-out":
        return loss is not None and loss <= before.best_score + margin
    if rule == "validation-error" and before.selected_round:
        return bool(line["validation_error"] < before.history[before.selected_round - 1]["validation_error"])
    return True


def running_mean(before: Weights, weights: Weights, number: int, decay: float) -> Weights:
    """The mean of the global weights over the rounds so far, each counting `decay` times the one after it.

    It is what is judged and delivered, and never goes back into the training: the average forgets the jitter of the
    last steps. At decay 0 it is the last round.
    """
    share = (1 - decay) / (1 - decay**number)
    if share == 1:
        return weights
    mean = dict(weights)
    for name, last in weights.items():
        if last.is_floating_point():  # where nothing changes nothing is computed: a mask may hold infinities
            mean[name] = torch.where(last == before[name], last, before[name].lerp(last, share))
    return mean


class _Watched:
    """Updates on their way to the algorithm, with their losses noted in passing."""

    def __init__(self, updates: Iterator[Update]) -> None:
        self._updates = updates
        self._loss = 0.0
        self._rows = 0
        self.clients = 0

    def __iter__(self) -> Iterator[Update]:
        for update in self._updates:
            self._loss += update.loss * update.rows
            self._rows += update.rows
            self.clients += 1
            yield update

    def mean_loss(self) -> float:
        return self._loss / max(self._rows, 1)


def _participants(names: Sequence[str], number: int, config: TrainConfig) -> list[str]:
    count = config.participants(len(names))
    if count == len(names):
        return list(names)
    chosen = torch.randperm(len(names), generator=torch_generator(config.seed, number, "participation"))[:count]
    return [names[i] for i in sorted(chosen.tolist())]
