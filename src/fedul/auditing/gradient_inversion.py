"""The attack `gradient-inversion`: rows of one small batch, from the update of one local step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fedul._utils.randomness import torch_generator
from fedul.auditing.document import InversionResult
from fedul.auditing.inversion import (
    MOST_RECONSTRUCTED,
    divide_gradients,
    first_dense_layer,
    match_gradients,
    row_errors,
)
from fedul.auditing.protections import Condition
from fedul.auditing.small_batch import SmallBatch, SmallBatches
from fedul.core import Federation, Matrix

BATCHES = (1, 4)
"""Rows of a client in the step."""
TRIALS = 5
RECOVERED = 0.1
"""Distance below which a row counts as recovered, as a multiple of that of the mean row."""
MOST_ROWS = 4096
"""Rows that mean and range are taken from."""


def invert_gradients(federation: Federation, condition: Condition, seed: int) -> Iterator[InversionResult]:
    """Yield how exactly rows are reconstructed from the update of one step, for each size of a batch.

    The attack is the better one of division, where the first layer is dense, and of matching, by the median error.

    Parameters
    ----------
    federation : Federation
        The clients.
    condition : Condition
        How they train.
    seed : int
        Seed of batches and first guesses.
    """
    batches, sample = SmallBatches(federation, condition), _sample(federation)
    module, classes = batches.run.context.module, len(federation.classes)
    mean, low, high = sample.mean(0), sample.amin(0), sample.amax(0)
    layer = first_dense_layer(module)
    for batch in BATCHES:
        generator = torch_generator(seed, "small batches", condition.protection.name, batch)
        divided, matched = list[Matrix](), list[Matrix]()
        clients = 1
        for _ in range(TRIALS):
            drawn: SmallBatch = batches.draw(batch, generator)
            clients, count = drawn.clients, min(len(drawn.rows), MOST_RECONSTRUCTED)
            start = mean + 0.1 * torch.randn((count, *mean.shape), generator=generator) * (high - low)
            if layer is not None:
                quotients = divide_gradients(drawn.gradient, layer, count, mean.shape)
                divided.append(row_errors(quotients, drawn.rows, mean, low, high))
            if layer is None or len(drawn.rows) > 1:
                found = match_gradients(module, batches.weights, drawn.gradient, start, classes, generator)
                matched.append(row_errors(found, drawn.rows, mean, low, high))
        first = np.concatenate(divided) if divided else None
        second = np.concatenate(matched) if matched else None
        by_division = second is None or (first is not None and np.median(first) <= np.median(second))
        errors = first if by_division else second
        assert errors is not None
        yield InversionResult(
            protection=condition.protection.name,
            attack="first layer" if by_division else "gradient matching",
            batch=batch,
            clients=clients,
            error=float(np.median(errors)),
            recovered=float((errors < RECOVERED).mean()),
            rows=len(errors),
        )


def _sample(federation: Federation) -> Tensor:
    """Return rows as the network receives them, for mean and range."""
    count = 1 + MOST_ROWS // len(federation.clients)
    rows = [client.inputs[client.train.index[:count]] for client in federation.clients]
    return federation.scaling(torch.cat(rows))
