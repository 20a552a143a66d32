"""A client's work under a method: rows, targets, and the steps of a local epoch.

Randomness is separated from arithmetic: `Task.plan` draws everything random of a local epoch beforehand, and
`Method.loss` is a pure function of a prediction function and a step. So a loop over clients, vectorized clients and a
remote site compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from fedul.core import PREDICT_BATCH, Scaling
from fedul.methods import augment as augmentation

Predict = Callable[[Tensor], Tensor]
"""Function from inputs (n, ...) to logits (n, K)."""

DrawTargets = Callable[[int, torch.Generator], Mapping[str, Tensor]]
"""Function from a number of rows to random targets, one per row."""

DrawStepTargets = Callable[[Tensor, torch.Generator], Mapping[str, Tensor]]
"""Function from the inputs (n, ...) of a step to random targets, one per row.

If it has a method `of_clients`, this draws the same numbers for vectorized clients: from their inputs (C, n, ...),
their numbers of rows and their generators to targets (C, n, ...), which are 0 for padded rows.
"""

AUGMENTATION = "augmentation"
"""Key of the parameters of the augmentation of each row, beside the random targets of a plan."""

GATHER_VALUES = 2**20
"""Input values that a plan gathers in one operation: many steps of a table, and little memory for large images."""


@dataclass(frozen=True, eq=False)
class Targets:
    """What a loss knows about a client: values per row, per set, and for the whole client.

    With vectorized clients every tensor has a leading dimension of clients. Clients with fewer rows or sets are padded;
    `mask` tells which rows are real.

    Parameters
    ----------
    rows : mapping of str to Tensor
        Values per row, (..., n, ?). The key ``"set"`` holds the set index of each row where `sets` is used.
    sets : mapping of str to Tensor
        Values per set, (..., M, ?), looked up by the rows' ``"set"``.
    client : mapping of str to Tensor
        Values of the client: (...), or (..., 1, ?) with vectorized clients.
    mask : Tensor or None
        (..., n) bool, False for padded rows; None means that all rows are real.
    padding : mapping of str to float
        Value that pads an entry of `sets`, where that is not 0.

    Examples
    --------
    >>> targets = Targets(rows={"set": torch.tensor([0, 1])}, sets={"share": torch.tensor([0.1, 0.6])})
    >>> targets.at(torch.tensor([1]))["share"]
    tensor([0.6000])
    """

    rows: Mapping[str, Tensor]
    sets: Mapping[str, Tensor] = field(default_factory=dict)
    client: Mapping[str, Tensor] = field(default_factory=dict)
    mask: Tensor | None = None
    padding: Mapping[str, float] = field(default_factory=dict)

    @property
    def shared(self) -> Mapping[str, Tensor]:
        """Values that hold for all rows of a client."""
        return {**self.sets, **self.client}

    def at(self, positions: Tensor) -> Mapping[str, Tensor]:
        """Return the targets (..., b, ?) of the rows at these positions (..., b)."""
        rows = {name: take_rows(values, positions) for name, values in self.rows.items()}
        return {**rows, **{name: take_rows(values, rows["set"]) for name, values in self.sets.items()}}


@dataclass(frozen=True, eq=False)
class Step:
    """The rows of one local step and their targets. With vectorized clients every tensor has a leading dimension.

    Parameters
    ----------
    inputs : Tensor
        (..., n, ...)
    targets : mapping of str to Tensor
        Targets of the rows, each (..., n, ?).
    shared : mapping of str to Tensor
        Values that hold for all rows of the client.
    weight : Tensor or None
        (..., n), summing to one; None means that all rows count the same.

    Examples
    --------
    >>> step = Step(torch.zeros(2, 3), targets={}, weight=torch.tensor([1.0, 0.0]))  # the second row is padding
    >>> step.mean(torch.tensor([4.0, 9.0]))
    tensor(4.)
    """

    inputs: Tensor
    targets: Mapping[str, Tensor]
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    weight: Tensor | None = None

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of one value per row. Losses must average with this, so that padded rows have no weight."""
        return values.mean(-1) if self.weight is None else (values * self.weight).sum(-1)

    def first_half(self, axis: int) -> Step:
        """Return the step with the first half of its rows, whose weights sum to one; rows are in random order.

        Parameters
        ----------
        axis : int
            Dimension of the rows: 1 with vectorized clients, else 0.
        """
        count, weight = (self.inputs.shape[axis] + 1) // 2, self.weight
        if weight is not None:  # each client has its own number of real rows, which come first
            real = (weight > 0).sum(-1, keepdim=True)
            first = torch.arange(count, device=weight.device) < (real + 1) // 2
            weight = first.to(weight.dtype) / first.sum(-1, keepdim=True).clamp_min(1)
        targets = {name: values.narrow(axis, 0, count) for name, values in self.targets.items()}
        return Step(self.inputs.narrow(axis, 0, count), targets, self.shared, weight)


@dataclass(frozen=True, eq=False)
class Task:
    """A client's work under a method: the rows to train on, and their targets.

    Its length is the number of rows to train on. A task may have further rows, after those: `Method.begin_round`
    receives their logits, but they are in no step.

    Parameters
    ----------
    inputs : Tensor
        (N, ...), possibly shared with other clients.
    index : Tensor
        (n,) positions in `inputs` of all rows, those to train on first.
    targets : Targets
        Targets of these rows.
    scaling : Scaling
        Map from stored inputs to network inputs.
    draw : callable, optional
        Draws random targets for all rows to train on, once per epoch.
    draw_step : callable, optional
        Draws random targets for the rows of a step; for targets that are too large to draw for all rows.
    trained : int, optional
        Number of rows to train on, from the first; by default all.

    Examples
    --------
    >>> index, targets = torch.arange(5), Targets(rows={"label": torch.arange(5)})
    >>> task = Task(torch.zeros(5, 2), index, targets, Scaling())
    >>> [len(step.inputs) for step in task.plan(torch.Generator().manual_seed(0), batch_size=2)]
    [2, 3]
    """

    inputs: Tensor
    index: Tensor
    targets: Targets
    scaling: Scaling
    draw: DrawTargets | None = None
    draw_step: DrawStepTargets | None = None
    trained: int | None = None
    _length: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.trained is not None and not 0 < self.trained <= len(self.index):
            raise ValueError(f"a task of {len(self.index)} rows cannot train on {self.trained} of them.")
        # Asked for several times in a round of every client; `len` of a tensor takes two microseconds.
        object.__setattr__(self, "_length", len(self.index) if self.trained is None else self.trained)

    def __len__(self) -> int:
        return self._length

    def plan(self, generator: torch.Generator, batch_size: int = 0, augment: str = "none") -> Plan:
        """Draw one local epoch: a pass over the rows to train on in random order, with everything random that it needs.

        Parameters
        ----------
        generator : torch.Generator
            Source of randomness.
        batch_size : int, default=0
            Rows of a step; 0 means all rows.
        augment : str, default="none"
            Augmentation of images, see `fedul.methods.augment`.

        Returns
        -------
        Plan
            The steps of the epoch.
        """
        rows, device = len(self), self.index.device
        order = torch.randperm(rows, generator=generator).to(device)
        drawn = {} if self.draw is None else dict(self.draw(rows, generator))
        if augment != "none":
            drawn[AUGMENTATION] = augmentation.draw(augment, rows, generator)
        drawn = {name: values.to(device) for name, values in drawn.items()}
        seed = 0 if self.draw_step is None else int(torch.randint(2**62, (), generator=generator))
        return Plan(self, order, step_sizes(rows, batch_size), drawn, augment, seed)

    def batches(self, batch_size: int) -> Iterator[Step]:
        """Yield all rows in their order, for prediction: also those that are not trained on."""
        for at in torch.split(torch.arange(len(self.index), device=self.index.device), batch_size):
            yield self.step(at)

    def step(self, at: Tensor) -> Step:
        """Return the rows at these positions as a step."""
        return Step(self.scaling(self.inputs[self.index[at]]), self.targets.at(at), self.targets.shared)


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps of one local epoch with everything random drawn; rows are gathered when they are needed."""

    task: Task
    order: Tensor  # (n,)
    sizes: tuple[int, ...]  # rows of each step
    drawn: Mapping[str, Tensor]  # random targets and augmentations (n, ?), in the order of the steps
    augment: str
    step_seed: int = 0

    def __len__(self) -> int:
        return len(self.sizes)

    def step_generator(self) -> torch.Generator:
        """Return the generator of `Task.draw_step` for this epoch."""
        return torch.Generator().manual_seed(self.step_seed)

    def __iter__(self) -> Iterator[Step]:
        generator, start = self.step_generator(), 0
        for sizes in gather_groups(self.sizes, self.task.inputs.shape[1:].numel()):
            part = slice(start, start := start + sum(sizes))
            step = self.task.step(self.order[part])
            inputs, targets = step.inputs, {**step.targets, **{name: v[part] for name, v in self.drawn.items()}}
            if self.augment != "none":
                inputs = augmentation.apply(self.augment, inputs, targets.pop(AUGMENTATION))
            parts = {name: torch.split(values, sizes) for name, values in targets.items()}
            for i, rows in enumerate(torch.split(inputs, sizes)):
                row_targets = {name: values[i] for name, values in parts.items()}
                if self.task.draw_step is not None:
                    row_targets |= self.task.draw_step(rows, generator)
                yield Step(rows, row_targets, step.shared)


@cache
def step_sizes(rows: int, batch_size: int) -> tuple[int, ...]:
    """Return the number of rows of each step of an epoch; batch size 0 means all rows in one step.

    Examples
    --------
    >>> step_sizes(10, 4), step_sizes(9, 4)  # batch norm needs two rows: a last step of one row joins the previous one
    ((4, 4, 2), (4, 5))
    """
    size = batch_size or rows
    sizes = [size] * (rows // size) + ([rows % size] if rows % size else [])
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [size + 1]
    return tuple(sizes)


def gather_groups(sizes: Sequence[int], values: int, limit: int = GATHER_VALUES) -> Iterator[list[int]]:
    """Group the steps whose rows (of `values` values each) are gathered in one operation.

    For a small network, gathering step by step takes a tenth of the training time.
    """
    group = max(1, limit // max(values * sizes[0], 1))
    for first in range(0, len(sizes), group):
        yield list(sizes[first : first + group])


def take_rows(values: Tensor, positions: Tensor) -> Tensor:
    """Return the rows of `values` (n, ?) at `positions` (b,): (b, ?).

    With vectorized clients, values are (C, n, ?) and positions (..., A, b) of the first A clients: (..., A, b, ?).
    """
    if positions.dim() == 1:
        return values[positions]
    # Rows of all clients in one dimension: torch reads them three times as fast as with two indices.
    starts = torch.arange(positions.shape[-2], device=positions.device)[:, None] * values.shape[1]
    taken = values.flatten(0, 1).index_select(0, (positions + starts).reshape(-1))
    return taken.view(*positions.shape, *values.shape[2:])


def predict_task(predict: Predict, task: Task, batch_size: int = PREDICT_BATCH) -> Tensor:
    """Return logits (n, K) of all rows of a task, in their order."""
    return torch.cat([predict(step.inputs) for step in task.batches(batch_size)])
