"""Held-out rows of all clients as one table, and samples of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from fedul.core import Scaling
from fedul.methods.task import Task


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Held-out rows, and what the loss -log Q needs of their sets.

    Parameters
    ----------
    parts : sequence of (Tensor, Tensor)
        Inputs and row numbers, in the order of the rows.
    sets : Tensor of shape (N,)
        Number of each row's set, over all clients.
    joint, marginal : Tensor of shape (S, K)
        `Transition.joint` of every set, and `Transition.marginal` of its client.
    scaling : Scaling
        Map from stored inputs to network inputs.
    """

    parts: Sequence[tuple[Tensor, Tensor]]
    sets: Tensor
    joint: Tensor
    marginal: Tensor
    scaling: Scaling

    @classmethod
    def of_tasks(cls, tasks: Iterable[Task]) -> HeldOutRows:
        """Return the rows of tasks that `fedul.methods.fedul.set_task` made."""
        clients = list(tasks)
        targets = [task.targets for task in clients]
        joints = [each.sets["joint"] for each in targets]  # (M, K) each
        first_sets = accumulate(map(len, joints), initial=0)
        return cls(
            [(task.inputs, task.index) for task in clients],
            concatenate([each.rows["set"] + first for each, first in zip(targets, first_sets, strict=False)]),
            concatenate(joints),
            concatenate([each.client["marginal"].expand_as(each.sets["joint"]) for each in targets]),
            clients[0].scaling if clients else Scaling(),
        )

    def select(self, places: Tensor) -> HeldOutRows:
        """Return some of the rows, whose places (n,) are ascending; the tables of their sets stay shared."""
        ends = torch.tensor([len(index) for _, index in self.parts]).cumsum(0)
        part_of = torch.bucketize(places, ends, right=True)
        counts = part_of.bincount(minlength=len(ends))
        starts = torch.cat([ends.new_zeros(1), ends])
        parts, first = [], 0
        for number in counts.nonzero().flatten().tolist():
            inputs, index = self.parts[number]
            some = places[first : (first := first + int(counts[number]))]
            parts.append((inputs, index[(some - starts[number]).to(index.device)]))
        return replace(self, parts=parts, sets=self.sets[places.to(self.sets.device)])


def spread(rows: int, count: int, generator: torch.Generator) -> Tensor:
    """Return a random sample of rows (count,), ascending: one of each of `count` equal parts.

    Every row is expected count / rows times in it. A row on the border of two parts may be drawn twice.

    Examples
    --------
    >>> spread(4, 4, torch.Generator()).tolist()  # parts of one row
    [0, 1, 2, 3]
    """
    places = (torch.arange(count) + torch.rand(count, generator=generator, dtype=torch.float64)) * (rows / count)
    return places.long().clamp_(max=rows - 1)


def concatenate(parts: Sequence[Tensor]) -> Tensor:
    """Return the tensors as one; empty for none."""
    return torch.cat(list(parts)) if parts else torch.empty(0)
