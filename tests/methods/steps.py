"""Tasks, steps and gradients of methods in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedul.methods.base import Method
from fedul.methods.task import Step, Task, predict_task

from ..factories import dense_network

SETTINGS: dict[str, Any] = {"rounds": 3, "batch_size": 8, "model": dense_network, "select": "last", "seed": 5}
"""Settings of a short run in float64."""


def task_of_round(method: Method, task: Task, module: nn.Module, directive: Mapping[str, float] | None = None) -> Task:
    """Return the task after `begin_round` with the current weights."""
    with torch.no_grad():
        targets, _ = method.begin_round(task.targets, predict_task(module, task), directive or {}, {})
    return replace(task, targets=targets)


def gradient_of(method: Method, module: nn.Module, step: Step) -> Tensor:
    """Return the gradient of the loss of a step in all weights, as one vector."""
    return flat_gradient(method.loss(module, step), module)


def flat_gradient(loss: Tensor, module: nn.Module) -> Tensor:
    """Return the gradient of a loss in all weights, as one vector."""
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


def padded(step: Step, junk: int = 3) -> Step:
    """Return the step with more rows, of weight zero."""
    again = torch.arange(len(step.inputs) + junk) % len(step.inputs)
    inputs = step.inputs[again].clone()
    inputs[-junk:] = 7.0
    weight = torch.full((len(again),), 1 / len(step.inputs), dtype=torch.float64)
    weight[-junk:] = 0
    return Step(inputs, {name: values[again] for name, values in step.targets.items()}, step.shared, weight)
