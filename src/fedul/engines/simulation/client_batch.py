"""The tasks of several clients as one, for vectorized training.

Rows are gathered for all clients together. Clients with fewer rows or sets are padded, and padded rows have no weight.
Each client takes the steps of its plan; clients that have finished are left out.

Dimensions: C clients, of which the first A are active; R rows of the largest client, trained on or not; P steps;
W rows of the largest step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fedul.core import PREDICT_BATCH, compute_dtype
from fedul.methods import augment as augmentation
from fedul.methods.task import AUGMENTATION, DrawStepTargets, Plan, Step, Targets, Task, gather_groups, take_rows

CACHE_VALUES = 2**18
"""Input values that are gathered in one operation: 1 MB, as large as the second cache of a core. More are slower."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """The local epochs of several clients: everything random is drawn, and the rows of each step are known.

    Parameters
    ----------
    schedule : Schedule
        The steps.
    order : Tensor
        (C, E * R) rows of each client in the order of its steps, over all E epochs.
    drawn : mapping of str to Tensor
        Random targets in the same order, (C, E * R, ?).
    augment : str
        Augmentation of images.
    generators : sequence of iterators of torch.Generator
        For each client that draws random targets in every step, the generator of each step.
    """

    schedule: Schedule
    order: Tensor
    drawn: Mapping[str, Tensor]
    augment: str
    generators: Sequence[Iterator[torch.Generator]]


class ClientBatch:
    """The tasks of several clients.

    Parameters
    ----------
    tasks : sequence of Task
        One task per client.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self.rows = [len(task) for task in tasks]  # to train on
        self._all_rows = [len(task.index) for task in tasks]
        self.device = tasks[0].index.device
        self._index = _pad([task.index for task in tasks])  # (C, R)
        self.largest = self._index.shape[1]  # R
        self._shares_inputs = all(task.inputs is tasks[0].inputs for task in tasks)
        self._known_schedule: tuple[list[tuple[int, ...]], Schedule] | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    @cached_property
    def targets(self) -> Targets:
        """The targets of all clients, (C, R, ?) per row, padded to the size of the largest client."""
        every = [task.targets for task in self._tasks]
        first, largest = every[0], max(self._all_rows)
        rows = {name: _pad([one.rows[name] for one in every]) for name in first.rows}
        sets = {
            name: pad_sequence([one.sets[name] for one in every], True, first.padding.get(name, 0.0))
            for name in first.sets
        }
        client = {name: torch.stack([one.client[name] for one in every]).unsqueeze(1) for name in first.client}
        mask = torch.arange(largest, device=self.device) < torch.tensor(self._all_rows, device=self.device)[:, None]
        return Targets(rows, sets, client, mask if min(self._all_rows) < largest else None, first.padding)

    def inputs(self, positions: Tensor) -> Tensor:
        """Return scaled inputs (P, A, W, ...) of the rows of the first A clients at positions (P, A, W)."""
        return self._read(take_rows(self._index, positions))

    def _read(self, rows: Tensor) -> Tensor:
        """Return scaled inputs (P, A, W, ...) of the rows (P, A, W) of the clients' inputs."""
        source = self._tasks[0].inputs
        shape = (*rows.shape, *source.shape[1:])
        if self._shares_inputs:
            return self._tasks[0].scaling(source.index_select(0, rows.reshape(-1)).view(shape))
        inputs = torch.empty(shape, dtype=compute_dtype(source), device=self.device)
        for c in range(rows.shape[1]):
            inputs[:, c] = self._tasks[c].scaling(self._tasks[c].inputs[rows[:, c]])
        return inputs

    @torch.no_grad()
    def predict(self, module: nn.Module) -> Tensor:
        """Return the logits (C, R, K) of all rows, with the same weights for all clients."""
        largest = self._index.shape[1]
        group = max(1, PREDICT_BATCH // largest)
        positions = torch.arange(largest, device=self.device).expand(1, len(self), largest)
        groups = []
        for first in range(0, len(self), group):
            part = ClientBatch(self._tasks[first : first + group])
            rows = max(part._all_rows)
            blocks = torch.split(positions[:, : len(part), :rows], PREDICT_BATCH, dim=2)
            logits = [module(part.inputs(at).flatten(0, 2)).unflatten(0, at.shape[1:]) for at in blocks]
            groups.append(nn.functional.pad(torch.cat(logits, 1), (0, 0, 0, largest - rows)))
        return torch.cat(groups)

    def plan(self, plans: Sequence[Sequence[Plan]], augment: str) -> BatchPlan:
        """Join the plans of all clients.

        Parameters
        ----------
        plans : sequence of sequence of Plan
            For each client, the plan of each epoch. Clients must be sorted by their number of steps, the largest
            first, so that the active clients come first.
        augment : str
            Augmentation of images.
        """
        schedule = self._schedule([sum((plan.sizes for plan in epochs), ()) for epochs in plans])
        order = _pad([_join([plan.order for plan in epochs]) for epochs in plans])  # (C, E * R)
        drawn = {
            name: _pad([_join([plan.drawn[name] for plan in epochs]) for epochs in plans]) for name in plans[0][0].drawn
        }
        generators: list[Iterator[torch.Generator]] = []
        if self._draw_step:
            generators = [chain.from_iterable(repeat(p.step_generator(), len(p)) for p in epochs) for epochs in plans]
        return BatchPlan(schedule, order, drawn, augment, generators)

    def _schedule(self, sizes: list[tuple[int, ...]]) -> Schedule:
        """Return the steps of these sizes, which are the same in every round."""
        if self._known_schedule is None or self._known_schedule[0] != sizes:
            self._known_schedule = sizes, Schedule(sizes, self.device)
        return self._known_schedule[1]

    @cached_property
    def _draw_step(self) -> list[DrawStepTargets]:
        return [task.draw_step for task in self._tasks if task.draw_step is not None]

    def steps(self, plan: BatchPlan, targets: Targets) -> Iterator[Step]:
        """Yield the steps of a plan, each with the rows of the active clients.

        Parameters
        ----------
        plan : BatchPlan
            What `plan` returned; its steps can be taken once.
        targets : Targets
            Targets of the round, (C, R, ?) per row.
        """
        schedule = plan.schedule
        input_values = self._tasks[0].inputs.shape[1:].numel() * len(self)
        target_values = sum(
            v.shape[2:].numel() for each in (targets.rows, targets.sets, plan.drawn) for v in each.values()
        )
        first = 0
        # Targets are gathered for many steps at once, and inputs for those that fit into the cache of a core.
        for widths in gather_groups(schedule.widths, len(self) * max(1, target_values)):
            at = schedule.positions(first, first + len(widths))  # (P, A, W)
            rows = take_rows(plan.order, at)
            row_targets = self._gather_targets(rows, at, targets, plan.drawn)
            sources = take_rows(self._index, rows)
            start = 0
            for some in gather_groups(widths, input_values, CACHE_VALUES):
                part = slice(start, start + len(some))
                within = part, slice(0, schedule.active[first + start]), slice(0, max(some))
                inputs = self._read(sources[within])
                if plan.augment != "none":
                    parameters = row_targets[AUGMENTATION][within].flatten(0, 2)
                    inputs = augmentation.apply(plan.augment, inputs.flatten(0, 2), parameters).view(inputs.shape)
                for i, width in enumerate(some):
                    t = first + start + i
                    yield self._step(
                        t, inputs[i], {n: v[start + i] for n, v in row_targets.items()}, plan, targets, width
                    )
                start += len(some)
            first += len(widths)

    def _step(
        self, t: int, inputs: Tensor, values: Mapping[str, Tensor], plan: BatchPlan, targets: Targets, width: int
    ) -> Step:
        """Return step t, given the inputs and targets (A, W, ...) of clients and rows of which some are not in it."""
        active, shared = plan.schedule.active[t], targets.shared
        inputs = _first(inputs, active, width)
        of_rows = {name: _first(value, active, width) for name, value in values.items() if name != AUGMENTATION}
        if active < len(self):
            shared = {name: value[:active] for name, value in shared.items()}
        if self._draw_step:
            of_rows |= _draw_step_targets(self._draw_step, plan.generators, inputs, plan.schedule.sizes(t))
        return Step(inputs, of_rows, shared, plan.schedule.weight(t, inputs.dtype))

    def _gather_targets(
        self, rows: Tensor, at: Tensor, targets: Targets, drawn: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the targets (P, A, W, ...) of rows (P, A, W), at these places in the plans."""
        row_targets = {name: take_rows(values, rows) for name, values in targets.rows.items()}
        row_targets |= {name: take_rows(values, row_targets["set"]) for name, values in targets.sets.items()}
        return row_targets | {name: take_rows(values, at) for name, values in drawn.items()}


class Schedule:
    """Rows of each client in each step: step t of client c has `_sizes[c, t]` rows, starting at `_starts[c, t]`."""

    def __init__(self, sizes: Sequence[tuple[int, ...]], device: torch.device) -> None:
        distinct = {each: torch.tensor(each) for each in set(sizes)}  # many clients have the same number of rows
        self._sizes = _pad([distinct[each] for each in sizes]).to(device)  # (C, T)
        self._starts = self._sizes.cumsum(1) - self._sizes
        self.widths = self._sizes.amax(0).tolist()
        self.active = (self._sizes > 0).sum(0).tolist()
        padded = (self._sizes > 0) & (self._sizes < self._sizes.amax(0))
        self._unpadded = padded.any(0).logical_not().tolist()

    def positions(self, first: int, last: int) -> Tensor:
        """Return the positions (P, A, W), in the order of the plans, of the rows of these steps."""
        sizes = self._sizes[: self.active[first], first:last].T.unsqueeze(-1)
        starts = self._starts[: self.active[first], first:last].T.unsqueeze(-1)
        within = torch.arange(max(self.widths[first:last]), device=sizes.device)
        return starts + within.minimum((sizes - 1).clamp_min(0))

    def sizes(self, t: int) -> list[int]:
        """Return the number of rows of each active client in step t."""
        sizes: list[int] = self._sizes[: self.active[t], t].tolist()
        return sizes

    def weight(self, t: int, precision: torch.dtype) -> Tensor | None:
        """Return the weight (A, W) of each row in step t, 0 for padded rows; None if no row is padded."""
        if self._unpadded[t]:
            return None
        sizes = self._sizes[: self.active[t], t].unsqueeze(-1)
        mask = torch.arange(self.widths[t], device=sizes.device) < sizes
        return mask.to(precision) / sizes


def _draw_step_targets(
    draw: Sequence[DrawStepTargets],
    generators: Sequence[Iterator[torch.Generator]],
    inputs: Tensor,
    sizes: Sequence[int],
) -> dict[str, Tensor]:
    """Return random targets (A, W, ...) for inputs (A, W, ...), of which `sizes` rows of each client are not padded."""
    draw_all = getattr(draw[0], "of_clients", None)
    if draw_all is not None and all(each is draw[0] for each in draw):
        found: Mapping[str, Tensor] = draw_all(inputs, sizes, [next(one) for one in generators[: len(sizes)]])
        return dict(found)
    drawn = [draw[c](inputs[c, :size], next(generators[c])) for c, size in enumerate(sizes)]
    return {name: pad_sequence([one[name] for one in drawn], batch_first=True) for name in drawn[0]}


def _pad(values: Sequence[Tensor]) -> Tensor:
    """Pad the values of each client with zeros, which are valid positions: (C, R, ?)."""
    if len({value.shape[0] for value in values}) == 1:
        return torch.stack(list(values))
    return pad_sequence(list(values), batch_first=True)


def _join(epochs: Sequence[Tensor]) -> Tensor:
    """Return the values of all epochs."""
    return epochs[0] if len(epochs) == 1 else torch.cat(list(epochs))


def _first(values: Tensor, clients: int, rows: int) -> Tensor:
    """Return the part (clients, rows, ...) of values (A, W, ...): a view, or the values if they are the whole."""
    return values if values.shape[:2] == (clients, rows) else values[:clients, :rows]
