"""Several clients' tasks as one: rows gathered for all of them, ragged clients filled up with rows that weigh nothing.

Clients take their own steps in their own order, as each one's plan says; those that have finished are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fedul.engines.local import Job
from fedul.federation import float_type
from fedul.inputs import AT_ONCE
from fedul.methods import augment as augmentation
from fedul.methods.base import Plan, Step, Targets, Task, gathered_at_once


class Cohort:
    """The tasks of several clients as one: targets stacked, and padded to the rows and sets of the largest."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self.rows = [len(task) for task in tasks]
        self.device = tasks[0].index.device
        self._index = _padded([task.index for task in tasks])  # (C, R)
        self._one_source = all(task.inputs is tasks[0].inputs for task in tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    @cached_property
    def targets(self) -> Targets:
        """Of all clients, (C, R, ?) for their rows."""
        every = [task.targets for task in self._tasks]
        first, most = every[0], max(self.rows)
        rows = {name: _padded([one.rows[name] for one in every]) for name in first.rows}
        sets = {
            name: pad_sequence([one.sets[name] for one in every], True, first.empty.get(name, 0.0))
            for name in first.sets
        }
        client = {name: torch.stack([one.client[name] for one in every]).unsqueeze(1) for name in first.client}
        ragged = min(self.rows) < most
        here = torch.arange(most, device=self.device) < torch.tensor(self.rows, device=self.device)[:, None]
        return Targets(rows, sets, client, here if ragged else None, first.empty)

    def inputs(self, positions: Tensor) -> Tensor:
        """Scaled inputs (P, A, W, ...) of the first A clients' rows at positions (P, A, W)."""
        rows, source = _looked_up(self._index, positions), self._tasks[0].inputs
        shape = (*rows.shape, *source.shape[1:])
        if self._one_source:
            return self._tasks[0].scaling(source.index_select(0, rows.reshape(-1)).view(shape))
        found = torch.empty(shape, dtype=float_type(source), device=self.device)
        for c in range(rows.shape[1]):
            found[:, c] = self._tasks[c].scaling(self._tasks[c].inputs[rows[:, c]])
        return found

    @torch.no_grad()
    def predicted(self, module: nn.Module) -> Tensor:
        """Logits (C, R, K) of all rows, all clients having the same weights."""
        widest = self._index.shape[1]
        together = max(1, AT_ONCE // widest)
        positions = torch.arange(widest, device=self.device).expand(1, len(self), widest)
        every = []
        for first in range(0, len(self), together):
            part = Cohort(self._tasks[first : first + together])
            most = max(part.rows)
            blocks = torch.split(positions[:, : len(part), :most], AT_ONCE, dim=2)
            logits = [module(part.inputs(at).flatten(0, 2)).unflatten(0, at.shape[1:]) for at in blocks]
            every.append(nn.functional.pad(torch.cat(logits, 1), (0, 0, 0, widest - most)))
        return torch.cat(every)

    def steps(self, plans: Sequence[Sequence[Plan]], targets: Targets, augment: str) -> Iterator[Step]:
        """The steps of several epochs, each with the rows of those clients that have not finished.

        Clients must come in falling order of their steps, so that these are the first ones.
        """
        timetable = _Timetable([sum((plan.sizes for plan in epochs), ()) for epochs in plans], self.device)
        order = pad_sequence([torch.cat([plan.order for plan in epochs]) for epochs in plans], True)  # (C, E * R)
        drawn = {
            name: pad_sequence([torch.cat([plan.drawn[name] for plan in epochs]) for epochs in plans], True)
            for name in plans[0][0].drawn
        }
        if augment != "none":
            changes = [torch.cat([_changes(plan) for plan in epochs]) for epochs in plans]
            drawn["augment"] = pad_sequence(changes, True)
        noise = None if self._tasks[0].noise is None else _Noises(self._tasks, plans)
        values = self._tasks[0].inputs.shape[1:].numel() * len(self)
        first = 0
        for sizes in gathered_at_once(timetable.widths, values):
            at = timetable.positions(first, first + len(sizes))  # (P, A, W)
            rows = _looked_up(order, at)
            inputs = self.inputs(rows)
            found = {name: _looked_up(column, rows) for name, column in targets.rows.items()}
            found |= {name: _looked_up(table, found["set"]) for name, table in targets.sets.items()}
            found |= {name: _looked_up(column, at) for name, column in drawn.items()}
            if augment != "none":
                flat = augmentation.apply(augment, inputs.flatten(0, 2), found.pop("augment").flatten(0, 2))
                inputs = flat.view(inputs.shape)
            for i, width in enumerate(sizes):
                active = timetable.active[first + i]
                shared = targets.shared
                if active < len(self):
                    shared = {name: value[:active] for name, value in shared.items()}
                part = {name: value[i, :active, :width] for name, value in found.items()}
                now = inputs[i, :active, :width]
                if noise is not None:
                    part |= noise.at(now, timetable.sizes(first + i))
                yield Step(now, part, shared, timetable.weight(first + i, inputs.dtype))
            first += len(sizes)


class Cohorts:
    """The cohorts of a run, made once where the same clients come together in every round."""

    def __init__(self, *, every_round: bool) -> None:
        self._every_round = every_round
        self._known: dict[tuple[str, ...], Cohort] = {}

    def of(self, jobs: Sequence[Job]) -> Cohort:
        names = tuple(job.client for job in jobs)
        cohort = self._known.get(names) or Cohort([job.task for job in jobs])
        if self._every_round:
            self._known[names] = cohort
        return cohort


class _Timetable:
    """When each client takes which of its rows: client c's step t has `sizes[c, t]` rows from `starts[c, t]` on."""

    def __init__(self, sizes: Sequence[tuple[int, ...]], device: torch.device) -> None:
        tables = {one: torch.tensor(one) for one in set(sizes)}  # many clients have as many rows as another
        self._sizes = pad_sequence([tables[one] for one in sizes], batch_first=True).to(device)  # (C, T)
        self._starts = self._sizes.cumsum(1) - self._sizes
        self.widths = self._sizes.amax(0).tolist()
        self.active = (self._sizes > 0).sum(0).tolist()
        padded = (self._sizes > 0) & (self._sizes < self._sizes.amax(0))
        self._even = padded.any(0).logical_not().tolist()

    def positions(self, first: int, last: int) -> Tensor:
        """(P, A, W): which of their rows, in the order of their plans, clients take in these steps."""
        sizes = self._sizes[: self.active[first], first:last].T.unsqueeze(-1)
        starts = self._starts[: self.active[first], first:last].T.unsqueeze(-1)
        within = torch.arange(max(self.widths[first:last]), device=sizes.device)
        return starts + within.minimum((sizes - 1).clamp_min(0))

    def sizes(self, t: int) -> list[int]:
        """How many rows each client that takes step t has in it."""
        found: list[int] = self._sizes[: self.active[t], t].tolist()
        return found

    def weight(self, t: int, precision: torch.dtype) -> Tensor | None:
        """(A, W): how much each row counts; those that fill up count nothing."""
        if self._even[t]:
            return None
        sizes = self._sizes[: self.active[t], t].unsqueeze(-1)
        here = torch.arange(self.widths[t], device=sizes.device) < sizes
        return here.to(precision) / sizes


class _Noises:
    """Each client's random targets of a step, drawn by its own generator of that epoch."""

    def __init__(self, tasks: Sequence[Task], plans: Sequence[Sequence[Plan]]) -> None:
        self._tasks = tasks
        self._generators = [
            chain.from_iterable(repeat(plan.noise_generator(), len(plan)) for plan in epochs) for epochs in plans
        ]

    def at(self, inputs: Tensor, sizes: Sequence[int]) -> dict[str, Tensor]:
        """(A, W, ...) for inputs (A, W, ...), of which each client has so many rows."""
        drawn = [self._drawn(c, inputs[c, :size]) for c, size in enumerate(sizes)]
        return {name: pad_sequence([one[name] for one in drawn], batch_first=True) for name in drawn[0]}

    def _drawn(self, c: int, inputs: Tensor) -> Mapping[str, Tensor]:
        noise = self._tasks[c].noise
        assert noise is not None
        return noise(inputs, next(self._generators[c]))


def _padded(columns: Sequence[Tensor]) -> Tensor:
    """(C, R, ?): each one filled up with zeros, a row that is there."""
    return pad_sequence(list(columns), batch_first=True)


def _looked_up(columns: Tensor, positions: Tensor) -> Tensor:
    """Columns (C, R, ?) at positions (P, A, W), each client's from its own: (P, A, W, ?)."""
    clients = torch.arange(positions.shape[1], device=positions.device).unsqueeze(-1) * columns.shape[1]
    found = columns.flatten(0, 1).index_select(0, (positions + clients).reshape(-1))
    return found.view(*positions.shape, *columns.shape[2:])


def _changes(plan: Plan) -> Tensor:
    assert plan.changes is not None
    return plan.changes
