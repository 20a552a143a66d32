"""What a method is: it turns a client's rows into steps, and a step into a loss. It knows no algorithm and no engine.

Chance is kept apart from arithmetic: `Task.plan` draws everything random of a local epoch beforehand, and `Method.loss`
is a pure function of a prediction function and a step. So a loop over clients, clients stacked into one computation and
a remote site all compute the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedul.federation import Federation, Scaling, UnlabeledSets
from fedul.methods import augment as augmentation
from fedul.priors import Matrix

Predict = Callable[[Tensor], Tensor]
"""From inputs (n, ...) to logits (n, K), with some weights."""

Kept = dict[str, Tensor]
"""What a method keeps at a client between rounds."""

Noise = Callable[[Tensor, torch.Generator], Mapping[str, Tensor]]
"""From inputs (n, ...) to random targets, a row for each of theirs."""

GATHERED = 2**20
"""Input values that a plan gathers at once: enough for many steps of a table, and little memory for large images."""


@dataclass(frozen=True, eq=False)
class Step:
    """The rows of one local step, and what the method's loss wants to know about each of them."""

    inputs: Tensor  # (n, ...)
    targets: Mapping[str, Tensor]  # each (n, ...)
    shared: Mapping[str, Tensor] = field(default_factory=dict)  # what holds for all rows of the client
    weight: Tensor | None = None  # (n,), summing to one; None means all rows count the same

    def mean(self, values: Tensor) -> Tensor:
        """The mean of one value a row; losses use this and no other, so that padded rows can weigh nothing."""
        return values.mean() if self.weight is None else (values * self.weight).sum()

    def split(self, sizes: list[int]) -> Iterator[Step]:
        """Its rows as several steps of these sizes, all rows counting the same; views, not copies."""
        targets = {name: torch.split(values, sizes) for name, values in self.targets.items()}
        for i, inputs in enumerate(torch.split(self.inputs, sizes)):
            yield Step(inputs, {name: values[i] for name, values in targets.items()}, self.shared)


@dataclass(frozen=True, eq=False)
class Task:
    """A client's work under a method: some of its rows, and the targets of any of them."""

    inputs: Tensor  # (N, ...)
    index: Tensor  # (n,): the rows to train on
    targets: Callable[[Tensor], Mapping[str, Tensor]]  # positions in `index` -> targets of these rows
    scaling: Scaling
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    noise: Noise | None = None  # random targets, drawn anew for every epoch

    def __len__(self) -> int:
        return len(self.index)

    def plan(self, generator: torch.Generator, batch_size: int = 0, augment: str = "none") -> Plan:
        """One pass over the rows in random order, with everything random drawn; batch size 0 means all rows at once."""
        rows = len(self.index)
        order = torch.randperm(rows, generator=generator).to(self.index.device)
        size = batch_size or rows
        cuts = list(range(size, rows, size))
        # A last step of one row would break batch norm, whose variance needs two: it joins the step before.
        if cuts and rows - cuts[-1] == 1:
            cuts.pop()
        changes = augmentation.draw(augment, rows, generator).to(self.index.device)
        seed = 0 if self.noise is None else int(torch.randint(2**62, (), generator=generator))
        return Plan(self, order.tensor_split(cuts), changes.tensor_split(cuts), augment, seed)

    def in_order(self, batch_size: int) -> Iterator[Step]:
        """All rows in their own order, for evaluation."""
        for at in torch.split(torch.arange(len(self.index), device=self.index.device), batch_size):
            yield self.step(at)

    def step(self, at: Tensor) -> Step:
        """The rows at these positions."""
        return Step(self.scaling(self.inputs[self.index[at]]), self.targets(at), self.shared)


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps of one local epoch, everything random drawn already; rows are gathered when their turn comes."""

    task: Task
    positions: tuple[Tensor, ...]  # one tensor a step
    changes: tuple[Tensor, ...]
    augment: str
    noise_seed: int = 0

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Step]:
        # Several steps' rows at once: gathered and scaled step by step, they are a tenth of a small network's time.
        values = self.task.inputs.shape[1:].numel() * len(self.positions[0])
        together = max(1, GATHERED // max(values, 1))
        generator = torch.Generator().manual_seed(self.noise_seed)
        for first in range(0, len(self), together):
            parts = slice(first, first + together)
            step = self.task.step(torch.cat(self.positions[parts]))
            if self.augment != "none":
                changed = augmentation.apply(self.augment, step.inputs, torch.cat(self.changes[parts]))
                step = replace(step, inputs=changed)
            if self.task.noise is not None:
                step = replace(step, targets={**step.targets, **self.task.noise(step.inputs, generator)})
            yield from step.split([len(at) for at in self.positions[parts]])


class Method(ABC):
    """What a client minimises. A method is one file with one subclass."""

    @abstractmethod
    def task(self, client: UnlabeledSets, federation: Federation) -> Task:
        """The client's work."""

    @abstractmethod
    def loss(self, predict: Predict, step: Step) -> Tensor:
        """A scalar; pure in the weights behind `predict` and the step."""

    def labels_used(self, federation: Federation) -> int:
        """How many rows' labels it looks at; 0 for all but the supervised one."""
        return 0

    def remarks(self, rounds: int) -> list[str]:
        """What a user should know of this method in a run of so many rounds, in sentences."""
        return []

    def coordinate(self, history: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        """What the coordinator tells every client in the next round, from the figures of the rounds so far."""
        return {}

    def looks(self, directive: Mapping[str, float]) -> bool:
        """Whether clients look at their rows with the fresh global model before this round."""
        return False

    def begin_round(
        self, task: Task, predict: Predict, directive: Mapping[str, float], kept: Kept
    ) -> tuple[Task, Kept]:
        """The round's task after such a look (soft labels, proportions), and what to keep at the client.

        Without gradients, in evaluation mode. `kept` is what was kept there the last time, empty at first.
        """
        return task, kept


def prior_shift(mix: Matrix, test_prior: Matrix) -> Tensor:
    """log(mix / test prior) (K,): added to logits under the test prior, it makes them logits under another class mix.

    A class that is not in the mix gets -inf: there it is never predicted.
    """
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(mix) - np.log(test_prior))


def predicted(predict: Predict, task: Task, batch_size: int = 1024) -> Tensor:
    """Logits (n, K) of all rows of a task, in their order."""
    return torch.cat([predict(step.inputs) for step in task.in_order(batch_size)])


def set_means(rows: Tensor, sets: Tensor, count: int) -> Tensor:
    """Means (M, K) of rows (n, K) over each set; zeros for a set without rows."""
    totals = rows.new_zeros(count, rows.shape[1]).index_add_(0, sets, rows)
    return totals / torch.bincount(sets, minlength=count).clamp_min(1)[:, None]


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
