"""What a method is: it turns a client's rows into steps, and a step into a loss. It knows no algorithm and no engine.

Chance is kept apart from arithmetic: `Task.plan` draws everything random of a local epoch beforehand, and `Method.loss`
is a pure function of a prediction function and a step. So a loop over clients, clients stacked into one computation and
a remote site all compute the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedul.federation import Agreed, Federation, Scaling, UnlabeledSets
from fedul.inputs import AT_ONCE
from fedul.methods import augment as augmentation
from fedul.priors import Matrix

Predict = Callable[[Tensor], Tensor]
"""From inputs (n, ...) to logits (n, K), with some weights."""

Kept = dict[str, Tensor]
"""What a method keeps at a client between rounds."""

Draw = Callable[[int, torch.Generator], Mapping[str, Tensor]]
"""From a number of rows to random targets of so many."""

Noise = Callable[[Tensor, torch.Generator], Mapping[str, Tensor]]
"""From inputs (n, ...) to random targets, a row for each of theirs."""

GATHERED = 2**20
"""Input values that a plan gathers at once: enough for many steps of a table, and little memory for large images."""


@dataclass(frozen=True, eq=False)
class Targets:
    """What a loss is told about a client: about each of its rows, about each of its sets, and about all of it.

    Of several clients at once, every tensor has a dimension of clients in front; those with fewer rows or sets are
    padded, and `here` says which rows are there.
    """

    rows: Mapping[str, Tensor]  # (..., n, ?)
    sets: Mapping[str, Tensor] = field(default_factory=dict)  # (..., M, ?), looked up by the rows' "set"
    client: Mapping[str, Tensor] = field(default_factory=dict)  # (...), or (..., 1, ?) of several clients
    here: Tensor | None = None  # (..., n) bool; None means all rows
    empty: Mapping[str, float] = field(default_factory=dict)  # what pads the values of sets, where that is not 0

    @property
    def shared(self) -> Mapping[str, Tensor]:
        """What holds for all rows of a client."""
        return {**self.sets, **self.client}

    def everywhere(self, name: str) -> Tensor:
        """A value of the sets (..., n, ?), at each row."""
        return rows_at(self.sets[name], self.rows["set"])

    def at(self, positions: Tensor) -> Mapping[str, Tensor]:
        """The targets (..., b, ?) of the rows at these positions (..., b)."""
        found = {name: rows_at(values, positions) for name, values in self.rows.items()}
        return {**found, **{name: rows_at(table, found["set"]) for name, table in self.sets.items()}}


@dataclass(frozen=True, eq=False)
class Step:
    """The rows of one local step, and what the method's loss wants to know about each of them.

    Of several clients at once, every tensor has a dimension of clients in front.
    """

    inputs: Tensor  # (..., n, ...)
    targets: Mapping[str, Tensor]  # each (..., n, ?)
    shared: Mapping[str, Tensor] = field(default_factory=dict)  # what holds for all rows of the client
    weight: Tensor | None = None  # (..., n), summing to one; None means all rows count the same

    def mean(self, values: Tensor) -> Tensor:
        """The mean of one value a row; losses use this and no other, so that padded rows can weigh nothing."""
        return values.mean(-1) if self.weight is None else (values * self.weight).sum(-1)


@dataclass(frozen=True, eq=False)
class Task:
    """A client's work under a method: some of its rows, and the targets of any of them."""

    inputs: Tensor  # (N, ...)
    index: Tensor  # (n,): the rows to train on
    targets: Targets
    scaling: Scaling
    draw: Draw | None = None  # random targets, drawn anew for every epoch
    noise: Noise | None = None  # those that are too large to be drawn for all rows beforehand, drawn for every step

    def __len__(self) -> int:
        return len(self.index)

    def plan(self, generator: torch.Generator, batch_size: int = 0, augment: str = "none") -> Plan:
        """One pass over the rows in random order, with everything random drawn; batch size 0 means all rows at once."""
        rows, device = len(self.index), self.index.device
        order = torch.randperm(rows, generator=generator).to(device)
        drawn: Mapping[str, Tensor] = {}
        if self.draw is not None:
            drawn = {name: values.to(device) for name, values in self.draw(rows, generator).items()}
        changes = None if augment == "none" else augmentation.draw(augment, rows, generator).to(device)
        seed = 0 if self.noise is None else int(torch.randint(2**62, (), generator=generator))
        return Plan(self, order, step_sizes(rows, batch_size), drawn, augment, changes, seed)

    def in_order(self, batch_size: int) -> Iterator[Step]:
        """All rows in their own order, for evaluation."""
        for at in torch.split(torch.arange(len(self.index), device=self.index.device), batch_size):
            yield self.step(at)

    def step(self, at: Tensor) -> Step:
        """The rows at these positions."""
        return Step(self.scaling(self.inputs[self.index[at]]), self.targets.at(at), self.targets.shared)


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps of one local epoch, everything random drawn already; rows are gathered when their turn comes."""

    task: Task
    order: Tensor  # (n,)
    sizes: tuple[int, ...]  # rows of each step
    drawn: Mapping[str, Tensor]  # random targets (n, ?), in the order of the steps
    augment: str
    changes: Tensor | None  # (n, p): how the rows are augmented
    noise_seed: int = 0

    def __len__(self) -> int:
        return len(self.sizes)

    def noise_generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.noise_seed)

    def __iter__(self) -> Iterator[Step]:
        generator, start = self.noise_generator(), 0
        for sizes in gathered_at_once(self.sizes, self.task.inputs.shape[1:].numel()):
            part = slice(start, start := start + sum(sizes))
            step = self.task.step(self.order[part])
            inputs, targets = step.inputs, {**step.targets, **{name: v[part] for name, v in self.drawn.items()}}
            if self.changes is not None:
                inputs = augmentation.apply(self.augment, inputs, self.changes[part])
            parts = {name: torch.split(values, sizes) for name, values in targets.items()}
            for i, rows in enumerate(torch.split(inputs, sizes)):
                told = {name: values[i] for name, values in parts.items()}
                if self.task.noise is not None:
                    told |= self.task.noise(rows, generator)
                yield Step(rows, told, step.shared)


@cache
def step_sizes(rows: int, batch_size: int) -> tuple[int, ...]:
    """How many rows each step of an epoch has; batch size 0 means all rows at once.

    >>> step_sizes(10, 4), step_sizes(9, 4)  # a last step of one row would break batch norm: it joins the one before
    ((4, 4, 2), (4, 5))
    """
    size = batch_size or rows
    sizes = [size] * (rows // size) + ([rows % size] if rows % size else [])
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [size + 1]
    return tuple(sizes)


def gathered_at_once(sizes: Sequence[int], values: int) -> Iterator[list[int]]:
    """Steps whose rows, of so many values each, are gathered together; alone they would cost a tenth of a small net."""
    together = max(1, GATHERED // max(values * sizes[0], 1))
    for first in range(0, len(sizes), together):
        yield list(sizes[first : first + together])


def rows_at(values: Tensor, positions: Tensor) -> Tensor:
    """The rows of `values` (..., n, ?) at `positions` (..., b): (..., b, ?), each client's from its own."""
    if positions.dim() == 1:
        return values[positions]
    clients = torch.arange(len(positions), device=positions.device)[:, None]
    return values[clients, positions]


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy (..., n) of each row with its label."""
    losses = functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return losses.view(labels.shape)


class Method(ABC):
    """What a client minimises. A method is one file with one subclass."""

    at_once: ClassVar[bool] = False
    """Whether `loss` and `begin_round` take several clients at once, in a dimension in front."""

    coordinates: ClassVar[bool] = False
    """Whether what `coordinate` says depends on how the rounds before were judged."""

    @abstractmethod
    def task(self, client: UnlabeledSets, agreed: Agreed) -> Task:
        """The client's work."""

    @abstractmethod
    def loss(self, predict: Predict, step: Step) -> Tensor:
        """A scalar, or one for each client; pure in the weights behind `predict` and the step."""

    def labels_used(self, federation: Federation) -> int:
        """How many rows' labels it looks at; 0 for all but the supervised one."""
        return 0

    def remarks(self, rounds: int) -> list[str]:
        """What a user should know of this method in a run of so many rounds, in sentences."""
        return []

    def afterwards(self, history: Sequence[Mapping[str, Any]]) -> list[str]:
        """What a user should know of this method in a run that is done, by the figures of its rounds, in sentences."""
        return []

    def coordinate(self, history: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        """What the coordinator tells every client in the next round, from the figures of the rounds so far."""
        return {}

    def looks(self, directive: Mapping[str, float]) -> bool:
        """Whether clients look at their rows with the fresh global model before this round."""
        return False

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], kept: Kept
    ) -> tuple[Targets, Kept]:
        """The round's targets after such a look (soft labels, proportions), and what to keep at the client.

        `logits` (..., n, K) are the fresh global model's, in evaluation mode, of all rows of the task. `kept` is what
        was kept there the last time, empty at first.
        """
        return targets, kept


def prior_shift(mix: Matrix, test_prior: Matrix) -> Tensor:
    """log(mix / test prior) (K,): added to logits under the test prior, it makes them logits under another class mix.

    A class that is not in the mix gets -inf: there it is never predicted.
    """
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(mix) - np.log(test_prior))


def predicted(predict: Predict, task: Task, batch_size: int = AT_ONCE) -> Tensor:
    """Logits (n, K) of all rows of a task, in their order."""
    return torch.cat([predict(step.inputs) for step in task.in_order(batch_size)])


def set_means(rows: Tensor, targets: Targets, count: int) -> Tensor:
    """Means (..., M, K) of rows (..., n, K) over each set; zeros for a set without rows."""
    return set_sums(rows, targets, count) / set_sizes(targets, count, rows.dtype).clamp_min(1)


def set_sums(rows: Tensor, targets: Targets, count: int) -> Tensor:
    """Sums (..., M, K) of rows (..., n, K) over each set."""
    if targets.here is not None:
        rows = rows * targets.here.unsqueeze(-1)
    sets = targets.rows["set"].unsqueeze(-1).expand(rows.shape)
    return rows.new_zeros(*rows.shape[:-2], count, rows.shape[-1]).scatter_add_(-2, sets, rows)


def set_sizes(targets: Targets, count: int, precision: torch.dtype) -> Tensor:
    """How many rows each set has (..., M, 1)."""
    return set_sums(torch.ones_like(targets.rows["set"], dtype=precision).unsqueeze(-1), targets, count)


@contextmanager
def statistics_kept(predict: Predict) -> Iterator[None]:
    """Batch norm's running statistics do not take in what is predicted here: inputs that no one will ever see."""
    inside = predict.modules() if isinstance(predict, nn.Module) else iter(())
    layers = [layer for layer in inside if isinstance(layer, _BatchNorm)]
    before = [layer.track_running_stats for layer in layers]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer, tracks in zip(layers, before, strict=True):
            layer.track_running_stats = tracks
