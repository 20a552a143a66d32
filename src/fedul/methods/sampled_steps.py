"""Local steps on given rows, such as random batches of any size, in place of passes over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from fedul.methods import augment as augmentation
from fedul.methods.task import Step, Task


def sampled_steps(
    task: Task, batches: Iterable[tuple[Tensor, Tensor]], generator: torch.Generator, augment: str = "none"
) -> Iterator[Step]:
    """Yield the step of each batch, which may have no rows. Its loss is the sum of weighted terms, divided by b.

    Random targets and augmentations are drawn for all rows in every step. So those of a row do not depend on which
    other rows are in the batch.

    Parameters
    ----------
    task : Task
        The rows and their targets.
    batches : iterable of (Tensor, Tensor)
        For each step the positions (b,) of its rows, among those that are trained on, and their weights (b,).
    generator : torch.Generator
        Source of randomness.
    augment : str, default="none"
        Augmentation of images, see `fedul.methods.augment`.
    """
    device = task.index.device
    for positions, weights in batches:
        at = positions.to(device)
        step = task.step(at)
        inputs, targets = step.inputs, dict(step.targets)
        if task.draw is not None:
            targets |= {name: values.to(device)[at] for name, values in task.draw(len(task), generator).items()}
        if augment != "none":
            parameters = augmentation.draw(augment, len(task), generator).to(device)[at]
            inputs = augmentation.apply(augment, inputs, parameters) if len(at) else inputs
        if task.draw_step is not None:
            targets |= task.draw_step(inputs, generator)
        weight = None if bool((weights == 1).all()) else weights.to(device, inputs.dtype) / len(at)
        yield Step(inputs, targets, step.shared, weight)
