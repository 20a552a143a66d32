"""What a method must return, checked where it is called: a method of another package may return anything."""

from __future__ import annotations

import torch
from torch import Tensor

from fedul._utils.extensions import describe_part
from fedul.core import TaskSpec, UnlabeledSets
from fedul.errors import InputError
from fedul.methods.base import Method
from fedul.methods.task import Predict, Step, Task


def checked_task(method: Method, client: UnlabeledSets, spec: TaskSpec) -> Task:
    """Return the task of a client; InputError if the method returns something else."""
    task = method.task(client, spec)
    if not isinstance(task, Task):
        raise InputError(f"{describe_part('method', method)}: task returned {_shown(task)}; expected a Task.")
    return task


def checked_loss(method: Method, leading: int, predict: Predict, step: Step) -> Tensor:
    """Return the loss of a step.

    Parameters
    ----------
    method : Method
        The method.
    leading : int
        1 for vectorized clients, else 0.
    predict, step
        The arguments of `Method.loss`.

    Raises
    ------
    InputError
        If the loss is no scalar, or not one value for each vectorized client, or has no gradient.
    """
    loss = method.loss(predict, step)
    clients = step.inputs.shape[:leading]
    if isinstance(loss, Tensor) and loss.shape == clients and loss.requires_grad:
        return loss
    expected = f"one value for each of the {clients[0]} clients, since `vectorized` is True" if leading else "a scalar"
    detached = isinstance(loss, Tensor) and not loss.requires_grad
    raise InputError(
        f"{describe_part('method', method)}: loss returned {_shown(loss)}{' without a gradient' if detached else ''}; "
        f"expected {expected}, made from the predictions so that it can be differentiated (average over rows with "
        "step.mean)."
    )


def _shown(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}" if value.dim() else "a scalar tensor"
    return "None" if value is None else f"an object of type {type(value).__name__}"
