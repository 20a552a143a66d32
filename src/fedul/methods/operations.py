"""Tensor operations that several methods share. All of them accept a leading dimension of clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedul.core import Matrix
from fedul.methods.task import Predict, Targets


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each row with its label: (..., n) from logits (..., n, K)."""
    by_class = logits if logits.dim() == 2 else logits.mT  # faster, see `log_softmax`
    return functional.cross_entropy(by_class, labels, reduction="none")


def log_softmax(logits: Tensor) -> Tensor:
    """Return the logarithm of the class probabilities (..., n, K).

    With vectorized clients it is computed transposed: torch adds up few classes in memory order one by one, but vectors
    of rows at once. At 10 classes that is 15 times faster.
    """
    return logits.log_softmax(-1) if logits.dim() == 2 else logits.mT.log_softmax(-2).mT


def softmax(logits: Tensor) -> Tensor:
    """Return the class probabilities (..., n, K); see `log_softmax`."""
    return logits.softmax(-1) if logits.dim() == 2 else logits.mT.softmax(-2).mT


def soft_cross_entropies(logits: Tensor, weights: Tensor) -> Tensor:
    """Return -sum_k weights_k log softmax(logits)_k of each row, (..., n); a class of weight 0 may have logit -inf."""
    log_posterior = log_softmax(logits)
    return -torch.where(weights != 0, weights * log_posterior, torch.zeros_like(weights)).sum(-1)


def prior_shift(mix: Matrix, test_prior: Matrix) -> Tensor:
    """Return log(mix / test_prior), of shape (K,).

    Added to logits under the test prior, it makes them logits under another class mix. A class with share 0 in the mix
    gets -inf, so that it is never predicted there.
    """
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(mix) - np.log(test_prior))


def set_means(rows: Tensor, targets: Targets, count: int, sizes: Tensor | None = None) -> Tensor:
    """Return the means (..., M, K) of rows (..., n, K) over each of `count` sets; zeros for a set without rows.

    `sizes` is the result of `set_sizes`, if it is known.
    """
    sizes = set_sizes(targets, count, rows.dtype) if sizes is None else sizes
    return set_sums(rows, targets, count) / sizes.clamp_min(1)


def set_sums(rows: Tensor, targets: Targets, count: int) -> Tensor:
    """Return the sums (..., M, K) of rows (..., n, K) over each of `count` sets."""
    if targets.mask is not None:
        rows = rows * targets.mask.unsqueeze(-1)
    sets = targets.rows["set"].unsqueeze(-1).expand(rows.shape)
    return rows.new_zeros(*rows.shape[:-2], count, rows.shape[-1]).scatter_add_(-2, sets, rows)


def set_sizes(targets: Targets, count: int, dtype: torch.dtype) -> Tensor:
    """Return the number of rows of each set, (..., M, 1)."""
    return set_sums(torch.ones_like(targets.rows["set"], dtype=dtype).unsqueeze(-1), targets, count)


@contextmanager
def frozen_batch_norm_statistics(predict: Predict) -> Iterator[None]:
    """Keep running statistics of batch norm unchanged in this block, e.g. for perturbed inputs."""
    inside = predict.modules() if isinstance(predict, nn.Module) else iter(())
    layers = [layer for layer in inside if isinstance(layer, _BatchNorm)]
    before = [layer.track_running_stats for layer in layers]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer, tracks in zip(layers, before, strict=True):
            layer.track_running_stats = tracks
