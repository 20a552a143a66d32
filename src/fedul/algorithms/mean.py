"""The mean of the updates of a round, and the weights after it."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fedul._utils import torch_private
from fedul.core import MeanUpdate, Update, Weights
from fedul.errors import EnvironmentFailure


def mean_update(updates: Iterable[Update], weighting: str) -> MeanUpdate:
    """Average updates one by one, so that memory does not grow with their number.

    Parameters
    ----------
    updates : iterable of Update
        The updates of a round.
    weighting : {"uniform", "rows"}
        Whether all clients count the same or by their rows.

    Raises
    ------
    EnvironmentFailure
        If there is no update.
    """
    delta, buffers, message = Weights(), Weights(), Weights()
    total, steps, clients = 0.0, 0.0, 0
    for update in updates:
        weight = float(update.rows) if weighting == "rows" else 1.0
        _add(delta, update.delta, weight)
        _add(buffers, update.buffers, weight)
        _add(message, update.message, weight)
        total += weight
        steps += weight * update.steps
        clients += 1
    if total == 0:
        raise no_updates_error()
    delta, buffers, message = ({name: t / total for name, t in sums.items()} for sums in (delta, buffers, message))
    return MeanUpdate(delta, buffers, message, steps / total, clients)


def _add(sums: Weights, tensors: Weights, weight: float) -> None:
    """Add weighted tensors to the sums, in place."""
    if not tensors:
        return
    if not tensors.keys() <= sums.keys():
        sums |= {name: torch.zeros_like(tensor) for name, tensor in tensors.items() if name not in sums}
    # One call for all tensors, because there may be hundreds of small clients.
    torch_private.add_([sums[name] for name in tensors], list(tensors.values()), alpha=weight)


def no_updates_error() -> EnvironmentFailure:
    """Return the error for a round without updates."""
    return EnvironmentFailure("no client sent an update in this round; the model did not change.")


def apply_update(weights: Weights, delta: Weights, step: float, buffers: Weights) -> Weights:
    """Return the weights after an update.

    Parameters
    ----------
    weights : dict of str to Tensor
        Current weights; not changed.
    delta : dict of str to Tensor
        Direction of the parameters.
    step : float
        Step size of the parameters.
    buffers : dict of str to Tensor
        Change of the buffers, which have no step size.

    Returns
    -------
    dict of str to Tensor
        The new weights, with the dtypes of the current ones; integers are rounded.
    """
    result = dict(weights)
    for changes, factor in ((delta, step), (buffers, 1.0)):
        for name, change in changes.items():
            value = weights[name]
            if value.is_floating_point():
                result[name] = (value + factor * change).to(value.dtype)
            else:
                result[name] = (value.double() + factor * change).round().to(value.dtype)
    return result
