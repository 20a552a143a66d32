"""Combinations of data, model and method that would fail only in the first step, when a run folder exists already."""

from __future__ import annotations

from torch import nn

from fedul.config import TrainConfig
from fedul.core import Federation
from fedul.errors import InputError
from fedul.methods.base import Method
from fedul.methods.checked import checked_task
from fedul.privacy.dp_sgd.network_check import check_network
from fedul.privacy.row_privacy import steps_of_epoch

MANY_STEPS = 25
"""Private steps in a pass over the rows of a client, from which on batches are small."""


def small_batch_warnings(federation: Federation, config: TrainConfig) -> list[str]:
    """Return a warning if private batches are a small part of the rows: the noise does not get less with them."""
    rows = int(federation.columns.train_rows.max())
    if not config.protects_rows or steps_of_epoch(rows, config.batch_size) < MANY_STEPS:
        return []
    return [
        f"batch-size: batches of {config.batch_size} of {rows:,} private rows are mostly noise; larger ones "
        f"(--batch-size {rows // 10}, with a larger --learning-rate) usually give a better classifier."
    ]


def check_fit(federation: Federation, module: nn.Module, name: str, method: Method, config: TrainConfig) -> None:
    """Refuse what would fail only in the first step."""
    if config.augment != "none" and len(federation.input_shape) != 3:
        raise InputError(f"augment {config.augment}: needs images, but a row has shape {federation.input_shape}.")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InputError("the model has no weights to train; use one that has.")
    if config.protects_rows:
        check_network(module, name, federation.input_shape)
    if config.batch_size == 1 and any(isinstance(layer, nn.BatchNorm1d) for layer in module.modules()):
        raise InputError("batch-size 1: batch norm needs two rows a step; use a larger one, or another model.")
    if any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules()):
        for client in federation.clients:
            if len(checked_task(method, client, federation.spec)) < 2:
                raise InputError(
                    f"client '{client.name}' has one row to train on; batch norm needs two, so use another model."
                )
