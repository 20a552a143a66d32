"""Networks that DP-SGD cannot train, with the reason: the gradient of a row must depend on this row alone."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedul._utils.randomness import keep_layer_random_states, layer_random_states
from fedul.errors import InputError, first_line
from fedul.privacy.dp_sgd.row_gradients import row_gradients

INSTEAD = "use linear, small-mlp, mlp or small-cnn"
ROWS = 3


def check_network(module: nn.Module, name: str, shape: tuple[int, ...]) -> None:
    """Refuse a network that cannot be trained with differential privacy of rows.

    Batch norm is recognised by its type. Everything else is tried out on random rows.

    Parameters
    ----------
    module : nn.Module
        The network.
    name : str
        Its name, for the message.
    shape : tuple of int
        Shape of one row.

    Raises
    ------
    InputError
        If rows interact, a buffer changes, random numbers are drawn, weights are not in float32 or float64, or torch
        cannot differentiate single rows.
    """
    if any(isinstance(layer, _BatchNorm) and layer.training for layer in _in_training(module).modules()):
        raise InputError(
            f"model '{name}': has batch norm, which computes with all rows of a batch, so the gradient of a single row "
            f"cannot be limited (--dp-epsilon, --dp-noise); {INSTEAD}, or group norm in a network of your own."
        )
    if problem := _problem(module, shape):
        raise InputError(f"model '{name}': {problem}, so rows cannot be private (--dp-epsilon, --dp-noise); {INSTEAD}.")


def _problem(module: nn.Module, shape: tuple[int, ...]) -> str:
    """Return why a network cannot be trained, from a trial with random rows; empty if it can."""
    trial, first = _in_training(module), next(module.parameters())
    if any(p.dtype not in (torch.float32, torch.float64) for p in trial.parameters()):
        return "its weights are not float32"
    rows = torch.rand(ROWS, *shape, generator=torch.Generator().manual_seed(0)).to(first.device, first.dtype)
    buffers = {key: buffer.clone() for key, buffer in trial.named_buffers()}
    states = layer_random_states(first.device)
    with keep_layer_random_states(first.device):
        try:
            with torch.no_grad():
                batched, one_by_one = trial(rows), torch.cat([trial(row[None]) for row in rows])
        except Exception as error:  # a user's network may raise anything for a single row
            return f"it cannot predict a single row ({first_line(error)})"
        if not all(map(torch.equal, layer_random_states(first.device), states)):
            return "it draws random numbers in training, as dropout does"
        if any(not torch.equal(buffer, buffers[key]) for key, buffer in trial.named_buffers()):
            return "a buffer of it changes in training, as running statistics do"
        if not torch.allclose(batched, one_by_one, rtol=1e-3, atol=1e-5):
            return "what it predicts for a row depends on the other rows"
        try:
            gradients = row_gradients(trial)
            predicted = gradients.predict(rows)
            gradients.clipped_sum(predicted.sum(), 1.0)
        except Exception as error:
            return f"torch cannot differentiate it row by row ({first_line(error)})"
    if not torch.allclose(predicted, batched, rtol=1e-3, atol=1e-5):
        return "it predicts a row differently if it is differentiated"
    return ""


def _in_training(module: nn.Module) -> nn.Module:
    """Return a copy in training mode, in which layers that the user has put into eval mode stay."""
    if any(parameter._backward_hooks for parameter in module.parameters()):
        raise InputError("a model with hooks on its weights cannot be trained with private rows; remove them.")
    try:
        trial = copy.deepcopy(module)
    except Exception as error:  # it may hold a lock or an open file
        raise InputError(f"a model that cannot be copied cannot have private rows ({first_line(error)}).") from None
    return trial if trial.training else trial.train()
