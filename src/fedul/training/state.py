"""State of a run between two rounds, and its checkpoint: everything that is needed to resume it, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from fedul._utils.documents import Document
from fedul._utils.files import read_tensors, write_tensors
from fedul.core import RoundMetrics, Weights
from fedul.engines.held_out import Reference
from fedul.errors import InputError

_GROUPS = ("weights", "server", "averaged", "selected", "selected_sites", "best")
"""Prefixes of tensor names."""


@dataclass(frozen=True, eq=False)
class TrainingState:
    """State of a run after a round.

    Parameters
    ----------
    round : int
        Rounds done.
    weights : mapping of str to Tensor
        Global weights.
    server_state : mapping of str to Tensor
        What the algorithm keeps at the coordinator.
    averaged : mapping of str to Tensor
        Mean of the weights over rounds, which is evaluated and delivered.
    selected : mapping of str to Tensor
        Averaged weights of the selected round.
    selected_round : int
        The round to deliver, as far as is known; 0 before the first.
    history : sequence of RoundMetrics
        Metrics of all rounds.
    client_state_rounds : mapping of str to int
        By client, the round that its stored state is from.
    best : Reference or None
        The round with the lowest held-out loss so far; None before the first, and where nothing is held out.
    selected_sites : mapping of str to mapping
        By client, the weights that it did not share in the selected round; empty under most algorithms.
    stopped : str
        Why the run ended before its last round; empty if it did not. It is not part of the checkpoint: a resumed run
        decides anew.
    """

    round: int
    weights: Mapping[str, Tensor]
    server_state: Mapping[str, Tensor]
    averaged: Mapping[str, Tensor]
    selected: Mapping[str, Tensor]
    selected_round: int
    history: Sequence[RoundMetrics]
    client_state_rounds: Mapping[str, int] = field(default_factory=dict)
    best: Reference | None = None
    selected_sites: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    stopped: str = ""

    @classmethod
    def initial(cls, weights: Mapping[str, Tensor]) -> TrainingState:
        """Return the state before the first round."""
        weights = {name: tensor.clone() for name, tensor in weights.items()}
        return cls(0, weights, {}, weights, weights, 0, [])

    def to(self, device: torch.device) -> TrainingState:
        """Return the state with its tensors on a device; one read from a file is on the CPU."""
        best = None if self.best is None else self.best.weights
        weights, server_state, averaged, selected, best = (
            {name: tensor.to(device) for name, tensor in (group or {}).items()}
            for group in (self.weights, self.server_state, self.averaged, self.selected, best)
        )
        return replace(
            self,
            weights=weights,
            server_state=server_state,
            averaged=averaged,
            selected=selected,
            best=None if self.best is None else replace(self.best, weights=best),
        )


def running_mean(before: Weights, weights: Weights, number: int, decay: float) -> Weights:
    """Return the mean of the global weights over rounds, in which each round counts `decay` times the next one.

    It is evaluated and delivered, and never goes back into training: averaging removes the jitter of the last steps.
    With decay 0 it is the last round.

    Parameters
    ----------
    before : dict of str to Tensor
        The mean after the previous round.
    weights : dict of str to Tensor
        Global weights of this round.
    number : int
        Number of this round, from 1.
    decay : float
        Weight of a round relative to the next one.
    """
    share = (1 - decay) / (1 - decay**number)
    if share == 1:
        return weights
    mean = dict(weights)
    for name, last in weights.items():
        if last.is_floating_point():  # values that do not change are not computed: a mask may hold infinities
            mean[name] = torch.where(last == before[name], last, before[name].lerp(last, share))
    return mean


@dataclass(frozen=True)
class _Notes(Document):
    """Everything in a checkpoint that is not a tensor; `run` is the identity of the run."""

    run: str
    round: int
    selected_round: int
    best_round: int  # 0: none
    best_loss: float
    best_temperature: float
    history: list[RoundMetrics]
    client_state_rounds: dict[str, int]


def write_checkpoint(path: Path, state: TrainingState, run: str) -> None:
    """Write the state of the run with this identity. Equal tensors are written once."""
    groups: dict[str, Mapping[str, Tensor]] = {"weights": state.weights, "server": state.server_state}
    if state.averaged is not state.weights:
        groups["averaged"] = state.averaged
    if state.selected_round != state.round:
        groups["selected"] = state.selected
    groups["selected_sites"] = {
        f"{site}/{name}": tensor for site, own in state.selected_sites.items() for name, tensor in own.items()
    }
    best = state.best or Reference(0, 0.0, 1.0, {})
    if best.round not in (state.round, state.selected_round):
        groups["best"] = best.weights
    notes = _Notes(
        run=run,
        round=state.round,
        selected_round=state.selected_round,
        best_round=best.round,
        best_loss=best.loss,
        best_temperature=best.temperature,
        history=list(state.history),
        client_state_rounds=dict(state.client_state_rounds),
    )
    tensors = {f"{group}/{name}": tensor for group, part in groups.items() for name, tensor in part.items()}
    write_tensors(path, tensors, notes.to_dict())


def read_checkpoint(path: Path, run: str) -> TrainingState:
    """Read the state of the run with this identity; InputError if the file is damaged or of another run."""
    tensors, stored = read_tensors(path)
    groups: dict[str, dict[str, Tensor]] = {group: {} for group in _GROUPS}
    try:
        notes = _Notes.from_dict(stored)
        for key, tensor in tensors.items():
            group, _, name = key.partition("/")
            groups[group][name] = tensor
    except (KeyError, ValueError):
        raise InputError(f"{path}: not a checkpoint of a run; delete it or restore a copy.") from None
    if notes.run != run:
        raise InputError(f"{path}: is the checkpoint of another run; restore the checkpoint of this run.")
    averaged = groups["averaged"] or groups["weights"]
    sites: dict[str, dict[str, Tensor]] = {}
    for key, tensor in groups["selected_sites"].items():
        site, _, name = key.rpartition("/")  # the name of a site may hold a slash, that of a weight does not
        sites.setdefault(site, {})[name] = tensor
    selected = groups["selected"] or averaged
    best = {notes.round: averaged, notes.selected_round: selected}.get(notes.best_round, groups["best"])
    return TrainingState(
        round=notes.round,
        weights=groups["weights"],
        server_state=groups["server"],
        averaged=averaged,
        selected=selected,
        selected_round=notes.selected_round,
        history=notes.history,
        client_state_rounds=notes.client_state_rounds,
        best=Reference(notes.best_round, notes.best_loss, notes.best_temperature, best) if notes.best_round else None,
        selected_sites=sites,
    )
