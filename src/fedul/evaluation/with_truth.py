"""Figures that need true labels, and so exist for research data only."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul.federation import Federation, Scaling
from fedul.inputs import AT_ONCE, gathered
from fedul.models.weights import precision_of
from fedul.priors import Matrix
from fedul.truth import Labels, Truth


def test_error(module: nn.Module, truth: Truth, scaling: Scaling) -> tuple[float, list[float]]:
    """Share of wrong predictions over the pooled test rows, and over each client's, as far as it has any."""
    wrong = predictions(module, truth.test_inputs, scaling) != truth.test_labels
    rows = np.bincount(truth.test_clients)
    by_client = np.bincount(truth.test_clients, wrong)[rows > 0] / rows[rows > 0]
    return float(wrong.mean()), by_client.tolist()


test_error.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest thinks of its name


def validation_error(module: nn.Module, federation: Federation, truth: Truth) -> float:
    """Share of wrong predictions over all clients' held-out rows: labelled model selection, as the paper does it."""
    labels = np.concatenate([truth.held_out_labels[client.name] for client in federation.clients])
    held_out = ((client.inputs, client.held_out.index) for client in federation.clients)
    found = _predicted(module, gathered(held_out, AT_ONCE), federation.scaling)
    return int((found != labels).sum()) / max(len(labels), 1)


def calibration_error(probabilities: Matrix, labels: Labels, bins: int = 15) -> float:
    """Expected calibration error: how far confidence and share of right predictions are apart, over equal bins.

    >>> calibration_error(np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0, 1]))  # right twice, at 0.8 and 0.7
    0.25
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(bin_of, confidence - right, minlength=bins)
    return float(np.abs(gap).sum() / len(labels))


def predictions(module: nn.Module, inputs: Tensor, scaling: Scaling, batch_size: int = AT_ONCE) -> Labels:
    """The most probable class (n,) of the rows."""
    return _predicted(module, torch.split(inputs, batch_size), scaling)


@torch.inference_mode()
def _predicted(module: nn.Module, batches: Iterable[Tensor], scaling: Scaling) -> Labels:
    module.eval()
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    precision = precision_of(module)
    found: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    found += [module(scaling(rows.to(device)).to(precision)).argmax(1).cpu().numpy() for rows in batches if len(rows)]
    return np.concatenate(found)
